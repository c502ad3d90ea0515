package core

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/enum"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// Errors that callers branch on with errors.Is.
var (
	// ErrNoTransaction: Publish was called without an open transaction. Nothing was written. Open a
	// transaction, or use RunInTx of your adapter.
	ErrNoTransaction = errors.New("outbox: no transaction")

	// ErrTxAborted: the transaction cannot be trusted to commit further writes, for example after a
	// deadlock or a lost connection. Publish wrote nothing, and the statement that returned the
	// error was not run. Roll back and run the whole transaction again.
	ErrTxAborted = errors.New("outbox: transaction aborted, roll it back and run it again")

	// ErrUntracked: the outbox cannot observe the commit of this transaction. An adapter refuses a
	// statement whose events it would have to write there. Publish refuses its events there only if
	// Config.RejectUntracked is set.
	ErrUntracked = errors.New("outbox: transaction is not tracked")

	// ErrInvalidEvent: an event or a part of it is invalid. The wrapped errors name every problem.
	// Nothing was written.
	ErrInvalidEvent = errors.New("outbox: invalid event")

	// ErrNoRoute: no publisher of this process handles the event's topic and Config.Routes does not
	// name the topic either.
	ErrNoRoute = errors.New("outbox: no route")

	// ErrDuplicateEvent: this event id was already inserted for this topic. On PostgreSQL the error
	// aborts the caller's transaction, as any unique violation does.
	ErrDuplicateEvent = errors.New("outbox: duplicate event")

	// ErrBacklogFull: more events wait to be published than Config.BacklogLimit allows. Nothing was
	// written. The error is a *BacklogFullError with the figures. Roll back, and refuse the request
	// or try later: the limit is there so that the table does not fill the disk while nothing
	// publishes.
	ErrBacklogFull = errors.New("outbox: backlog is full")

	// ErrRecorderCopied: a model to be saved is a copy of the one on which events were recorded,
	// and the events are not saved yet. Nothing was written. Save the original by its pointer; see
	// Recorder.
	ErrRecorderCopied = errors.New("outbox: events were recorded on another copy of this model")

	// ErrHiddenRecorder: a model has a Recorder where no adapter finds it; see CheckModel. Embed it
	// in the model.
	ErrHiddenRecorder = errors.New("outbox: hidden recorder")

	// ErrNoAggregateID: an event needs the primary key of the row that an ORM statement changed,
	// and the database cannot name it (docs/rows.md has the list). Adapters return the error before
	// the statement where they can. If they can only return it after the statement, its transaction
	// does not commit. Name the AggregateID of a recorded event, change models by their keys or one
	// by one, or call Publish.
	ErrNoAggregateID = errors.New("outbox: no aggregate id")

	// ErrTooManyRows: an update or a delete of an ORM with an event for each row would change more
	// than 100,000 rows, or a statement has more models with recorded events than it can have
	// parameters. Change fewer rows at a time, or call Publish.
	ErrTooManyRows = errors.New("outbox: too many rows for the events of one statement")

	// ErrCommitUnknown: COMMIT was sent and its answer was lost, or a statement may have ended the
	// transaction before. The transaction may or may not have committed. Its events are published
	// if it did. Never retry a COMMIT: read the business data to find out, or make the operation
	// idempotent.
	ErrCommitUnknown = errors.New("outbox: outcome of commit unknown")

	// ErrNoPublisher: Run or Drain was called on an Outbox without a Publisher.
	ErrNoPublisher = errors.New("outbox: no publisher configured")

	// ErrNoRelay: Run was called on an Outbox without Config.Relay. Set it to relay.Config{} of package
	// core/relay.
	ErrNoRelay = errors.New("outbox: no relay configured: set Config.Relay to relay.Config{} of package core/relay")

	// ErrNoTables: the tables, or some of their columns, are not in the database. Create them with
	// AutoCreate in the Config of your adapter, Migrate of sqloutbox.Repository, the files of
	// sqloutbox.Migrations, or package entschema in Ent's own migration.
	ErrNoTables = errors.New("outbox: tables or columns are missing")

	// ErrTablesDiffer: the tables differ from this version's tables. They work, perhaps slowly.
	ErrTablesDiffer = errors.New("outbox: tables differ")

	// ErrRunning: Run was called while it already runs.
	ErrRunning = errors.New("outbox: Run runs already: call it once")

	// ErrStopped: Drain found destinations whose breaker is open; their events are still in the
	// table.
	ErrStopped = errors.New("outbox: destination stopped")

	// ErrShutdownTimeout: Run stopped waiting for publishers that ignored the end of their context.
	// Their events are still in the table and will be published again.
	ErrShutdownTimeout = errors.New("outbox: shutdown timed out")

	// ErrPoolClosed: the program closed its database pool while Run still needed it. Events that were
	// published and not marked yet are published again. Close the pool when Run has returned.
	ErrPoolClosed = errors.New("outbox: the database pool was closed before Run returned")

	// ErrNotInstalled: the outbox is not in use on the handle of the ORM that was given: a *gorm.DB
	// without the plugin, a *bun.DB without the hook, an Ent client that does not use the driver of
	// the outbox. Nothing was written. The text contains the remedy.
	ErrNotInstalled = errors.New("outbox: not installed")

	// ErrOtherDatabase: the transaction belongs to a database other than the outbox's. Its events
	// would be in a table that this outbox does not relay. Nothing was written. Publish with the
	// outbox of that database.
	//
	// These foreign transactions are not recognised and pass: one from an unknown pool; one on a
	// server with a database of the same name, on PostgreSQL also with the same oid of the table;
	// any on MySQL and MariaDB if the outbox has a Schema; one of another SQLite database in memory
	// with cache=shared or vfs=memdb. An outbox whose process has called neither Migrate nor Check
	// nor Run learns its own database after the first such transaction, which passes.
	ErrOtherDatabase = errors.New("outbox: transaction of another database")

	// ErrOtherTransactor: RunInTx was called with a context that carries an open transaction of the
	// same *sql.DB, begun by something else: by the Transactor of another ORM, or by the same ORM
	// without it. A second transaction would commit although the first one may roll back, and the
	// two might wait for each other. Nothing was begun. Use one Transactor for both, for example
	// for the inbox and for its handlers. If a transaction of its own is intended, take the outer
	// one out of the context: ContextWithTx(ctx, nil).
	ErrOtherTransactor = errors.New("outbox: transaction of another Transactor")

	// ErrInvalidRequest: an administrative request lacks something (ids, actor, reason).
	ErrInvalidRequest = errors.New("outbox: invalid request")
)

