package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/enum"
	"github.com/ormoutbox/ormoutbox/core/internal/problems"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Limits of an Effect, in bytes.
const (
	maxChannel = 128
	maxHeaders = 16 << 10
)

// Effect is one call to the outside world that a transaction decides on: a webhook, a mail, a
// message to a workflow engine. Package command enqueues and executes effects.
type Effect struct {
	// ID of the row, assigned by Enqueue.
	ID string
	// Tenant, Channel and Key name the effect, which is enqueued once. Channel chooses the handler,
	// such as "webhook". Key names the effect in its channel, such as
	// "order-placed:018f:ada@example.org". Channel and Key are required. At most 64, 128
	// and 255 bytes.
	Tenant, Channel, Key string
	// Payload is for the handler, in any form. It is stored unchanged.
	Payload []byte
	// ContentType describes Payload. At most 127 bytes; may be empty.
	ContentType string
	// Headers are for the handler: at most 16 KiB together.
	Headers map[string]string
	// EventID, CorrelationID and BusinessKey connect the effect to its cause and to a process in a
	// workflow engine. Enqueue takes the first two from the context of a handler if they are empty:
	// see core.HeaderCausationID. The library does not read BusinessKey. At most 255 bytes each; may
	// be empty.
	EventID, CorrelationID, BusinessKey string
	// Delay holds the effect back until this long after the commit.
	Delay time.Duration
}

// Validate reports every problem of e at once. The error wraps once.ErrInvalidRequest.
func (e Effect) Validate() error {
	var bad problems.List
	bad.Add(textcheck.Check(
		textcheck.Part{Name: "tenant", Text: e.Tenant, Limit: once.MaxTenant},
		textcheck.Part{Name: "channel", Text: e.Channel, Limit: maxChannel, Required: true},
		textcheck.Part{Name: "key", Text: e.Key, Limit: once.MaxID, Required: true},
		textcheck.Part{Name: "content type", Text: e.ContentType, Limit: 127},
		textcheck.Part{Name: "event id", Text: e.EventID, Limit: 255},
		textcheck.Part{Name: "correlation id", Text: e.CorrelationID, Limit: 255},
		textcheck.Part{Name: "business key", Text: e.BusinessKey, Limit: 255},
	))
	size := 0
	for k, v := range e.Headers {
		size += len(k) + len(v)
		name, value := textcheck.Problem(k, maxHeaders, true), textcheck.Problem(v, maxHeaders, false)
		bad.If(name != "", "name of a header %s", name)
		bad.If(value != "", "header %.64q %s", k, value)
	}
	bad.If(size > maxHeaders, "headers have %d bytes together, more than %d", size, maxHeaders)
	bad.If(e.Delay < 0 || e.Delay > once.MaxTTL, "delay %s is not between 0 and %s", e.Delay, once.MaxTTL)
	if err := bad.Err(); err != nil {
		return fmt.Errorf("%w: effect: %w", once.ErrInvalidRequest, err)
	}
	return nil
}

// IdempotencyKey returns the key to give to the other side: 64 hexadecimal digits, the same for
// every attempt, and different for any other tenant, channel or key.
func (e Effect) IdempotencyKey() string {
	return once.FingerprintOf([]byte(e.Tenant), []byte(e.Channel), []byte(e.Key)).String()
}

// Fingerprint is equal for two effects with the same payload and content type.
func (e Effect) Fingerprint() once.Fingerprint {
	return once.FingerprintOf([]byte(e.ContentType), e.Payload)
}

// Status is the status of an effect.
type Status uint8

// Statuses of an effect. They are stored as these numbers, but for StatusDiscarded.
const (
	StatusPending    Status = 0 // not tried yet, or redriven
	StatusProcessing Status = 1 // a worker holds it, or died with it
	StatusCompleted  Status = 2
	StatusFailed     Status = 3 // will be tried again
	StatusDead       Status = 4 // waits for a person
	// StatusDiscarded: a person decided that the effect will never be executed. It is stored as
	// completed, with a code of its own. Versions before Discard read it as completed.
	StatusDiscarded Status = 5
)

var statusNames = []string{
	StatusPending: "pending", StatusProcessing: "processing", StatusCompleted: "completed",
	StatusFailed: "failed", StatusDead: "dead", StatusDiscarded: "discarded",
}

// String returns the name used in logs and metrics.
func (s Status) String() string { return enum.Name(statusNames, s, "status") }

// Record is a stored effect.
type Record struct {
	Effect
	Status Status
	// ExternalRef is the id that the other side gave to the effect. The handler returned it.
	ExternalRef string
	// Attempts counts the failures of the handler. LostLeases counts the workers that disappeared
	// while they executed the effect. Both count since the last redrive.
	Attempts, LostLeases int
	// ErrorCode and Error of the last failure, or actor and reason of the redrive or the discard.
	ErrorCode, Error string
	// CreatedAt, UpdatedAt and DoneAt are read from the clock of the database. DoneAt is zero
	// unless completed or discarded.
	CreatedAt, UpdatedAt, DoneAt time.Time
}

