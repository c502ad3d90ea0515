package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/archive"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// ListDead returns the dead events of this consumer. The events that were received first come
// first. It takes the consumer of the Inbox, not q.Consumer.
func (in *Inbox) ListDead(ctx context.Context, q DeadQuery) ([]DeadEvent, error) {
	q.Consumer = in.cfg.Consumer
	return in.cfg.Store.ListDead(ctx, q)
}

// backlogLimit is the limit of the counts of Inbox.Backlog.
const backlogLimit = 100_000

// Backlog returns the failures of the handlers of every consumer in the tables, for metrics: see
// WatchInbox of packages metrics, promoutbox and oteloutbox. Alert on Dead. Counts stop at 100,000
// of each consumer and status. The error wraps errors.ErrUnsupported if the Store is no [Desk].
func (in *Inbox) Backlog(ctx context.Context) ([]Backlog, error) {
	desk, ok := in.cfg.Store.(Desk)
	if !ok {
		return nil, fmt.Errorf("inbox: the Store %T is no Desk: %w", in.cfg.Store, errors.ErrUnsupported)
	}
	return desk.Backlog(ctx, backlogLimit)
}

// Redrive lets dead events, as ListDead returns their keys, be processed, with fresh attempts, when
// their messages are delivered again: from the dead-letter queue, or by a replay. Redrive itself
// delivers nothing, because the inbox does not have the payload. The row keeps actor, who asks, and
// reason until the delivery. Redrive returns how many events changed; the others were not dead. A
// request that lacks keys, actor or reason, or that has a key of another consumer, is refused with
// an error wrapping [ErrInvalidRequest].
//
// [Config.Cache] forgets the events first. If it cannot, Redrive changes nothing and returns its
// error, because a message that the cache answers is not processed. Give the Inbox that redrives
// the Cache of the consumers: see Cache.
func (in *Inbox) Redrive(ctx context.Context, keys []Key, actor, reason string) (changed int, err error) {
	if err := in.own(keys); err != nil {
		return 0, err
	}
	if in.cfg.Cache != nil && len(keys) > 0 {
		names := make([]string, len(keys))
		for n, k := range keys {
			names[n] = cacheKey(k)
		}
		if err := in.cfg.Cache.Forget(ctx, names...); err != nil {
			return 0, errtext.Errorf("inbox: nothing was redriven: the cache did not forget the events: %w", err)
		}
	}
	return in.cfg.Store.Redrive(ctx, keys, actor, reason)
}

// Discard ends dead events: they are never processed. When the message of one is delivered again,
// it is acknowledged and not handled: the Result is Ack with the Outcome Duplicate, as for an event
// that was processed. The event is dead no longer, Redrive does not change it, and Cleanup deletes
// it after [Config.Retention]. Until then its row keeps actor and reason. Discard returns how many
// events changed; the others were not dead. An incomplete request, or one with a key of another
// consumer, is refused with an error wrapping [ErrInvalidRequest].
//
// [Config.Cache] is left alone: an entry for the event gives the same answer as the table does from
// now on, and without an entry the table is asked.
func (in *Inbox) Discard(ctx context.Context, keys []Key, actor, reason string) (changed int, err error) {
	if err := in.own(keys); err != nil {
		return 0, err
	}
	return in.cfg.Store.Discard(ctx, keys, actor, reason)
}

// own refuses keys of another consumer.
func (in *Inbox) own(keys []Key) error {
	for _, k := range keys {
		if k.Consumer != in.cfg.Consumer {
			return fmt.Errorf("%w: key of consumer %q, this is %q", ErrInvalidRequest, k.Consumer, in.cfg.Consumer)
		}
	}
	return nil
}

// errUnchanged rolls the transaction of State back.
var errUnchanged = errors.New("inbox: nothing to commit")

// State returns the state of an event: StateProcessed (also after Discard), StateDead,
// StateInProgress, or StateFresh if Process would run the handler: the event is not known, has
// failed and is not dead, or was redriven. While a process works on the event, State waits for its
// end. It leaves the table as it is, and does not ask the Cache. A key of another consumer is
// refused with an error wrapping [ErrInvalidRequest].
func (in *Inbox) State(ctx context.Context, k Key) (state State, err error) {
	if err := in.own([]Key{k}); err != nil {
		return 0, err
	}
	if _, ok := core.TxFromContext(ctx); ok {
		return 0, ErrInTransaction
	}
	err = sqltx.RetryTx(ctx, in.cfg.Transactor, func(ctx context.Context, tx core.Tx) (err error) {
		if state, _, err = in.cfg.Store.Begin(ctx, tx, Event{Key: k}); err == nil {
			err = errUnchanged
		}
		return err
	})
	if errors.Is(err, errUnchanged) {
		return state, nil
	}
	return 0, errtext.Errorf("inbox: state of event %q: %w", k.EventID, err)
}

const cleanupBatch = 1000

// errForever is returned if Cleanup and Run have nothing to do.
var errForever = errors.New("inbox: Config.Retention is negative: everything is kept for ever")