// FieldError describes wrong fields of a request or of a Config. Text is for programs whose users
// have other names for the fields, such as flags.
type FieldError struct {
	Err    error  // the text begins with it, and errors.Is finds it: ErrInvalidRequest, or none
	Format string // as fmt.Sprintf takes it, with the fields in braces: "{PerSecond} %v is negative"
	Args   []any
}

// Error has the fields by their names in Go.
func (e *FieldError) Error() string { return e.Text(func(field string) string { return field }) }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// Text is Error with the names that name gives to the fields.
func (e *FieldError) Text(name func(field string) string) string {
	var format strings.Builder
	for rest := e.Format; rest != ""; {
		var before, field string
		before, rest, _ = strings.Cut(rest, "{")
		field, rest, _ = strings.Cut(rest, "}")
		format.WriteString(before)
		if field != "" {
			format.WriteString(strings.ReplaceAll(name(field), "%", "%%"))
		}
	}
	text := fmt.Sprintf(format.String(), e.Args...)
	if e.Err != nil {
		text = e.Err.Error() + ": " + text
	}
	return text
}

// invalid returns an error that wraps ErrInvalidRequest.
func invalid(format string, args ...any) error {
	return &FieldError{Err: ErrInvalidRequest, Format: format, Args: args}
}

// LockedError names rows that a Repository could not change because other transactions hold them.
// These rows are unchanged, and the call may be repeated for them. All other rows were changed. The
// result that comes with the error describes the other rows.
type LockedError struct {
	Rows []RowID
}

// Error names the first of the locked rows.
func (e *LockedError) Error() string {
	if len(e.Rows) == 0 {
		return "outbox: rows are locked by other transactions"
	}
	return fmt.Sprintf("outbox: %d rows are locked by other transactions, the first is %s", len(e.Rows), e.Rows[0])
}

// Class classifies a failed publish by its meaning for the event and for its destination.
type Class uint8

