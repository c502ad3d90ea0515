package core

import (
	"errors"
	"fmt"
	"time"
)

// Errors that callers branch on with errors.Is.
var (
	// ErrNoTransaction: Publish was called without an open transaction, so nothing could be atomic.
	// Nothing was written. Open a transaction, or use RunInTx of your adapter.
	ErrNoTransaction = errors.New("outbox: no transaction")

	// ErrTxAborted: the transaction can no longer be trusted to commit what is written now (a
	// deadlock, a lost connection, an error after which the database has rolled back). Publish
	// wrote nothing, and the statement that returned it was not run. Roll back and run the whole
	// transaction again.
	ErrTxAborted = errors.New("outbox: transaction aborted, roll it back and run it again")

	// ErrUntracked: the end of this transaction cannot be heard and Config.RejectUntracked is set.
	ErrUntracked = errors.New("outbox: transaction is not tracked")

	// ErrInvalidEvent: an event or a part of it is not acceptable. The wrapped errors name every
	// problem. It is returned before anything is written.
	ErrInvalidEvent = errors.New("outbox: invalid event")

	// ErrNoRoute: no publisher of this process handles the event's topic and Config.Routes does not
	// name the topic either.
	ErrNoRoute = errors.New("outbox: no route")

	// ErrDuplicateEvent: this event id was already inserted for this topic. On PostgreSQL the
	// caller's transaction is aborted by it, as by any unique violation.
	ErrDuplicateEvent = errors.New("outbox: duplicate event")

	// ErrRecorderCopied: a model was to be stored that is a copy of the one on which events were
	// recorded, and these still wait. It is returned before anything is written. Store the original
	// by its pointer; see Recorder.
	ErrRecorderCopied = errors.New("outbox: events were recorded on another copy of this model")

	// ErrHiddenRecorder: a model has a Recorder where no adapter finds it; see CheckModel. Embed it
	// in the model.
	ErrHiddenRecorder = errors.New("outbox: hidden recorder")

	// ErrNoAggregateID: an event needs the primary key of the row that a statement of an ORM
	// changed, and the statement does not tell which rows these are. Adapters return it before the
	// statement where that can be known; after the statement, its transaction does not commit.
	// Change loaded models by their keys, register On with ResolveRows, call Publish, or set
	// AllowKeyless.
	ErrNoAggregateID = errors.New("outbox: no aggregate id")

	// ErrTooManyRows: a statement of an ORM would change more rows than MaxResolvedRows of its
	// adapter, and On functions with ResolveRows would have to see each of them. Nothing was
	// changed. Change fewer rows at a time, raise the bound, or call Publish.
	ErrTooManyRows = errors.New("outbox: too many rows to resolve")

	// ErrCommitUnknown: COMMIT was sent and its answer was lost, or a statement may have ended the
	// transaction before. It may or may not have committed; its events are published if it did.
	// Never retry a COMMIT: read the business data to find out, or make the operation idempotent.
	ErrCommitUnknown = errors.New("outbox: outcome of commit unknown")

	// ErrNoPublisher: Run or Drain was called on an Outbox without a Publisher.
	ErrNoPublisher = errors.New("outbox: no publisher configured")

	// ErrNoTables: the tables, or columns of them, are not in the database. Create them: AutoCreate
	// in the Config of your adapter, Migrate of sqloutbox.Repository, the files of
	// sqloutbox.Migrations, or package entschema in Ent's own migration.
	ErrNoTables = errors.New("outbox: tables or columns are missing")

	// ErrTablesDiffer: the tables are there and not as this version makes them. They work, perhaps
	// slowly.
	ErrTablesDiffer = errors.New("outbox: tables differ")

	// ErrRunning: Run was called while it already runs.
	ErrRunning = errors.New("outbox: already running")

	// ErrStopped: Drain found destinations whose breaker is open; their events are still in the
	// table.
	ErrStopped = errors.New("outbox: destination stopped")

	// ErrShutdownTimeout: Run gave up waiting for publishers that ignored the end of their context.
	// Their events are still in the table and will be published again.
	ErrShutdownTimeout = errors.New("outbox: shutdown timed out")

	// ErrInvalidRequest: an administrative request lacks something (ids, actor, reason).
	ErrInvalidRequest = errors.New("outbox: invalid request")
)

// LockedError says that other transactions hold rows that a Repository was to change. These rows
// are as they were, and the same call may be repeated for them; all others were changed, and the
// result that comes with the error speaks of them.
type LockedError struct {
	Rows []RowID
}

