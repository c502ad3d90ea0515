package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Outbox is where a Queue puts the events that wake up a Worker: a core.Outbox, or that of an
// adapter.
type Outbox interface {
	Publish(ctx context.Context, tx core.Tx, events ...core.Event) (ids []string, err error)
}

const topicPrefix = core.ServedTopicPrefix

// Topic is the topic of the outbox events of a channel: "effect." and the channel. Outbox and
// Router of a process that relays must know it; Worker.AddTo sees to that.
func Topic(channel string) string { return topicPrefix + channel }

// QueueConfig says where effects are written.
type QueueConfig struct {
	// Store of the effects: sqlcommand.New. Required.
	Store Store
	// Outbox in the same database. Required.
	Outbox Outbox
	// Retention is how long completed effects are kept: after that, the same key may be enqueued
	// again. It must be longer than what enqueues them may be repeated. Default: 30 days, at least
	// 1 s, at most once.MaxTTL.
	Retention time.Duration
	// CleanupInterval is the pause between two cleanups in Run, CleanupBatch how many effects one
	// statement deletes. Default: 10 min and 1000.
	CleanupInterval time.Duration
	CleanupBatch    int
}

func (c QueueConfig) withDefaults() QueueConfig {
	def(&c.Retention, defaultTTL)
	def(&c.CleanupInterval, 10*time.Minute)
	def(&c.CleanupBatch, 1000)
	return c
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Validate reports every problem of c at once. NewQueue calls it.
func (c QueueConfig) Validate() error {
	c = c.withDefaults()
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("command: config: "+format, args...))
	}
	if c.Store == nil {
		bad("Store is missing")
	}
	if ob, ok := c.Outbox.(*core.Outbox); c.Outbox == nil || ok && ob == nil {
		bad("Outbox is missing (that of a GORM plugin is there after db.Use)")
	}
	if c.Retention < time.Second || c.Retention > once.MaxTTL {
		bad("Retention %s is not between 1s and %s", c.Retention, once.MaxTTL)
	}
	if c.CleanupInterval < 0 {
		bad("CleanupInterval %s is negative", c.CleanupInterval)
	}
	if c.CleanupBatch < 0 {
		bad("CleanupBatch %d is negative", c.CleanupBatch)
	}
	return errors.Join(problems...)
}

// Queue writes effects, and lets people look after them. Make it with NewQueue; it is safe for use
// by several goroutines.
type Queue struct{ cfg QueueConfig }

// NewQueue returns a Queue, or every problem of cfg at once.
func NewQueue(cfg QueueConfig) (*Queue, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Queue{cfg: cfg.withDefaults()}, nil
}

// Enqueue writes an effect in the transaction, with the event that has it executed after the
// commit. A nil tx stands for the one that ctx carries. An effect of the same tenant, channel and
// key is not written again: then added is false, and the record says how far the earlier one is.
// The record of a new one has only its Effect.
//
// Errors, after which the caller rolls the transaction back: core.ErrNoTransaction,
// once.ErrInvalidRequest, once.ErrFingerprintMismatch when the earlier one has another payload,
// those of the outbox such as core.ErrNoRoute, and core.ErrTxAborted.
func (q *Queue) Enqueue(ctx context.Context, tx core.Tx, e Effect) (rec Record, added bool, err error) {
	if tx, err = open(ctx, tx); err != nil {
		return Record{}, false, err
	}
	if err := e.Validate(); err != nil {
		return Record{}, false, err
	}
	e.ID = core.NewEventID()
	rec, added, err = q.cfg.Store.EnqueueTx(ctx, tx, e)
	if err != nil {
		return Record{}, false, fmt.Errorf("command: enqueue: %w", err)
	}
	if !added {
		return rec, false, nil
	}
	if err := q.wake(ctx, tx, e); err != nil {
		return Record{}, false, err
	}
	return rec, true, nil
}

func open(ctx context.Context, tx core.Tx) (core.Tx, error) {
	if tx == nil {
		var ok bool
		if tx, ok = core.TxFromContext(ctx); !ok {
			return nil, core.ErrNoTransaction
		}
	}
	return tx, tx.Err()
}