// Failure classes. The zero value is ClassTransient: an unclassified error is retried.
const (
	// ClassTransient: the destination refused this event, which may succeed later. The refusal
	// spends an attempt. The one exception is an unmarked error of a destination that has
	// acknowledged nothing since it first refused the event: that may be an outage.
	ClassTransient Class = iota
	// ClassPermanent: the event will never succeed, because it is too large, for example. The event
	// becomes DEAD at once.
	ClassPermanent
	// ClassUnavailable: the destination cannot be reached or refuses every event. The failure
	// spends no attempt and opens the destination's breaker.
	ClassUnavailable
	// ClassKeyUnavailable: only this event's part of the destination is unavailable, such as one
	// partition without a leader. The failure spends no attempt, and the breaker stays closed.
	ClassKeyUnavailable
	// ClassUnroutable: no consumer wants events of this topic, because no queue is bound to it.
	// Until this process has seen the topic accept an event, the failure is an outage, as
	// ClassUnavailable: a relay that starts before the first consumer must not give events up.
	// After that, the failure is ClassPermanent, unless it happens to Breaker.Failures events in a
	// row.
	ClassUnroutable
)

var classNames = []string{
	ClassPermanent: "permanent", ClassUnavailable: "unavailable", ClassKeyUnavailable: "key_unavailable",
	ClassUnroutable: "unroutable", ClassTransient: "transient",
}

// String returns the name used in logs and metrics.
func (c Class) String() string { return enum.Name(classNames, c, "class") }

type classified struct {
	class Class
	err   error
	delay time.Duration // until the event or the destination is tried again; 0: by the Config
}

func (e *classified) Error() string { return e.err.Error() }
func (e *classified) Unwrap() error { return e.err }

// Delay is for packages core/relay and once/command.
func (e *classified) Delay() time.Duration { return e.delay }

// ClassOf returns the class with which err was marked. ok is false if err was not marked. It is for
// publishers that wrap other publishers.
func ClassOf(err error) (class Class, ok bool) {
	var c *classified
	if !errors.As(err, &c) {
		return ClassTransient, false
	}
	return c.class, true
}

// Mark returns err with the class: Permanent, Unavailable and the others are short for it. Mark of
// nil is nil.
func (c Class) Mark(err error) error {
	if err == nil {
		return nil
	}
	return &classified{class: c, err: err}
}

// Permanent marks err so that its event becomes DEAD at once. Permanent(nil) is nil.
func Permanent(err error) error { return ClassPermanent.Mark(err) }

// Transient marks err as a refusal of this one event, regardless of the classifier. The refusal
// spends an attempt even at a destination that acknowledges nothing else. Return errors of unknown
// cause unmarked: the relay then finds out whether the event or the destination is at fault.
// Transient(nil) is nil.
func Transient(err error) error { return ClassTransient.Mark(err) }

// Unavailable marks err as an outage of the destination. It spends no attempt, and the
// destination's breaker opens. Unavailable(nil) is nil.
func Unavailable(err error) error { return ClassUnavailable.Mark(err) }

// UnavailableFor marks err as Unavailable does, for a destination that names the time of its
// return, such as HTTP's Retry-After. The breaker stays open for d, at most a day, and no event of
// the destination is tried or claimed meanwhile. With d below 1 ms it is Unavailable.
// UnavailableFor(nil, d) is nil.
func UnavailableFor(err error, d time.Duration) error { return ClassUnavailable.markFor(err, d) }

// UnavailableForKey marks err as an outage of only a part of the destination, such as one partition
// without a leader. It spends no attempt, and other events of the destination go on.
// UnavailableForKey(nil) is nil.
func UnavailableForKey(err error) error { return ClassKeyUnavailable.Mark(err) }

// PutOff marks err as UnavailableForKey does, and has the event tried again after d, at most a day.
// Use it when the publisher chooses the pace for a part of its destination; UnavailableFor is for a
// whole destination. With d below 1 ms it is UnavailableForKey. PutOff(nil, d) is nil.
func PutOff(err error, d time.Duration) error { return ClassKeyUnavailable.markFor(err, d) }

func (c Class) markFor(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	if d < time.Millisecond {
		d = 0
	}
	return &classified{class: c, err: err, delay: min(d, 24*time.Hour)}
}

// Unroutable marks err as the answer that no consumer wants the event. Until this process has seen
// the topic accept an event, that is an outage of the topic. From then on it is Permanent.
// Unroutable(nil) is nil.
func Unroutable(err error) error { return ClassUnroutable.Mark(err) }

// ErrorText is the text of err as the outbox stores and logs it: without credentials, at most 2
// KiB of valid UTF-8, "" for nil. It is for authors of observers and tracers, who get errors as
// they are.
func ErrorText(err error) string { return errtext.Of(err) }
