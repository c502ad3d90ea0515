package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/who"
)

const backlogLimit = 100_000

// Backlog counts the pending and the dead events and the blocked keys, and returns the age of the
// oldest pending event. Its queries are bounded: a count that equals Backlog.Limit may be larger in
// truth. Events that a reader of the log publishes are not counted, see Backlog.ByLog.
func (o *Outbox) Backlog(ctx context.Context) (Backlog, error) {
	b, err := o.cfg.Repository.Backlog(ctx, backlogLimit)
	if o.cfg.DeadPolicy == SkipDead {
		b.BlockedKeys = 0 // a dead event blocks nothing
	}
	b.ByLog = o.cfg.RelayedByLog
	return b, err
}

// ListDead lists dead events in the order of their row ids. To read the next page, set
// DeadQuery.After to the last ID.
func (o *Outbox) ListDead(ctx context.Context, q DeadQuery) ([]DeadEvent, error) {
	if q.Limit <= 0 {
		q.Limit = 100
	}
	q.Limit = min(q.Limit, 1000)
	return o.cfg.Repository.ListDead(ctx, q)
}

// Redrive opens dead events again with fresh attempts. It records each change with actor and
// reason. Under policy BlockKey the event keeps its place, and its key goes on with it. Under
// SkipDead the event is appended at the end of its key. Redrive returns how many events changed. It
// leaves events alone that are not dead.
func (o *Outbox) Redrive(ctx context.Context, req AdminRequest) (changed int, err error) {
	if req, err = o.admin(req); err != nil {
		return 0, err
	}
	start := time.Now()
	changed, err = o.cfg.Repository.Redrive(ctx, req)
	o.operated(OperatorRedrive, changed, start)
	o.wake()
	return changed, err
}

// Discard ends dead events, and open events that no process holds, without publishing them. It
// records each change with actor and reason. With Force it also ends an event that is being
// published; that event may still be published once. Discard returns how many events changed.
func (o *Outbox) Discard(ctx context.Context, req AdminRequest) (changed int, err error) {
	if req, err = o.admin(req); err != nil {
		return 0, err
	}
	start := time.Now()
	changed, err = o.cfg.Repository.Discard(ctx, req)
	o.operated(OperatorDiscard, changed, start)
	o.wake()
	return changed, err
}

func (o *Outbox) operated(action OperatorAction, rows int, start time.Time) {
	if rows > 0 {
		o.obs.Operated(OperatedInfo{Action: action, Rows: rows, Duration: time.Since(start)})
	}
}

// Observer returns Config.Observer with no field nil. It is for packages that change the table
// beside this Outbox, as package ops does.
func (o *Outbox) Observer() Observer { return o.obs }

// TypeBacklog counts the events that are not finished by their type, those with the most events
// first, and at most 1000 types. It reads up to 100,000 events without a key, as many of keys and
// as many dead ones: of a longer backlog it counts a part. It takes the database longer than
// Backlog, so ask once a minute at most. The error wraps errors.ErrUnsupported if the Repository is
// no TypeBacklogger.
func (o *Outbox) TypeBacklog(ctx context.Context) ([]TypeBacklog, error) {
	r, ok := o.cfg.Repository.(TypeBacklogger)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return r.TypeBacklog(ctx, backlogLimit)
}

// TypeBacklog is how many events of a type are not finished.
type TypeBacklog struct {
	Type  string
	New   int64 // not refused so far, also while they are published
	Retry int64 // refused, and tried again
	Dead  int64
}

// TypeBacklogger is implemented by a Repository that counts events by type.
type TypeBacklogger interface {
	// TypeBacklog counts the events that are not finished by their type: at most limit of those
	// without a key, as many of those of keys, and as many dead ones. It returns up to 1000 types,
	// those with the most events first.
	TypeBacklog(ctx context.Context, limit int) ([]TypeBacklog, error)
}

// ResetKeys is the second step after a failover or a restore that lost commits, before writers
// resume. From then on the table alone decides the order of the next event of each key, and the
// memory of a process does not. ResetKeys returns the number of keys.
func (o *Outbox) ResetKeys(ctx context.Context) (changed int, err error) {
	return o.cfg.Repository.ResetKeys(ctx)
}

// ResetKeysBy is ResetKeys with an audit row in the same transaction: it says who did it, and why.
// Both are required, actor with up to 255 bytes and reason with up to 1024. The error wraps
// errors.ErrUnsupported if the Repository is no KeyResetter.
func (o *Outbox) ResetKeysBy(ctx context.Context, actor, reason string) (changed int, err error) {
	if err := checkWho(actor, reason); err != nil {
		return 0, err
	}
	r, ok := o.cfg.Repository.(KeyResetter)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	return r.ResetKeysBy(ctx, actor, reason)
}

func checkWho(actor, reason string) error {
	if problem := who.Problem(actor, reason); problem != "" {
		return fmt.Errorf("%w: %s", ErrInvalidRequest, problem)
	}
	return nil
}

func (o *Outbox) admin(req AdminRequest) (AdminRequest, error) {
	switch {
	case len(req.IDs) == 0:
		return req, fmt.Errorf("%w: no ids", ErrInvalidRequest)
	case len(req.IDs) > 10_000:
		return req, fmt.Errorf("%w: %d ids, more than 10000", ErrInvalidRequest, len(req.IDs))
	}
	if err := checkWho(req.Actor, req.Reason); err != nil {
		return req, err
	}
	req.SkipDead = o.cfg.DeadPolicy == SkipDead
	return req, nil
}

func (o *Outbox) wake() {
	if r := o.relay.Load(); r != nil {
		r.wakePoller()
	}
}