// wake publishes the event that has the effect executed: it names the row and carries nothing else.
func (q *Queue) wake(ctx context.Context, tx core.Tx, e Effect) error {
	topic := Topic(e.Channel)
	_, err := q.cfg.Outbox.Publish(ctx, tx, core.Event{
		Type: topic, Topic: topic, TenantID: e.Tenant, AggregateType: "effect", AggregateID: e.ID, Unordered: true,
		Delay: e.Delay, Payload: []byte{},
	})
	if err != nil {
		return fmt.Errorf("command: wake up the worker: %w", err)
	}
	return nil
}

// Find returns the effect of a tenant, channel and key, or an error wrapping ErrNoEffect.
func (q *Queue) Find(ctx context.Context, tenant, channel, key string) (Record, error) {
	return q.cfg.Store.Find(ctx, tenant, channel, key)
}

// List returns effects of one status, oldest first: StatusDead for those that wait for a
// person.
func (q *Queue) List(ctx context.Context, query Query) ([]Record, error) {
	return q.cfg.Store.List(ctx, query)
}

// Parked returns the effects of a channel that wait for a person, oldest first; of all channels for
// "". At most 1000: use List to page.
func (q *Queue) Parked(ctx context.Context, channel string) ([]Record, error) {
	return q.cfg.Store.List(ctx, Query{Status: StatusDead, Channel: channel, Limit: 1000})
}

// backlogLimit is where the counts of Backlog stop.
const backlogLimit = 100_000

// Backlog says how each channel stands that has effects that are not completed, by the name of the
// channel: how many are pending and parked, and for how long the oldest of them has been due.
// Counts stop at 100,000. Alert on OldestAge, and on Parked: the backlog of the outbox does not
// show an effect that no event wakes up.
func (q *Queue) Backlog(ctx context.Context) ([]Backlog, error) {
	list, err := q.cfg.Store.Backlog(ctx, backlogLimit)
	if err != nil {
		return nil, fmt.Errorf("command: backlog: %w", err)
	}
	return list, nil
}

// Release has an effect executed again that is parked, with fresh attempts, in the transaction. It
// also has one executed at once that is not completed but that no event will wake up again, for
// which Worker.Run waits for OverdueAfter. A nil tx stands for the one that ctx carries. Who and
// why are kept with the effect. It reports false for one that is completed or is being executed,
// and changes nothing then.
func (q *Queue) Release(ctx context.Context, tx core.Tx, id, actor, reason string) (released bool, err error) {
	if tx, err = open(ctx, tx); err != nil {
		return false, err
	}
	if id == "" || strings.TrimSpace(actor) == "" || strings.TrimSpace(reason) == "" {
		return false, fmt.Errorf("%w: id, actor and reason are required", core.ErrInvalidRequest)
	}
	rec, released, err := q.cfg.Store.ReleaseTx(ctx, tx, id, actor+": "+reason)
	if err != nil {
		return false, fmt.Errorf("command: release: %w", err)
	}
	if !released {
		return false, nil
	}
	return true, q.wake(ctx, tx, rec.Effect)
}

// Cleanup deletes effects that were completed longer than Retention ago, chunk by chunk, and
// returns how many.
func (q *Queue) Cleanup(ctx context.Context) (deleted int, err error) {
	for {
		n, err := q.cfg.Store.Cleanup(ctx, q.cfg.Retention, q.cfg.CleanupBatch)
		deleted += n
		if err != nil {
			return deleted, fmt.Errorf("command: clean up: %w", err)
		}
		if n < q.cfg.CleanupBatch {
			return deleted, nil
		}
	}
}

// Run cleans up every CleanupInterval until ctx ends; then it returns nil. An error of the store is
// no reason to stop. One process that runs it is enough, and more do no harm.
func (q *Queue) Run(ctx context.Context) error {
	for {
		_, _ = q.Cleanup(ctx) // the next one deletes what this one did not
		if !sleep(ctx, q.cfg.CleanupInterval) {
			return nil
		}
	}
}

// sleep reports whether ctx is still good after d.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