// Cleanup deletes, in chunks, the processed and the discarded events and the keys of OnlyNewer of
// this consumer that are older than [Config.Retention]. It returns how many it deleted. Rows of
// failed and dead events stay. Any number of processes may call it at once. [Config.Archive] gets
// the events first: if it fails for a handler, the events of that handler stay, and the error names
// the handler.
func (in *Inbox) Cleanup(ctx context.Context) (deleted int, err error) {
	if in.cfg.Retention < 0 {
		return 0, errForever
	}
	in.cleaned.Store(time.Now().UnixNano())
	for _, some := range []func(context.Context) (int, bool, error){in.cleanSome, in.cleanKeys} {
		n, problem := in.cleanAll(ctx, some)
		deleted += n
		err = errors.Join(err, problem)
	}
	return deleted, err
}

// cleanAll cleans up until nothing is left that it can delete. An archive that fails for a handler
// stops neither the others nor the keys.
func (in *Inbox) cleanAll(ctx context.Context, some func(context.Context) (int, bool, error)) (deleted int, err error) {
	for {
		n, more, problem := some(ctx)
		in.obs.Cleaned(n, problem)
		if deleted += n; problem != nil {
			err = problem
		}
		if !more || problem != nil && n == 0 || ctx.Err() != nil {
			return deleted, err
		}
	}
}

// Run calls Cleanup now and every [Config.CleanupInterval] until ctx ends, and then returns nil. The
// Observer and the Logger get each error of Cleanup, and Run tries again. With a negative
// [Config.Retention] it returns an error at once.
func (in *Inbox) Run(ctx context.Context) error {
	if in.cfg.Retention < 0 {
		return errForever
	}
	tick := time.NewTicker(in.cfg.CleanupInterval)
	defer tick.Stop()
	for {
		_, err := in.Cleanup(ctx)
		in.warnOfCleanup(ctx, err)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// warnOfCleanup logs the error of Cleanup.
func (in *Inbox) warnOfCleanup(ctx context.Context, err error) {
	if err != nil && (ctx.Err() == nil || errors.Is(err, archive.ErrStuck)) {
		in.cfg.Logger.Warn("inbox: cleanup failed", "error", err)
	}
}

const cleanupPatience = time.Minute // for a cleanup without Run

// cleanBeside cleans up beside a message that was processed, if nothing has cleaned up for
// CleanupInterval. So ids are deleted also if Run is not called. Nobody waits for that cleanup, so
// a program that ends may close the pool meanwhile. The next one deletes the rest.
func (in *Inbox) cleanBeside() {
	last, now := in.cleaned.Load(), time.Now()
	if in.cfg.Retention < 0 || now.Sub(time.Unix(0, last)) < in.cfg.CleanupInterval ||
		!in.cleaned.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupPatience)
		defer cancel()
		if _, err := in.Cleanup(ctx); !sqlerr.PoolClosed(err) {
			in.warnOfCleanup(ctx, err)
		}
	}()
}

// ArchivedEvent is an event that [Config.Archive] gets before [Inbox.Cleanup] deletes it. The inbox
// has no payloads.
type ArchivedEvent struct {
	Key Key
	// Source is where the message was read: topic/partition/offset, or the topic alone. Empty: the
	// message did not carry it.
	Source string
	// Attempts is how often the event was tried.
	Attempts int
	// EndedAt is when the event was processed or discarded, by the clock of the database.
	EndedAt time.Time
	// Discarded: a person ended the event, and no handler processed it. Note is the actor and the
	// reason, as "ada: sent twice by mistake".
	Discarded bool
	Note      string
}

// Archiver is implemented by a Store that can show events before it deletes them. New refuses
// [Config.Archive] without it.
type Archiver interface {
	// Archive passes fn at most limit events that Cleanup would delete, and deletes them if fn
	// returns nil. It returns how many it deleted. fn is called for each handler: if fn fails, the
	// events of that handler stay, and the other handlers' events go. No transaction is open while
	// fn runs.
	Archive(ctx context.Context, consumer string, keep time.Duration, limit int,
		fn func(ctx context.Context, events []ArchivedEvent) error) (deleted int, err error)
}

// cleanSome deletes a batch of events, and reports whether there may be more.
func (in *Inbox) cleanSome(ctx context.Context) (deleted int, more bool, err error) {
	return in.events.Some(ctx, cleanupBatch,
		func(limit int) (int, error) {
			return in.cfg.Store.Cleanup(ctx, in.cfg.Consumer, in.cfg.Retention, limit)
		},
		func(limit int, fn func(context.Context, []ArchivedEvent) error) (int, error) {
			return in.cfg.Store.(Archiver).Archive(ctx, in.cfg.Consumer, in.cfg.Retention, limit, fn)
		})
}

// cleanKeys deletes a batch of keys of OnlyNewer, and reports whether there may be more.
func (in *Inbox) cleanKeys(ctx context.Context) (deleted int, more bool, err error) {
	return in.keys.Delete(ctx, cleanupBatch, func(limit int) (int, error) {
		return in.cfg.Store.CleanupKeys(ctx, in.cfg.Consumer, in.cfg.Retention, limit)
	})
}
