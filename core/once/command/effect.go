package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Limits of an Effect, in bytes. Headers are limited together.
const (
	MaxChannel = 128
	MaxHeaders = 16 << 10
)

// Effect is one call to the world outside that a transaction decides on: a webhook, a mail, a
// message to a workflow engine. Package command enqueues and executes effects.
type Effect struct {
	// ID of the row, assigned when it is enqueued.
	ID string
	// Tenant, Channel and Key name the effect: it is enqueued once. Channel chooses the handler,
	// "webhook" say; Key says which one, "order-placed:018f:ada@example.org" say. Channel and Key
	// are required; at most once.MaxTenant, MaxChannel and once.MaxID bytes.
	Tenant, Channel, Key string
	// Payload is what the handler needs, in whatever form it likes. It is stored as it is.
	Payload []byte
	// ContentType describes Payload. At most 127 bytes; may be empty.
	ContentType string
	// Headers are for the handler: at most MaxHeaders bytes together.
	Headers map[string]string
	// EventID, CorrelationID and BusinessKey connect the effect to its cause and to a process in a
	// workflow engine. They decide nothing. At most 255 bytes each; may be empty.
	EventID, CorrelationID, BusinessKey string
	// Delay holds the effect back until this long after the commit.
	Delay time.Duration
}

// Validate names every problem of e at once. The error wraps once.ErrInvalidRequest.
func (e Effect) Validate() error {
	var problems []error
	for _, part := range []struct {
		name, text string
		limit      int
		required   bool
	}{
		{"tenant", e.Tenant, once.MaxTenant, false},
		{"channel", e.Channel, MaxChannel, true},
		{"key", e.Key, once.MaxID, true},
		{"content type", e.ContentType, 127, false},
		{"event id", e.EventID, 255, false},
		{"correlation id", e.CorrelationID, 255, false},
		{"business key", e.BusinessKey, 255, false},
	} {
		if p := textcheck.Problem(part.text, part.limit, part.required); p != "" {
			problems = append(problems, fmt.Errorf("%s %s", part.name, p))
		}
	}
	size := 0
	for k, v := range e.Headers {
		size += len(k) + len(v)
		if p := textcheck.Problem(k, MaxHeaders, true); p != "" {
			problems = append(problems, fmt.Errorf("name of a header %s", p))
		}
		if p := textcheck.Problem(v, MaxHeaders, false); p != "" {
			problems = append(problems, fmt.Errorf("header %.64q %s", k, p))
		}
	}
	if size > MaxHeaders {
		problems = append(problems, fmt.Errorf("headers have %d bytes together, more than %d", size, MaxHeaders))
	}
	if e.Delay < 0 || e.Delay > once.MaxTTL {
		problems = append(problems, fmt.Errorf("delay %s is not between 0 and %s", e.Delay, once.MaxTTL))
	}
	if len(problems) > 0 {
		return fmt.Errorf("%w: effect: %w", once.ErrInvalidRequest, errors.Join(problems...))
	}
	return nil
}

// IdempotencyKey is what to give to the other side: 64 hexadecimal digits, the same for every
// attempt, different for any other tenant, channel or key.
func (e Effect) IdempotencyKey() string {
	return once.FingerprintOf([]byte(e.Tenant), []byte(e.Channel), []byte(e.Key)).String()
}

// Fingerprint tells whether two effects of one key are the same: their payload and content type.
func (e Effect) Fingerprint() once.Fingerprint {
	return once.FingerprintOf([]byte(e.ContentType), e.Payload)
}

// Status says how far an effect is.
type Status uint8

// Status of an effect, as it is stored.
const (
	StatusPending    Status = 0 // not tried yet, or released
	StatusProcessing Status = 1 // a worker holds it, or died with it
	StatusCompleted  Status = 2
	StatusFailed     Status = 3 // will be tried again
	StatusDead       Status = 4 // waits for a person
)

