package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/archive"
	"github.com/ormoutbox/ormoutbox/core/internal/cause"
	"github.com/ormoutbox/ormoutbox/core/internal/cleaner"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/problems"
	"github.com/ormoutbox/ormoutbox/core/internal/repeat"
	"github.com/ormoutbox/ormoutbox/core/once"
)

const topicPrefix = core.ServedTopicPrefix

// Topic returns the topic of the outbox events of a channel: "effect." and the channel. The Router
// of a relaying process must have the topic, and so must its outbox; [Worker.AddTo] adds it.
func Topic(channel string) string { return topicPrefix + channel }

// QueueConfig configures a Queue.
type QueueConfig struct {
	// Store of the effects: sqlcommand.New. Required.
	Store Store
	// Outbox in the same database: a core.Outbox, or the outbox of an adapter. It publishes the
	// events that wake a Worker. Required.
	Outbox interface {
		Publish(ctx context.Context, tx core.Tx, events ...core.Event) (ids []string, err error)
	}
	// Retention is how long completed and discarded effects are kept. After that, the same key may
	// be enqueued again. It must be longer than the time in which the caller of Enqueue may repeat
	// it. Default: 30 days, at least 1 s, at most once.MaxTTL.
	Retention time.Duration
	// Archive gets completed and discarded effects before Cleanup deletes them, at most 100 at
	// once, with payloads of at most core.ArchiveBytes unless a single one is larger. If it returns
	// an error or panics, they stay, Cleanup returns the error, and the next cleanup begins with
	// them. Effects may come again: after a crash, and if two processes clean up at once. An
	// archive must recognise them by their IDs. It must return when ctx ends, a minute after the
	// call at the latest. A call that has not returned a second later is abandoned, and no other
	// call begins until it returns. Default: none.
	Archive func(ctx context.Context, effects []Record) error
	// CleanupInterval is the pause between two cleanups in Run. CleanupBatch is how many effects
	// one statement deletes. Default: 10 min and 1000.
	CleanupInterval time.Duration
	CleanupBatch    int
	// Logger gets a warning for each cleanup of Run that failed. Default: core.DefaultLogger, which
	// writes warnings and errors to slog.Default(). To silence it: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
}

func (c QueueConfig) withDefaults() QueueConfig {
	c.Retention = cmp.Or(c.Retention, defaultTTL)
	c.CleanupInterval = cmp.Or(c.CleanupInterval, 10*time.Minute)
	c.CleanupBatch = cmp.Or(c.CleanupBatch, 1000)
	c.Logger = cmp.Or(c.Logger, core.DefaultLogger()).With("component", "command")
	return c
}

// Validate reports every problem of c at once. [NewQueue] calls it.
func (c QueueConfig) Validate() error {
	c = c.withDefaults()
	bad := problems.List{Of: "command: config: "}
	bad.If(c.Store == nil, "Store is missing")
	ob, own := c.Outbox.(*core.Outbox)
	bad.If(c.Outbox == nil || own && ob == nil,
		"Outbox is missing (a GORM plugin has one after db.Use)")
	bad.If(c.Retention < time.Second || c.Retention > once.MaxTTL,
		"Retention %s is not between 1s and %s", c.Retention, once.MaxTTL)
	_, archives := c.Store.(Archiver)
	bad.If(c.Archive != nil && c.Store != nil && !archives,
		"Archive needs a Store that is an Archiver, and a %T is none", c.Store)
	bad.If(c.CleanupInterval < 0, "CleanupInterval %s is negative", c.CleanupInterval)
	bad.If(c.CleanupBatch < 0, "CleanupBatch %d is negative", c.CleanupBatch)
	return bad.Err()
}

// Queue writes effects, and lists, redrives and discards them for operators. Create it with
// NewQueue. It is safe for use by several goroutines.
type Queue struct {
	cfg     QueueConfig
	cleaner *cleaner.Cleaner[Record]
}

