package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Names of competitors of this section; the kind of the events follows.
const (
	logRaw       = "raw franz-go"
	logAlone     = "raw franz-go in franzbridge, 1,024 at once"
	logPollKafka = "ormoutbox, polling, kafkabridge"
	logPollFranz = "ormoutbox, polling, franzbridge"
	logPollNone  = "ormoutbox, polling, a publisher that does nothing"
	logFranz     = "ormoutbox, log, franzbridge"
	logNone      = "ormoutbox, log, a publisher that does nothing"
	logReceived  = "pg_recvlogical, which writes a file"
	logDebezium  = "Debezium"
)

// logSlot ends the name of the slot, after the name of the database. Competitors use it in turns.
const logSlot = "_log"

var logColumns = []Column{
	{"events/s", Count},
	{"÷ raw franz-go", Ratio},
	{"relay CPU µs/event", Count},
	{"PostgreSQL CPU µs/event", Count},
	{"WAL B/event, insert", Count},
	{"WAL B/event, relay", Count},
	{"finished", Percent},
}

// logSection has the things that the competitors share.
type logSection struct {
	*env

	pool    *pgxpool.Pool
	kafka   *kafkaBroker // its bridge is kafkabridge
	franz   franzBroker
	connect *connect // nil if Debezium takes no part
}

func runLog(ctx context.Context, e *env, s *Section) (err error) {
	address := os.Getenv("OUTBOX_TEST_KAFKA")
	if address == "" {
		s.note("This section is left out, because OUTBOX_TEST_KAFKA names no server.")
		return nil
	}
	events := min(brokerEvents, e.opts.Events)
	s.note("A backlog of %s events of %d bytes, each committed in a transaction of its own, is published to Kafka. "+
		"Relays have the default configuration; kafkabridge has %d workers. All replicas in sync acknowledge.",
		thousands(float64(events)), payloadSize, logWorkers)
	s.note("Raw franz-go is the limit: the same messages are made before the measurement, and one loop hands them to "+
		"the client, without a table, without a wait for earlier ones of a key, and with up to %s at once. In "+
		"franzbridge it has as many at once as the relays, and waits for earlier ones of a key.",
		thousands(rawAtOnce))
	s.note("pg_recvlogical is the limit of the log: PostgreSQL's own program reads the same slot and publication, " +
		"and writes what comes to a file. The server decodes a slot in one process.")
	s.note("Ordered: %s keys. The relays send an event when the one before it in its key is acknowledged. "+
		"Debezium and the raw client need not wait: they send everything in one order and stop at an error.",
		thousands(drainKeys))
	s.note("The content of Kafka is compared with the table after each drain: nothing is lost, nothing came twice, " +
		"and keys are in order. CPU of the relay is that of its process, with its client of Kafka. WAL is what the " +
		"inserts wrote, and what the relay wrote on top.")
	if e.opts.debezium == "" {
		s.note("Debezium is left out, because -debezium names no folder.")
	} else {
		s.note("Debezium has the connector of its page and Kafka Connect's defaults, in one process of Java for all " +
			"rounds, with 1 GiB. Its time is from the first event at Kafka to the last one: the start of a " +
			"connector, some seconds, is left out.")
	}
	l, err := openLogSection(ctx, e, address)
	if l != nil {
		defer func() { err = errors.Join(err, l.close(ctx)) }()
	}
	if err != nil {
		return err
	}
	for _, ordered := range []bool{false, true} {
		b, err := newBrokerBacklog(ctx, e, "log_", ordered, events)
		if err != nil {
			return err
		}
		if err := l.measure(ctx, s, b); err != nil {
			return err
		}
	}
	return l.measureLatency(ctx, s)
}

// openLogSection opens a logSection. The caller closes it, also after an error.
func openLogSection(ctx context.Context, e *env, address string) (l *logSection, err error) {
	l = &logSection{env: e}
	if l.pool, err = e.openPGX(ctx); err != nil {
		return l, err
	}
	k, err := openKafka(ctx, address, e.name+"_log")
	if err != nil {
		return l, fmt.Errorf("kafka: %w (is the server up? `make services-up`)", err)
	}
	l.kafka = k.(*kafkaBroker)
	f, err := openFranz(ctx, address, e.name+"_log")
	if err != nil {
		return l, err
	}
	l.franz = f.(franzBroker)
	if e.opts.debezium != "" && e.opts.selects(logDebezium) {
		e.progress.show("starting Kafka Connect")
		l.connect, err = startConnect(ctx, e, address)
	}
	return l, err
}

