package core

import (
	"context"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/counting"
)

// pendingSample is how many topics of keys UnrelayedTopics looks at.
const pendingSample = 10_000

// Backlog counts the pending and the dead events and the blocked keys, and returns the age of the
// oldest pending event. Its queries are bounded: they examine 100,000 events of a kind, or 10,000 if
// more would take the database longer than a second. Backlog.More reports whether there are more.
// Events that a reader of the log publishes are not counted, see Backlog.ByLog.
func (o *Outbox) Backlog(ctx context.Context) (Backlog, error) {
	b, _, err := counting.Rows(func(limit int) (Backlog, bool, error) {
		b, err := o.cfg.Repository.Backlog(ctx, limit)
		return b, b.More, err
	})
	if o.cfg.DeadPolicy == SkipDead {
		b.BlockedKeys = 0 // a dead event blocks nothing
	}
	b.ByLog = o.cfg.RelayedByLog
	return b, err
}

// TypeBacklog counts unfinished events by type, at most 1000 types, the most frequent first. It
// reads as many events as Backlog of each kind: without a key; with a key, dead ones among them; and
// dead. Of a longer backlog it counts a part. It takes the database longer than Backlog, so ask
// once a minute at most.
func (o *Outbox) TypeBacklog(ctx context.Context) ([]TypeBacklog, error) {
	types, _, err := counting.Rows(func(limit int) ([]TypeBacklog, bool, error) {
		types, err := o.cfg.Repository.TypeBacklog(ctx, limit)
		var all int64
		for _, t := range types {
			all += t.New + t.Retry + t.Dead
		}
		return types, all >= int64(limit), err
	})
	return types, err
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
// SkipDead the event is appended at the end of its key. Redrive returns how many events changed.
// Events that are not dead stay as they are.
func (o *Outbox) Redrive(ctx context.Context, req AdminRequest) (changed int, err error) {
	if req, err = o.admin(req); err != nil {
		return 0, err
	}
	start := time.Now()
	changed, err = o.cfg.Repository.Redrive(ctx, req)
	o.operated(OperatorRedrive, changed, start)
	o.changed()
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
	o.changed()
	return changed, err
}

func (o *Outbox) operated(action OperatorAction, rows int, start time.Time) {
	if rows > 0 {
		o.obs.Operated(OperatedInfo{Action: action, Rows: rows, Duration: time.Since(start)})
	}
}

// ResetKeys makes the table alone decide the number of the next event of each key. Call it after a
// restore from a backup or a failover that lost commits, when every process that publishes or
// relays is stopped, and before writers resume. An audit row records actor and reason. Both are
// required, actor with up to 255 bytes and reason with up to 1024. ResetKeys returns the number of
// keys.
func (o *Outbox) ResetKeys(ctx context.Context, actor, reason string) (changed int, err error) {
	if err := checkWho(actor, reason); err != nil {
		return 0, err
	}
	return o.cfg.Repository.ResetKeys(ctx, actor, reason)
}

func (o *Outbox) admin(req AdminRequest) (AdminRequest, error) {
	switch {
	case len(req.IDs) == 0:
		return req, invalid("no ids")
	case len(req.IDs) > 10_000:
		return req, invalid("%d ids, more than 10000", len(req.IDs))
	}
	if err := checkWho(req.Actor, req.Reason); err != nil {
		return req, err
	}
	req.SkipDead = o.cfg.DeadPolicy == SkipDead
	return req, nil
}

// ListAudit lists calls of Redrive, Discard and ResetKeys, the newest first. To read the next page,
// set AuditQuery.Before to the last No.
func (o *Outbox) ListAudit(ctx context.Context, q AuditQuery) ([]AuditRecord, error) {
	if q.Limit <= 0 {
		q.Limit = 100
	}
	q.Limit = min(q.Limit, 1000)
	return o.cfg.Repository.ListAudit(ctx, q)
}

// CountAudit counts the audit rows whose No is above after, and at most upTo, by their action. It
// reads each of them, so it is for the rows since the last look, as the metrics need them.
func (o *Outbox) CountAudit(ctx context.Context, after, upTo int64) (map[string]int64, error) {
	return o.cfg.Repository.CountAudit(ctx, after, upTo)
}

// Pause stops the events of a topic, of a tenant or all events, on every relay of the table, until
// a time or until Resume. It is stored, so it holds over restarts. Publish goes on: the events wait
// in the table, keep the order of their keys and spend no attempts. Relays follow within 3 s, this
// Outbox's relay at once. A relay finishes the publishes that it has begun, and gives the other
// events that it holds back to the table. Another Pause of the same topic or tenant replaces the
// first.
//
// An invalid request, and a pause if 1000 others hold, is refused with an error wrapping
// ErrInvalidRequest.
func (o *Outbox) Pause(ctx context.Context, req PauseRequest) error {
	if err := checkPause(ResumeRequest{
		All: req.All, Topic: req.Topic, Tenant: req.Tenant, Actor: req.Actor, Reason: req.Reason,
	}); err != nil {
		return err
	}
	if ahead := time.Until(req.Until); !req.Until.IsZero() && (ahead <= 0 || ahead > maxPauseAhead) {
		return invalid("{Until} is not in the future, or more than 10 years ahead")
	}
	held, err := o.Pauses(ctx)
	if err != nil {
		return err
	}
	if len(held) >= maxSettings && !slices.ContainsFunc(held, func(p Pause) bool {
		return p.All == req.All && p.Topic == req.Topic && p.Tenant == req.Tenant
	}) {
		return invalid("%d pauses hold, the most that relays read: resume some of them first", len(held))
	}
	if req.DryRun {
		return nil
	}
	err = o.cfg.Repository.Pause(ctx, req)
	o.changed()
	return err
}

// Resume ends a pause. It reports whether there was a pause to end. The relays go on within 3 s,
// this Outbox's relay at once. The errors are the same as for Pause.
func (o *Outbox) Resume(ctx context.Context, req ResumeRequest) (resumed bool, err error) {
	if err := checkPause(req); err != nil {
		return false, err
	}
	if req.DryRun {
		held, err := o.Pauses(ctx)
		return slices.ContainsFunc(held, func(p Pause) bool {
			return p.All == req.All && p.Topic == req.Topic && p.Tenant == req.Tenant
		}), err
	}
	resumed, err = o.cfg.Repository.Resume(ctx, req)
	o.changed()
	return resumed, err
}

// Pauses returns the stored pauses that hold now, at most 1000: the pause of everything, then
// topics, then tenants, each in ascending order. The errors are the same as for Pause.
func (o *Outbox) Pauses(ctx context.Context) ([]Pause, error) {
	set, err := o.cfg.Repository.Settings(ctx)
	return set.Pauses, err
}

// SetRate limits the events that all relays of the table together send to a topic, until it is
// called again. It is stored, so it holds over restarts. Publish goes on: the events wait in the
// table, keep the order of their keys and spend no attempts. Relays follow within 3 s, this
// Outbox's relay at once.
//
// Each relay that takes the topic and is alive gets an equal share of both limits, by the
// heartbeats that Relays returns: nothing is asked of the database for a single event. So a relay
// that has less to do leaves a part of its share unused, and for some seconds after a relay has
// started or ended the topic gets more or less. A share of InFlight is at least 1, however many
// relays there are. At most a tenth of a second's events, or one event, are sent without a pause
// between them.
//
// An invalid request, and a rate if 1000 other topics have one, is refused with an error wrapping
// ErrInvalidRequest.
func (o *Outbox) SetRate(ctx context.Context, req RateRequest) error {
	if err := checkRate(req); err != nil {
		return err
	}
	set, err := o.Rates(ctx)
	if err != nil {
		return err
	}
	if ends := req.PerSecond == 0 && req.InFlight == 0; len(set) >= maxSettings && !ends &&
		!slices.ContainsFunc(set, func(r Rate) bool { return r.Topic == req.Topic }) {
		return invalid("%d destinations have a rate, the most that relays read: end some of them first", len(set))
	}
	if req.DryRun {
		return nil
	}
	err = o.cfg.Repository.SetRate(ctx, req)
	o.changed()
	return err
}

// Rates returns the limits of destinations, as they are stored, in ascending order of the topics,
// at most 1000.
func (o *Outbox) Rates(ctx context.Context) ([]Rate, error) {
	set, err := o.cfg.Repository.Settings(ctx)
	return set.Rates, err
}

// UnrelayedTopics returns the topics that have pending events, also delayed ones, and that no
// living relay publishes, in ascending order. After the crash of its last relay a topic counts as
// relayed for up to RelayAlive. The query looks at 100 events with a key in each topic, so it can
// miss a topic with many dead events.
func (o *Outbox) UnrelayedTopics(ctx context.Context) ([]string, error) {
	topics, err := o.cfg.Repository.PendingTopics(ctx, pendingSample)
	if err != nil || len(topics) == 0 {
		return nil, err
	}
	relays, err := o.Relays(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(topics, func(topic string) bool {
		return slices.ContainsFunc(relays, func(s RelayStatus) bool { return s.Alive() && s.Relays(topic) })
	}), nil
}

// Relays returns the relays of all processes, the last seen first, at most 1000. It includes relays
// that disappeared within the last day without a clean end: see RelayStatus.Alive. Drain does not
// appear in it.
func (o *Outbox) Relays(ctx context.Context) ([]RelayStatus, error) {
	return o.cfg.Repository.Relays(ctx)
}

// DeadPolicy returns Config.DeadPolicy: whether a dead event blocks its key.
func (o *Outbox) DeadPolicy() DeadPolicy { return o.cfg.DeadPolicy }

// Observer returns Config.Observer with no field nil. It is for packages that change the table
// beside this Outbox, as package ops does.
func (o *Outbox) Observer() Observer { return o.obs }