// NewQueue returns a Queue, or an error that names every problem of cfg.
func NewQueue(cfg QueueConfig) (*Queue, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Queue{cfg: cfg.withDefaults(), cleaner: cleaner.New("QueueConfig.Archive", cfg.Archive)}, nil
}

// Enqueue writes an effect in the transaction, with the event that wakes a Worker after the commit.
// If tx is nil, Enqueue uses ctx's transaction. An effect with the same tenant, channel and key is
// not written again: added is then false, and the record is the earlier effect. The record of a new
// effect has only its Effect.
//
// Errors: core.ErrNoTransaction, once.ErrInvalidRequest, once.ErrFingerprintMismatch if the earlier
// effect has another payload, errors of the outbox such as core.ErrNoRoute, and core.ErrTxAborted.
// After an error the caller must roll the transaction back.
func (q *Queue) Enqueue(ctx context.Context, tx core.Tx, e Effect) (rec Record, added bool, err error) {
	if tx, err = open(ctx, tx); err != nil {
		return Record{}, false, err
	}
	by := cause.Of(ctx)
	e.EventID, e.CorrelationID = cmp.Or(e.EventID, by.ID), cmp.Or(e.CorrelationID, by.Chain)
	if err := e.Validate(); err != nil {
		return Record{}, false, err
	}
	e.ID = core.NewEventID()
	rec, added, err = q.cfg.Store.EnqueueTx(ctx, tx, e)
	if err != nil {
		return Record{}, false, errtext.Errorf("command: enqueue: %w", err)
	}
	if !added {
		return rec, false, nil
	}
	if err := q.wake(ctx, tx, e.ID, e); err != nil {
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

// wake publishes the event that wakes a Worker. The event has only the id of the row of the effect.
// The first one has it as its own id too, so that what the effect causes leads to this event, and
// from there to what caused the effect.
func (q *Queue) wake(ctx context.Context, tx core.Tx, id string, e Effect) error {
	topic := Topic(e.Channel)
	ctx = cause.With(ctx, cause.Cause{ID: e.EventID, Chain: e.CorrelationID})
	_, err := q.cfg.Outbox.Publish(ctx, tx, core.Event{
		ID: id, Type: topic, Topic: topic, TenantID: e.Tenant, AggregateType: "effect", AggregateID: e.ID,
		Unordered: true,
		Delay:     e.Delay, Payload: []byte{},
	})
	if err != nil {
		return errtext.Errorf("command: wake up the worker: %w", err)
	}
	return nil
}

// Find returns the effect of a tenant, channel and key, or an error wrapping [ErrNoEffect].
func (q *Queue) Find(ctx context.Context, tenant, channel, key string) (Record, error) {
	return q.cfg.Store.Find(ctx, tenant, channel, key)
}

// List returns effects of one status, oldest first. StatusDead selects the effects that wait for a
// person.
func (q *Queue) List(ctx context.Context, query Query) ([]Record, error) {
	return q.cfg.Store.List(ctx, query)
}

// Dead returns the dead effects of a channel, oldest first. The channel "" stands for all channels.
// It returns at most 1000: use List to page.
func (q *Queue) Dead(ctx context.Context, channel string) ([]Record, error) {
	return q.cfg.Store.List(ctx, Query{Status: StatusDead, Channel: channel, Limit: 1000})
}

// backlogLimit is the limit of the counts of Backlog.
const backlogLimit = 100_000

// Backlog returns, by the name of the channel, the backlog of each channel with effects that are
// not completed: how many are pending and dead, and how long the oldest has been due. Counts stop
// at 100,000. Alert on OldestAge and on Dead: the backlog of the outbox does not show an effect
// that no event wakes up.
func (q *Queue) Backlog(ctx context.Context) ([]Backlog, error) {
	list, err := q.cfg.Store.Backlog(ctx, backlogLimit)
	if err != nil {
		return nil, errtext.Errorf("command: backlog: %w", err)
	}
	return list, nil
}

// Redrive makes a dead effect pending again with fresh attempts, in the transaction. Redrive also
// has an effect executed at once that is not completed and that no event will wake up. [Worker.Run]
// would wait for OverdueAfter before it executes such an effect. If tx is nil, Redrive uses the
// transaction that ctx carries. Actor and reason are kept with the effect. If the effect is
// completed, discarded or being executed, Redrive returns false and changes nothing.
func (q *Queue) Redrive(ctx context.Context, tx core.Tx, id, actor, reason string) (redriven bool, err error) {
	if tx, err = open(ctx, tx); err != nil {
		return false, err
	}
	note, err := noteOf(id, actor, reason)
	if err != nil {
		return false, err
	}
	rec, redriven, err := q.cfg.Store.RedriveTx(ctx, tx, id, note)
	if err != nil {
		return false, errtext.Errorf("command: redrive: %w", err)
	}
	if !redriven {
		return false, nil
	}
	return true, q.wake(ctx, tx, "", rec.Effect)
}

// Discard ends a dead effect, in the transaction: it is never executed, and Redrive does
// not change it. An effect that is enqueued with the same tenant, channel and key is not written
// again, until Cleanup deletes this one after Retention. If tx is nil, Discard uses the transaction
// that ctx carries. Actor and reason are kept with the effect. If the effect is not dead, Discard
// returns false and changes nothing.
func (q *Queue) Discard(ctx context.Context, tx core.Tx, id, actor, reason string) (discarded bool, err error) {
	if tx, err = open(ctx, tx); err != nil {
		return false, err
	}
	note, err := noteOf(id, actor, reason)
	if err != nil {
		return false, err
	}
	if discarded, err = q.cfg.Store.DiscardTx(ctx, tx, id, note); err != nil {
		return false, errtext.Errorf("command: discard: %w", err)
	}
	return discarded, nil
}

// noteOf returns a row's note of a person's request, or an error that names what the request lacks.
func noteOf(id, actor, reason string) (string, error) {
	if id == "" || strings.TrimSpace(actor) == "" || strings.TrimSpace(reason) == "" {
		return "", fmt.Errorf("%w: id, actor and reason are required", once.ErrInvalidRequest)
	}
	return actor + ": " + reason, nil
}

// Cleanup deletes effects that were completed or discarded longer than Retention ago, chunk by
// chunk, and returns how many it deleted. An effect that is dead, or waits to be executed, is never
// deleted.
func (q *Queue) Cleanup(ctx context.Context) (deleted int, err error) {
	for {
		n, more, err := q.cleaner.Some(ctx, q.cfg.CleanupBatch,
			func(limit int) (int, error) { return q.cfg.Store.Cleanup(ctx, q.cfg.Retention, limit) },
			func(limit int, fn func(context.Context, []Record) error) (int, error) {
				return q.cfg.Store.(Archiver).Archive(ctx, q.cfg.Retention, limit, fn)
			})
		deleted += n
		if err != nil {
			return deleted, errtext.Errorf("command: clean up: %w", err)
		}
		if !more {
			return deleted, nil
		}
	}
}

// Run cleans up every CleanupInterval until ctx ends; then it returns nil. An error of the store or
// of the archive goes to the Logger and does not end Run. One process that runs it is enough;
// several may.
func (q *Queue) Run(ctx context.Context) error {
	for {
		// the next cleanup deletes the rest
		if _, err := q.Cleanup(ctx); err != nil && (ctx.Err() == nil || errors.Is(err, archive.ErrStuck)) {
			q.cfg.Logger.WarnContext(ctx, "command: cleanup of effects failed, it is tried again later", "error",
				errorText(err))
		}
		if !repeat.Sleep(ctx, q.cfg.CleanupInterval) {
			return nil
		}
	}
}
