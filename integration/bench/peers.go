package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
)

// runPeers shows other programs that empty an outbox, beside this one: watermill-sql's Forwarder
// and River, which publish to nothing, and Debezium, which publishes to Kafka.
func runPeers(ctx context.Context, e *env) (err error) {
	pool, err := openPGX(ctx, e.config, false)
	if err != nil {
		return err
	}
	defer pool.Close()
	b, err := e.newBacklog(ctx, e.db, core.Postgres, "peers_", false)
	if err != nil {
		return err
	}
	hand := &handRelay{pool: pool, table: b.prefix + "event"}
	relays := []drainer{b.relay(oursName, b.drain), b.relay(handName, hand.drain)}
	for _, open := range []func(context.Context, *env, *pgxpool.Pool) ([]drainer, error){newWatermill, newRiver} {
		both, err := open(ctx, e, pool)
		if err != nil {
			return err
		}
		relays = append(relays, both...)
	}
	t := e.table("published to nothing", "events/s", "÷ hand-written", "CPU µs/event", "WAL B/event", "finished")
	if err := e.drains(ctx, t, relays, 0); err != nil || e.opts.kafka == "" {
		return err
	}

	k, err := e.openKafka(ctx, pool)
	if k != nil {
		defer func() { err = errors.Join(err, k.close(ctx)) }()
	}
	if err != nil {
		return err
	}
	for _, ordered := range []bool{false, true} {
		if err := k.drains(ctx, ordered); err != nil {
			return err
		}
	}
	t = e.table("commit to a consumer of Kafka", "p50 µs", "p99 µs")
	var all []competitor
	for _, c := range []struct {
		name string
		open func(ctx context.Context, topic string) (*wakeSide, func() error, error)
	}{
		{"ormoutbox, in the service: fast path", k.inService},
		{pollName + ", in another process, woken", k.woken},
		{logName, k.byLog},
		{debeziumName, k.byDebezium},
	} {
		if c.name == debeziumName && k.connect == nil {
			continue
		}
		all = append(all, competitor{c.name, func(ctx context.Context) (figures, error) {
			return k.latency(ctx, c.open)
		}})
	}
	return e.compete(ctx, t, all)
}
