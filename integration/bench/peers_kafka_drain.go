package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// drains measures the ways into Kafka from a backlog whose events were each committed in a
// transaction of their own. The own CPU is that of the relay's process, Java's with Debezium.
func (k *kafka) drains(ctx context.Context, ordered bool) error {
	name := map[bool]string{false: "unordered", true: "ordered"}[ordered]
	b, err := k.newBacklog(ctx, k.db, core.Postgres, "kafka_"+name+"_", ordered)
	if err != nil {
		return err
	}
	if err := k.exec(ctx, "CREATE TABLE "+b.prefix+"seed_log AS TABLE "+b.prefix+"seed",
		"UPDATE "+b.prefix+"seed_log SET status = 1, claimed_by = '"+core.LogReader+"', done_at = now()"); err != nil {
		return err
	}
	d := &kafkaDrain{kafka: k, backlog: b}
	relays := []drainer{
		{name: pollName, seed: func(ctx context.Context) error { return d.seed(ctx, false) }, drain: d.poll},
		{name: logName, seed: func(ctx context.Context) error { return d.seed(ctx, true) }, drain: d.log},
		{name: debeziumName, seed: func(ctx context.Context) error { return d.seed(ctx, true) }, drain: d.debezium},
	}
	if k.connect == nil {
		relays = relays[:2]
	}
	var all []competitor
	for _, r := range relays {
		r.check, r.ordered = d.check, ordered
		all = append(all, competitor{r.name, func(ctx context.Context) (figures, error) {
			java := k.connect.cpu()
			f, err := k.drainOnce(ctx, r)
			if r.name == debeziumName && err == nil {
				f["own CPU µs/event"] = float64((k.connect.cpu() - java).Microseconds()) / float64(k.opts.events)
			}
			return f, err
		}})
	}
	t := k.table("published to Kafka, "+name, "events/s", "÷ polling", "÷ Debezium", "own CPU µs/event",
		"PostgreSQL CPU µs/event", "WAL B/event")
	if err := k.compete(ctx, t, all); err != nil {
		return err
	}
	t.divideBy("÷ polling", "events/s", pollName)
	t.divideBy("÷ Debezium", "events/s", debeziumName)
	return nil
}

// kafkaDrain drains a backlog into a new topic.
type kafkaDrain struct {
	*kafka
	backlog *backlog
	topic   string
}

// seed inserts the backlog for a poller or for a reader of the log, each event in a transaction.
func (d *kafkaDrain) seed(ctx context.Context, forLog bool) (err error) {
	if d.topic, err = d.newTopic(ctx); err != nil {
		return err
	}
	event, key := d.backlog.prefix+"event", d.backlog.prefix+"key"
	seed := d.backlog.prefix + "seed"
	if err := d.dropSlot(ctx); err != nil {
		return err
	}
	if forLog {
		seed += "_log"
		if err := d.newSlot(ctx, d.backlog.prefix); err != nil {
			return err
		}
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, statement := range []string{
		"TRUNCATE " + event + ", " + key,
		"SET synchronous_commit = off", // only the drain is measured
		"DO $$ DECLARE at tid; BEGIN FOR at IN SELECT ctid FROM " + seed +
			" ORDER BY convert_from(substring(payload FROM 7 FOR 8), 'UTF8') LOOP INSERT INTO " + event +
			" (" + storedColumns + ") SELECT " + storedColumns + " FROM " + seed +
			" WHERE ctid = at; COMMIT; END LOOP; END $$",
		"RESET synchronous_commit",
		"INSERT INTO " + key + " SELECT * FROM " + d.backlog.prefix + "seed_key",
		"ANALYZE " + event + ", " + key,
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// publish runs drain with a publisher whose client has its connections already.
func (d *kafkaDrain) publish(ctx context.Context, drain func(to core.Publisher) (int, time.Duration, error),
) (finished int, took time.Duration, err error) {
	to, err := d.publisher(d.topic)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, to.Close(context.WithoutCancel(ctx))) }()
	warm, err := d.newTopic(ctx)
	if err != nil {
		return 0, 0, err
	}
	if err := (&toTopic{to.Publisher, warm}).Publish(ctx, warmUp()); err != nil {
		return 0, 0, err
	}
	return drain(to)
}

func warmUp() (d core.Delivery) {
	d.ID, d.Type, d.Payload = core.NewEventID(), benchType, newPayload(0)
	return d
}

func (d *kafkaDrain) poll(ctx context.Context, _ *ledger, limit time.Duration) (int, time.Duration, error) {
	return d.publish(ctx, func(to core.Publisher) (int, time.Duration, error) {
		return d.backlog.drainWith(ctx, patience*limit, core.Config{Repository: d.backlog.repo, Publisher: to})
	})
}

func (d *kafkaDrain) log(ctx context.Context, _ *ledger, limit time.Duration) (int, time.Duration, error) {
	return d.publish(ctx, func(to core.Publisher) (int, time.Duration, error) {
		open := func(o *core.Observer) (func(context.Context) error, error) {
			r, err := d.logRelay(d.backlog.prefix, core.Config{Publisher: to, Observer: o})
			if err != nil {
				return nil, err
			}
			return r.Run, nil
		}
		return drainUntil(ctx, d.opts.events, patience*limit, open)
	})
}

// patience is how many times as long a drain into Kafka may take.
const patience = 10

// debezium drains with a new connector. Its time is from the first event at Kafka to the last one:
// the start of a connector, some seconds, is left out.
func (d *kafkaDrain) debezium(ctx context.Context, _ *ledger, limit time.Duration,
) (finished int, took time.Duration, err error) {
	end, err := d.connect.add(ctx, d.backlog.prefix, d.slot(), d.topic)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	const pause = 10 * time.Millisecond
	var start time.Time
	ok, err := await(ctx, patience*limit+time.Minute, pause, func() (bool, error) {
		n, err := d.stored(ctx, d.topic)
		if n > finished && finished == 0 {
			start = time.Now()
		}
		finished = n
		return n >= d.opts.events || n > 0 && time.Since(start) > patience*limit, err
	})
	if err == nil && !ok {
		err = fmt.Errorf("no event came\n%s", d.connect.log())
	}
	return finished, time.Since(start) + pause, err // the events that the first look found took about one pause
}

// check reads the topic, and compares it with the table.
func (d *kafkaDrain) check(ctx context.Context, l *ledger, finished int) error {
	n, err := d.stored(ctx, d.topic)
	if err != nil {
		return err
	}
	stop, err := d.consume(d.topic, func(n int) { l.see(n) })
	if err != nil {
		return err
	}
	defer stop()
	ok, err := await(ctx, 2*time.Minute, 10*time.Millisecond, func() (bool, error) {
		return l.published.Load()+l.duplicates.Load()+l.alien.Load() >= int64(n), nil
	})
	if err == nil && (!ok || n < finished) {
		err = fmt.Errorf("%d of %d messages were read, %d events are finished", l.published.Load(), n, finished)
	}
	if err != nil {
		return err
	}
	return d.backlog.check(ctx, l, finished)
}