// Error names the first of the rows.
func (e *LockedError) Error() string {
	if len(e.Rows) == 0 {
		return "outbox: rows are locked by other transactions"
	}
	return fmt.Sprintf("outbox: %d rows are locked by other transactions, the first is %s", len(e.Rows), e.Rows[0])
}

// Class says what a failed publish means for the event and for its destination.
type Class uint8

// Failure classes. The zero value is Transient: what nobody classified is retried.
const (
	// ClassTransient: the destination refused this event, it may succeed later. Spends an attempt,
	// unless nobody marked the error and the destination has acknowledged nothing since it refused
	// the event first: then it may be an outage.
	ClassTransient Class = iota
	// ClassPermanent: it will never succeed (too large, not serialisable). DEAD at once.
	ClassPermanent
	// ClassUnavailable: the destination cannot be reached or refuses everybody. Spends no attempt
	// and opens the destination's breaker.
	ClassUnavailable
	// ClassKeyUnavailable: only this event's part of the destination is unavailable (one leaderless
	// partition). Spends no attempt and leaves the breaker closed.
	ClassKeyUnavailable
	// ClassUnroutable: nobody wants events of this topic: no queue is bound to it. As long as this
	// process has seen no event of the topic accepted, that is an outage, as ClassUnavailable: a
	// relay that starts before the first consumer must not give up what is written meanwhile. Once
	// it has, the event goes where nobody listens, as ClassPermanent, unless Breaker.Failures of
	// them come in a row.
	ClassUnroutable
)

// String returns the name used in logs and metrics.
func (c Class) String() string {
	switch c {
	case ClassPermanent:
		return "permanent"
	case ClassUnavailable:
		return "unavailable"
	case ClassKeyUnavailable:
		return "key_unavailable"
	case ClassUnroutable:
		return "unroutable"
	case ClassTransient:
		return "transient"
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

type classified struct {
	class Class
	err   error
	delay time.Duration // until the event is tried again; 0: as usual
}

func (e *classified) Error() string { return e.err.Error() }
func (e *classified) Unwrap() error { return e.err }

// ClassOf returns what err says about itself: the class it was marked with. ok is false when nobody
// marked it. For publishers that wrap others.
func ClassOf(err error) (class Class, ok bool) {
	var c *classified
	if !errors.As(err, &c) {
		return ClassTransient, false
	}
	return c.class, true
}

func classify(err error, c Class) error {
	if err == nil {
		return nil
	}
	return &classified{class: c, err: err}
}

// Permanent marks err so that its event becomes DEAD at once. Permanent(nil) is nil.
func Permanent(err error) error { return classify(err, ClassPermanent) }

// Transient marks err as a refusal of this one event, whatever the classifier would think of it: it
// spends an attempt even at a destination that acknowledges nothing else. Return errors whose cause
// you do not know unmarked: the relay then finds out whether it is the event or the destination.
// Transient(nil) is nil.
func Transient(err error) error { return classify(err, ClassTransient) }

// Unavailable marks err as an outage of the destination: no attempt is spent and the destination's
// breaker opens. Unavailable(nil) is nil.
func Unavailable(err error) error { return classify(err, ClassUnavailable) }

// UnavailableForKey marks err as an outage of only a part of the destination, such as one partition
// without a leader: no attempt is spent, and other events of the destination go on.
// UnavailableForKey(nil) is nil.
func UnavailableForKey(err error) error { return classify(err, ClassKeyUnavailable) }

// PutOff marks err as UnavailableForKey does, and has the event tried again after d, at most a day,
// at the pace that the publisher chooses for this part of its destination. With d below 1 ms it is
// UnavailableForKey. PutOff(nil, d) is nil.
func PutOff(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	if d < time.Millisecond {
		d = 0
	}
	return &classified{class: ClassKeyUnavailable, err: err, delay: min(d, 24*time.Hour)}
}

// putOff returns how long the publisher wants the event to wait; 0: it did not say.
func putOff(err error) time.Duration {
	var c *classified
	if !errors.As(err, &c) {
		return 0
	}
	return c.delay
}

// Unroutable marks err as the answer that nobody wants the event: an outage of its topic until this
// process has seen the topic accept an event, and from then on for good, as Permanent.
// Unroutable(nil) is nil.
func Unroutable(err error) error { return classify(err, ClassUnroutable) }