func (l *logSection) close(ctx context.Context) (err error) {
	ctx = context.WithoutCancel(ctx)
	if l.connect != nil {
		err = errors.Join(err, l.connect.close())
	}
	err = errors.Join(err, l.dropSlot(ctx))
	if l.pool != nil {
		l.pool.Close()
	}
	if l.kafka != nil {
		err = errors.Join(err, l.kafka.close())
	}
	if l.franz.kafkaBroker != nil {
		err = errors.Join(err, l.franz.close())
	}
	return err
}

func (l *logSection) slot() string { return l.name + logSlot }

// dropSlot deletes the slot as soon as no process reads it.
func (l *logSection) dropSlot(ctx context.Context) error {
	const drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 " +
		"AND NOT active"
	const count = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1"
	ok, err := await(ctx, 20*time.Second, 20*time.Millisecond, func() (bool, error) {
		_, _ = l.db.ExecContext(ctx, drop, l.slot()) // the slot may be in use again
		n, err := l.count(ctx, count, l.slot())
		return n == 0, err
	})
	if err == nil && !ok {
		err = fmt.Errorf("slot %s is in use", l.slot())
	}
	return err
}

// logCompetitor is a competitor of this section.
type logCompetitor struct {
	relay

	inserted int64                // bytes of the log that the inserts wrote
	process  func() time.Duration // CPU time of the relay's process; nil: this one
}

func (l *logSection) measure(ctx context.Context, s *Section, b *brokerBacklog) (err error) {
	var all []*logCompetitor
	competitors, closeAll, err := l.competitors(ctx, b)
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return err
	}
	t := &Table{Title: "Backlog, " + b.kind, Columns: logColumns}
	for _, c := range competitors {
		if l.opts.selects(c.name) {
			all = append(all, c)
			t.row(c.name, l.opts.Rounds)
		}
	}
	if len(all) == 0 {
		return nil
	}
	s.Tables = append(s.Tables, t)
	err = interleave(l.opts.Rounds, len(all), func(round, i int) error {
		c, row := all[i], t.Rows[i]
		l.progress.show("log, round %d of %d: %s", round+1, l.opts.Rounds, c.name)
		d, err := l.timeDrain(ctx, c.relay, b.events)
		if err != nil {
			return err
		}
		n := float64(max(1, d.finished))
		t.set(row, round, "events/s", d.rate())
		t.set(row, round, "finished", 100*float64(d.finished)/float64(b.events))
		relayed := d.to.self - d.from.self
		server := d.to.cpu - d.from.cpu - relayed
		if c.process != nil {
			relayed = c.process()
		}
		t.set(row, round, "relay CPU µs/event", float64(relayed.Microseconds())/n)
		if !strings.HasPrefix(c.name, logRaw) {
			t.set(row, round, "WAL B/event, insert", float64(c.inserted)/float64(b.events))
			t.set(row, round, "WAL B/event, relay", float64(d.to.wal-d.from.wal)/n)
			if d.from.cpu >= 0 && d.to.cpu >= 0 {
				t.set(row, round, "PostgreSQL CPU µs/event", float64(server.Microseconds())/n)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.divide("÷ raw franz-go", "events/s", func(*Row) *Row { return t.find(b.row(logRaw)) })
	t.summarize()
	s.atLeast(t.value(b.row(logFranz), "÷ raw franz-go"), 0.7, "log, franzbridge, %s: at least 0.70 × raw franz-go",
		b.kind)
	s.atLeast(medianRatio(t, "events/s", b.row(logFranz), b.row(logPollFranz)), 1,
		"log, franzbridge, %s: at least as fast as polling", b.kind)
	s.atLeast(medianRatio(t, "events/s", b.row(logFranz), b.row(logDebezium)), 1,
		"log, franzbridge, %s: at least as fast as Debezium", b.kind)
	return nil
}