// String returns the name used in logs and metrics.
func (s Status) String() string {
	switch s {
	case StatusPending:
		return "pending"
	case StatusProcessing:
		return "processing"
	case StatusCompleted:
		return "completed"
	case StatusFailed:
		return "failed"
	case StatusDead:
		return "parked"
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// Record is an effect as it is stored.
type Record struct {
	Effect
	Status Status
	// ExternalRef is what the handler returned: the id that the other side gave to the effect.
	ExternalRef string
	// Attempts counts the times that the handler failed, LostLeases those that a worker disappeared
	// with it. Since the last release.
	Attempts, LostLeases int
	// ErrorCode and Error of the last failure, or who released it and why.
	ErrorCode, Error string
	// CreatedAt, UpdatedAt and DoneAt are read from the clock of the database. DoneAt is zero
	// unless completed.
	CreatedAt, UpdatedAt, DoneAt time.Time
}

// Claim is the right to execute one effect.
type Claim struct {
	ID, Owner string
	Fence     int64
}

// Claimed is the answer to a claim. Unless Fresh, the Status of the record says why the
// effect is not to be executed.
type Claimed struct {
	Record
	Fresh      bool
	Fence      int64         // Fresh only
	RetryAfter time.Duration // until the present lease ends; StatusProcessing only
}

// Failure says how an execution failed.
type Failure struct {
	Dead bool // it waits for a person
	Free bool // it spends no attempt
	Code string
	Text string
}

// Query selects effects.
type Query struct {
	Status          Status // the zero value selects pending ones
	Channel, Tenant string // empty: all
	After           string // the ID of the last one of the page before
	Limit           int    // default 100, at most 1000
}

// Backlog says how the effects of one channel stand. Counts stop at the limit that was asked
// for.
type Backlog struct {
	Channel string
	Pending int64 // pending, failed or being executed; also those whose delay is not over
	Parked  int64 // wait for a person
	// OldestAge is how long the oldest of the pending ones has been due, by the clock of the store:
	// since the end of its delay, or since it was enqueued when it has failed. Of more than Limit
	// it looks at those that have been due for longest.
	OldestAge time.Duration
	Limit     int64 // a count that equals it may be larger in truth
}

// ErrNoEffect: there is no such effect. Was it deleted, or is it in another table?
var ErrNoEffect = errors.New("command: no such effect")

// Store keeps effects. Package sqlcommand implements it in SQL. Every instant is
// read from the clock of the store. A claim counts only while it is the latest of its effect.
type Store interface {
	// EnqueueTx writes e in the caller's transaction, or returns what is there under its tenant,
	// channel and key, with added false. once.ErrFingerprintMismatch: that has another payload.
	// After any error the caller rolls back.
	EnqueueTx(ctx context.Context, tx core.Tx, e Effect) (rec Record, added bool, err error)
	// Claim leases an effect that is pending or failed, or whose lease has ended, to owner, a name
	// that nobody else has.
	Claim(ctx context.Context, id, owner string, lease time.Duration) (Claimed, error)
	// Extend makes the lease end after lease from now. once.ErrLeaseLost: the claim is no longer
	// the latest.
	Extend(ctx context.Context, c Claim, lease time.Duration) error
	// Complete and Fail end the claim. Repeated by the same claim they change nothing and return
	// nil. once.ErrAlreadyDone: another claim completed it. once.ErrLeaseLost: the claim is no
	// longer the latest.
	Complete(ctx context.Context, c Claim, externalRef string) error
	Fail(ctx context.Context, c Claim, f Failure) error
	// ReleaseTx makes an effect pending again that is parked, failed or abandoned, in the caller's
	// transaction, and keeps note with it. It reports whether it did.
	ReleaseTx(ctx context.Context, tx core.Tx, id, note string) (rec Record, released bool, err error)
	// Find returns the effect of a tenant, channel and key, or ErrNoEffect.
	Find(ctx context.Context, tenant, channel, key string) (Record, error)
	// List returns effects by their age.
	List(ctx context.Context, q Query) ([]Record, error)
	// Overdue returns at most limit effects of the channel that have been due for longer than grace
	// and are neither completed, parked nor held; of those that a holder lost, the lease ended
	// longer than grace ago. Those that have been due for longest come first.
	Overdue(ctx context.Context, channel string, grace time.Duration, limit int) ([]Record, error)
	// Backlog says how each channel stands that has effects that are not completed, by the name of
	// the channel. Every count stops at limit, the parked ones of all channels together; at most
	// 1000 channels are looked at.
	Backlog(ctx context.Context, limit int) ([]Backlog, error)
	// Cleanup deletes at most limit effects that were completed longer than keep ago. It returns
	// how many.
	Cleanup(ctx context.Context, keep time.Duration, limit int) (deleted int, err error)
}
