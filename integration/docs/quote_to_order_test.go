package docs

import (
	"bufio"
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// The exercise of two services has twelve steps, and each does what it says. The program waits
// after each step, and the test looks into the tables of both services and into the topics.
func TestExampleQuoteToOrder(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	r := newStoryReader(t)
	for n, check := range []func(*storyReader){
		(*storyReader).quoteAccepted, (*storyReader).inbox, (*storyReader).command, (*storyReader).uniqueQuote,
		(*storyReader).orderCaptured, (*storyReader).killed, (*storyReader).noDuplicate, (*storyReader).replay,
		(*storyReader).brokenSchema, (*storyReader).effects, (*storyReader).invariants, (*storyReader).latency,
	} {
		if n == 8 {
			r.next("step 9, before the repair")
			r.parked()
		}
		r.next(fmt.Sprintf("end of step %d", n+1))
		check(r)
		if t.Failed() {
			t.Fatalf("step %d; the story so far:\n%s", n+1, &r.told)
		}
	}
	r.end()
}

// Topics of the story, without their prefix.
const (
	quoteEvents      = "cpq.quote.events.v1"
	orderEvents      = "oms.order.events.v1"
	fulfilmentEvents = "fulfilment.events.v1"
	orderPoison      = "order-service.poison"
	quoteGroup       = "order-service.quote-events"
)

// storyReader runs the program, and checks the tables and topics that it leaves.
type storyReader struct {
	*testing.T
	quotes, orders *sql.DB
	prefix         string
	client         sarama.Client
	admin          sarama.ClusterAdmin

	program *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Scanner
	told    bytes.Buffer
	stderr  bytes.Buffer // only the program writes here until it has ended
	page    string       // the output of the present step
	waits   bool

	before string // the tables of orders before the replay
}

func newStoryReader(t *testing.T) *storyReader {
	t.Helper()
	db := testdb.Postgres(t)
	r := &storyReader{T: t, prefix: "it-" + core.NewEventID() + "."}
	schema := func(name string) *sql.DB {
		db := db
		db.DSN += "&search_path=" + name
		return db.Open(t)
	}
	r.quotes, r.orders = schema("example_quotes"), schema("example_orders")
	cfg := kafkabridge.SaramaConfig(0)
	cfg.Consumer.MaxWaitTime = 20 * time.Millisecond
	var err error
	r.client, err = sarama.NewClient([]string{topics.KafkaAddress(t)}, cfg)
	fixture.NoError(t, err)
	t.Cleanup(func() { r.client.Close() })
	r.admin, err = sarama.NewClusterAdminFromClient(r.client)
	fixture.NoError(t, err)

	dir := t.TempDir()
	buildExamples(t, dir, "./quote-to-order")
	r.program = exec.Command(filepath.Join(dir, "quote-to-order"), "-pause")
	r.program.Env = append(os.Environ(), "DATABASE_URL="+db.DSN, "KAFKA_BROKERS="+topics.KafkaAddress(t),
		"TOPIC_PREFIX="+r.prefix)
	r.program.Stderr = &r.stderr
	stdout, err := r.program.StdoutPipe()
	fixture.NoError(t, err)
	r.input, err = r.program.StdinPipe()
	fixture.NoError(t, err)
	r.output = bufio.NewScanner(stdout)
	fixture.NoError(t, r.program.Start())
	t.Cleanup(func() {
		// The program then stops its services, and deletes its topics and groups.
		r.input.Close()
		if r.program.ProcessState == nil {
			r.program.Process.Signal(syscall.SIGTERM)
			io.Copy(io.Discard, stdout)
			r.program.Wait()
		}
	})
	return r
}

// next reads on until the story waits there.
func (r *storyReader) next(where string) {
	r.Helper()
	if r.waits {
		_, err := io.WriteString(r.input, "\n")
		fixture.NoError(r.T, err)
	}
	var page strings.Builder
	for r.output.Scan() {
		line := r.output.Text()
		r.told.WriteString(line + "\n")
		if line == "-- "+where+": press Enter" {
			r.page, r.waits = page.String(), true
			return
		}
		page.WriteString(line + "\n")
	}
	err := errors.Join(r.output.Err(), r.program.Wait())
	r.Fatalf("the story has ended before %s: %v\n%s%s", where, err, &r.told, &r.stderr)
}

// end lets the program end, and requires that it leaves no topic and no group in Kafka.
func (r *storyReader) end() {
	_, err := io.WriteString(r.input, "\n")
	fixture.NoError(r.T, err)
	for r.output.Scan() {
		r.told.WriteString(r.output.Text() + "\n")
	}
	if err := r.program.Wait(); err != nil {
		r.Fatalf("%v\n%s%s", err, &r.told, &r.stderr)
	}
	fixture.Await(r.T, "the topics of the story are gone", func() bool {
		all, err := r.admin.ListTopics()
		fixture.NoError(r.T, err)
		for name := range all {
			if strings.HasPrefix(name, r.prefix) {
				return false
			}
		}
		return true
	})
	groups, err := r.admin.ListConsumerGroups()
	fixture.NoError(r.T, err)
	for name := range groups {
		if strings.HasPrefix(name, r.prefix) {
			r.Errorf("group %s is still there", name)
		}
	}
}

// ---- looking ----

// want compares the rows of a query, each as its values with blanks between them.
func (r *storyReader) want(db *sql.DB, query string, want ...string) {
	r.Helper()
	if got := r.rows(db, query); !slices.Equal(got, want) {
		r.Errorf("%s:\n%s\nwant:\n%s", query, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (r *storyReader) rows(db *sql.DB, query string) (all []string) {
	r.Helper()
	rows, err := db.QueryContext(r.Context(), query)
	fixture.NoError(r.T, err)
	defer rows.Close()
	columns, err := rows.Columns()
	fixture.NoError(r.T, err)
	for rows.Next() {
		values, fields := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			fields[i] = &values[i]
		}
		fixture.NoError(r.T, rows.Scan(fields...))
		line := make([]string, len(columns))
		for i, v := range values {
			line[i] = v.String
		}
		all = append(all, strings.Join(line, " "))
	}
	fixture.NoError(r.T, rows.Err())
	return all
}

// one returns the only value of a query.
func (r *storyReader) one(db *sql.DB, query string) string {
	r.Helper()
	rows := r.rows(db, query)
	if len(rows) != 1 {
		r.Fatalf("%s: %d rows, want 1: %q", query, len(rows), rows)
	}
	return rows[0]
}

// topic returns the messages of a topic. place has what the outbox calls their receipt.
func (r *storyReader) topic(name string) (messages []storyMessage) {
	r.Helper()
	consumer, err := sarama.NewConsumerFromClient(r.client)
	fixture.NoError(r.T, err)
	defer consumer.Close()
	fixture.NoError(r.T, r.client.RefreshMetadata(r.prefix+name))
	partitions, err := r.client.Partitions(r.prefix + name)
	fixture.NoError(r.T, err)
	for _, p := range partitions {
		end, err := r.client.GetOffset(r.prefix+name, p, sarama.OffsetNewest)
		fixture.NoError(r.T, err)
		if end == 0 {
			continue
		}
		from, err := consumer.ConsumePartition(r.prefix+name, p, sarama.OffsetOldest)
		fixture.NoError(r.T, err)
		for range end {
			select {
			case m := <-from.Messages():
				at := storyMessage{
					place: fmt.Sprintf("%s/%d@%d", m.Topic, m.Partition, m.Offset), partition: p, offset: m.Offset,
					key: string(m.Key), value: string(m.Value), headers: map[string]string{},
				}
				for _, h := range m.Headers {
					at.headers[string(h.Key)] = string(h.Value)
				}
				messages = append(messages, at)
			case <-time.After(time.Minute):
				r.Fatalf("partition %d of %s has %d messages, which do not arrive", p, name, end)
			}
		}
		fixture.NoError(r.T, from.Close())
	}
	return messages
}

type storyMessage struct {
	place, key, value string
	partition         int32
	offset            int64
	headers           map[string]string
}

// copies counts the messages of a topic by the id of their event.
func (r *storyReader) copies(name string) map[string]int {
	r.Helper()
	counts := map[string]int{}
	for _, m := range r.topic(name) {
		counts[m.headers[core.HeaderEventID]]++
	}
	return counts
}

// unread returns how many messages of a partition a group has not acknowledged.
func (r *storyReader) unread(group, name string, partition int32) int64 {
	r.Helper()
	end, err := r.client.GetOffset(r.prefix+name, partition, sarama.OffsetNewest)
	fixture.NoError(r.T, err)
	answer, err := r.admin.ListConsumerGroupOffsets(r.prefix+group, map[string][]int32{r.prefix + name: {partition}})
	fixture.NoError(r.T, err)
	return end - max(answer.GetBlock(r.prefix+name, partition).Offset, 0)
}

// allRead expects that a group has acknowledged every message of a topic.
func (r *storyReader) allRead(group, name string) {
	r.Helper()
	for p := range int32(3) {
		if n := r.unread(group, name, p); n != 0 {
			r.Errorf("%s has %d unread messages in partition %d of %s", group, n, p, name)
		}
	}
}

// event returns the id of the only event of a quote in the outbox of the quote service.
func (r *storyReader) event(quote string) string {
	r.Helper()
	return r.one(r.quotes, "SELECT DISTINCT event_id FROM outbox_event WHERE aggregate_id = '"+quote+"'")
}

func (r *storyReader) orderOf(quote string) string {
	r.Helper()
	return r.one(r.orders, "SELECT id FROM customer_order WHERE tenant_id = 'acme' AND source_quote_id = '"+quote+"'")
}

// captured requires the rows that the capture of the usual quote leaves, once.
func (r *storyReader) captured(quote string) {
	r.Helper()
	id := r.orderOf(quote)
	r.want(r.orders, "SELECT line_no, sku, quantity, cents FROM order_line WHERE order_id = '"+id+"' ORDER BY line_no",
		"1 chair 3 4900", "2 table 1 19900")
	r.want(r.orders, "SELECT channel, idempotency_key FROM side_effect_command WHERE idempotency_key LIKE '%"+id+
		"%' ORDER BY 1, 2", "fulfilment "+id+":1", "fulfilment "+id+":2", "mail OrderCaptured:"+id+":ada@example.com")
	r.want(r.orders, "SELECT tenant_id, topic, partition_key FROM outbox_event WHERE event_type = 'OrderCaptured' AND "+
		"aggregate_id = '"+id+"'", "acme "+r.prefix+orderEvents+" order/"+id)
}
