package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/broker"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/orders"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/quotes"
)

// tenant owns the quotes of the story.
const tenant = "acme"

// patience is how long the story waits for the services, on a machine as busy as you like.
const patience = 2 * time.Minute

// story is what happens to the two services. It acts as the customer, as the systems of others, and
// as the person on call. It looks only at tables and topics.
type story struct {
	out      io.Writer
	database string
	kafka    broker.Kafka
	cluster  *cluster
	outside  *outside

	quotesDSN, ordersDSN string
	quotesDB, ordersDB   *sql.DB
	quotes, orders       *process
	running              []*process
	input                *bufio.Reader // nil: without pauses
}

// steps are the exercise.
var steps = []struct {
	title string
	run   func(s *story, ctx context.Context) error
}{
	{"QuoteAccepted leaves by the outbox", (*story).quoteAccepted},
	{"The inbox of the order service", (*story).inbox},
	{"The command CAPTURE_ORDER runs once", (*story).command},
	{"One order for a quote: unique (tenant, source quote)", (*story).uniqueQuote},
	{"OrderCaptured comes back", (*story).orderCaptured},
	{"SIGKILL between the commit and the commit of the offset", (*story).killed},
	{"No duplicate", (*story).noDuplicate},
	{"A replay changes nothing", (*story).replay},
	{"A broken schema is parked, and released after the repair", (*story).brokenSchema},
	{"Fulfilment and notification are effects", (*story).effects},
	{"Invariants are constraints", (*story).invariants},
	{"The latency of the business", (*story).latency},
}

// tell runs the story.
func tell(ctx context.Context, database string, kafka broker.Kafka, pause bool) (err error) {
	if kafka.Prefix == "" {
		kafka.Prefix = "q2o-" + core.NewEventID()[24:] + "."
	}
	s := &story{out: os.Stdout, database: database, kafka: kafka}
	if err := s.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if pause {
		s.input = bufio.NewReader(os.Stdin)
	}
	began := time.Now()
	for n, step := range steps {
		s.say("\n%d. %s\n", n+1, step.title)
		if err := step.run(s, ctx); err != nil {
			return fmt.Errorf("step %d: %w%s", n+1, err, s.logs())
		}
		if err := s.wait(fmt.Sprintf("end of step %d", n+1)); err != nil {
			return err
		}
	}
	s.say("\nTwelve steps in %.1f s. The tables are still there: schemas %s and %s.\n",
		time.Since(began).Seconds(), quotesSchema, ordersSchema)
	return nil
}

// wait gives the reader time to look around.
func (s *story) wait(where string) error {
	if s.input == nil {
		return nil
	}
	s.say("\n-- %s: press Enter\n", where)
	_, err := s.input.ReadString('\n')
	return err
}

// open makes the schemas and topics anew.
func (s *story) open(ctx context.Context) error {
	if err := s.kafka.CreateTopics(topics...); err != nil {
		return fmt.Errorf("at KAFKA_BROKERS %s: %w", strings.Join(s.kafka.Brokers, ","), err)
	}
	var err error
	if s.cluster, err = connect(s.kafka); err != nil {
		return err
	}
	if s.outside, err = openOutside(s.cluster); err != nil {
		return err
	}
	for _, service := range []struct {
		schema string
		dsn    *string
		db     **sql.DB
	}{{quotesSchema, &s.quotesDSN, &s.quotesDB}, {ordersSchema, &s.ordersDSN, &s.ordersDB}} {
		pool, err := openPool(s.database)
		if err != nil {
			return err
		}
		_, err = pool.ExecContext(ctx, "DROP SCHEMA IF EXISTS "+service.schema+" CASCADE")
		if err = errors.Join(err, pool.Close()); err != nil {
			return fmt.Errorf("at DATABASE_URL %s: %w", s.database, err)
		}
		if *service.dsn, err = schemaOf(ctx, s.database, service.schema); err != nil {
			return err
		}
		if *service.db, err = openPool(*service.dsn); err != nil {
			return err
		}
	}
	s.say("PostgreSQL: schemas %s and %s. Kafka: topics %s*\n", quotesSchema, ordersSchema, s.kafka.Prefix)
	return nil
}