// Claim is the right to execute one effect.
type Claim struct {
	ID, Owner string
	Fence     int64
}

// Claimed is the answer to a claim. If it is not Fresh, the Status of the record is the reason why
// the effect must not be executed.
type Claimed struct {
	Record
	Fresh      bool
	Fence      int64         // Fresh only
	RetryAfter time.Duration // until the present lease ends; StatusProcessing only
}

// Failure describes a failed execution.
type Failure struct {
	Dead bool // the effect is dead: it waits for a person
	Free bool // it spends no attempt
	Code string
	Text string
}

// Query selects effects.
type Query struct {
	Status          Status // the zero value selects pending ones
	Channel, Tenant string // empty: all
	After           string // the ID of the last effect of the previous page
	Limit           int    // default 100, at most 1000
}

// Backlog counts the effects of one channel. Counts stop at the limit that was asked for.
type Backlog struct {
	Channel string
	Pending int64 // pending, failed or being executed; also effects whose delay is not over
	Dead    int64 // effects that wait for a person
	// OldestAge is how long the oldest pending effect has been due, by the clock of the store:
	// since the end of its delay, or since it was enqueued if it has failed. If more than Limit are
	// pending, the count has the longest due.
	OldestAge time.Duration
	Limit     int64 // a count that equals it may be larger in reality
}

// ErrNoEffect: the effect does not exist. It may have been deleted, or be in another table.
var ErrNoEffect = errors.New("command: no such effect")

// Store keeps effects. Package sqlcommand implements it in SQL. Every time is read from the clock
// of the store. A claim counts only while it is the latest of its effect.
type Store interface {
	// EnqueueTx writes e in the caller's transaction. If an effect with the same tenant, channel
	// and key exists, it returns that one, with added false. once.ErrFingerprintMismatch: that one
	// has another payload. After any error the caller rolls back.
	EnqueueTx(ctx context.Context, tx core.Tx, e Effect) (rec Record, added bool, err error)
	// Claim leases an effect that is pending or failed, or whose lease has ended, to owner. The
	// owner that has the lease gets its claim again: the first answer was lost.
	Claim(ctx context.Context, id, owner string, lease time.Duration) (Claimed, error)
	// Extend moves the end of the lease to lease from now. once.ErrLeaseLost: the claim is no
	// longer the latest.
	Extend(ctx context.Context, c Claim, lease time.Duration) error
	// Complete and Fail end the claim. Repeated by the same claim they change nothing and return
	// nil. once.ErrAlreadyDone: another claim completed it. once.ErrLeaseLost: the claim is no
	// longer the latest.
	Complete(ctx context.Context, c Claim, externalRef string) error
	Fail(ctx context.Context, c Claim, f Failure) error
	// RedriveTx makes a dead, failed or abandoned effect pending again, in the caller's
	// transaction, and keeps note with it. It reports whether it did.
	RedriveTx(ctx context.Context, tx core.Tx, id, note string) (rec Record, redriven bool, err error)
	// DiscardTx ends a dead effect, in the caller's transaction, and keeps note with it.
	// It reports whether it did. [ErrNoEffect]: there is no such effect.
	DiscardTx(ctx context.Context, tx core.Tx, id, note string) (discarded bool, err error)
	// Find returns the effect of a tenant, channel and key, or [ErrNoEffect].
	Find(ctx context.Context, tenant, channel, key string) (Record, error)
	// List returns effects, oldest first.
	List(ctx context.Context, q Query) ([]Record, error)
	// Overdue returns at most limit effects of the channel that have been due for longer than grace
	// and are neither completed, dead, discarded nor held. If a holder lost an effect, its lease
	// must have ended longer than grace ago. Effects that have been due for longest come first.
	Overdue(ctx context.Context, channel string, grace time.Duration, limit int) ([]Record, error)
	// Backlog returns, by the name of the channel, the backlog of each channel with effects that
	// are neither completed nor discarded. Every count stops at limit; for dead effects the limit
	// holds for all channels together. It looks at no more than 1000 channels.
	Backlog(ctx context.Context, limit int) ([]Backlog, error)
	// Cleanup deletes at most limit effects that were completed or discarded longer than keep ago.
	// It returns how many it deleted.
	Cleanup(ctx context.Context, keep time.Duration, limit int) (deleted int, err error)
}

// Archiver is implemented by a [Store] that can show effects before it deletes them. [NewQueue]
// refuses [QueueConfig.Archive] without it.
type Archiver interface {
	// Archive gives at most limit effects that were completed or discarded longer than keep ago to
	// fn, and deletes them if it returns nil. Those that ended first come first. It returns how
	// many it deleted. No transaction is open while fn runs.
	Archive(ctx context.Context, keep time.Duration, limit int, fn func(ctx context.Context, effects []Record) error,
	) (deleted int, err error)
}