// close stops the services, and removes the topics and groups.
func (s *story) close() (err error) {
	for _, p := range s.running {
		select {
		case ended := <-p.ended: // before: a step has stopped or killed it
			p.ended <- ended
		default:
			err = errors.Join(err, p.stop())
		}
	}
	groups := map[string]string{quotes.Consumer: "quotes-1", orders.Releaser: ""}
	for _, handler := range []string{orders.HandlerQuotes, orders.HandlerFulfilment} {
		groups[orders.Consumer+"."+handler] = "orders-1"
	}
	return errors.Join(err, s.outside.server.Close(), s.cluster.remove(groups), s.quotesDB.Close(), s.ordersDB.Close())
}

// logs returns the logs of the services, for the person who has to find out why a step failed.
func (s *story) logs() string {
	var text strings.Builder
	for _, p := range s.running {
		if log := p.logged(); log != "" {
			fmt.Fprintf(&text, "\n-- log of %s:\n%s", p.name, log)
		}
	}
	return text.String()
}

// ---- printing ----

func (s *story) say(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

// tell prints a paragraph, indented and wrapped.
func (s *story) tell(format string, args ...any) {
	const width = 96
	line := "  "
	for word := range strings.FieldsSeq(fmt.Sprintf(format, args...)) {
		if len(line)+len(word)+1 > width {
			s.say("%s\n", line)
			line = "  "
		}
		line += " " + word
	}
	s.say("%s\n", line)
}

// table prints the rows of a query.
func (s *story) table(ctx context.Context, db *sql.DB, title, query string, args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	lines := [][]string{columns}
	for rows.Next() {
		values, fields := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			fields[i] = &values[i]
		}
		if err := rows.Scan(fields...); err != nil {
			return err
		}
		line := make([]string, len(columns))
		for i, v := range values {
			line[i] = v.String
		}
		lines = append(lines, line)
	}
	s.lines(title, lines)
	return rows.Err()
}

// topic prints the messages of a topic, or those about one aggregate.
func (s *story) topic(ctx context.Context, name, aggregateID string) error {
	records, err := s.cluster.read(ctx, name)
	if err != nil {
		return err
	}
	lines := [][]string{{"place", "key", "event", "version", "event_id", "replay"}}
	for _, r := range records {
		if aggregateID != "" && r.headers[core.HeaderAggregateID] != aggregateID {
			continue
		}
		replay := ""
		if r.headers[core.HeaderReplayOf] != "" {
			replay = "yes"
		}
		lines = append(lines, []string{
			r.place(), r.key, r.headers[core.HeaderEventType], r.headers[core.HeaderSchemaVersion],
			tail(r.headers[core.HeaderEventID]), replay,
		})
	}
	s.lines("topic "+name, lines)
	return nil
}

func (s *story) lines(title string, lines [][]string) {
	s.say("\n   %s\n", title)
	if len(lines) == 1 {
		s.say("     (no rows)\n")
		return
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(w, "     "+strings.Join(line, "\t"))
	}
	w.Flush()
}

// tail is the end of an id, which is enough to recognise it.
func tail(id string) string { return "…" + id[max(0, len(id)-6):] }

// ---- waiting ----

// until waits for a condition.
func (s *story) until(ctx context.Context, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited in vain until %s", what))
	defer cancel()
	for {
		if yes, err := ok(); err != nil || yes {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// rows waits until a query that counts has a result.
func (s *story) rows(ctx context.Context, db *sql.DB, want int, what, query string, args ...any) error {
	return s.until(ctx, what, func() (bool, error) {
		n, err := count(ctx, db, query, args...)
		return n == want, err
	})
}

// consumed waits until a service has acknowledged every message of a topic.
func (s *story) consumed(ctx context.Context, group, topic string) error {
	return s.until(ctx, group+" has read all of "+topic, func() (bool, error) {
		n, err := s.cluster.lag(group, topic)
		return n == 0, err
	})
}

// quoteEventsConsumed waits for the order service.
func (s *story) quoteEventsConsumed(ctx context.Context) error {
	return s.consumed(ctx, orders.Consumer+"."+orders.HandlerQuotes, contract.QuoteEvents)
}

func count(ctx context.Context, db *sql.DB, query string, args ...any) (n int, err error) {
	err = db.QueryRowContext(ctx, query, args...).Scan(&n)
	if err != nil {
		err = fmt.Errorf("%s: %w", query, err)
	}
	return n, err
}
