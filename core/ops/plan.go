package ops

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// MaxPlan is how many events a Plan can have.
const MaxPlan = 10_000

// ErrPlanChanged is wrapped by the error of Apply if the action of the Plan, its ids or their Sight
// differ from the planned ones. Nothing was changed.
var ErrPlanChanged = errors.New("ops: the plan was changed")

// Action is the action of a Plan on its events.
type Action string

// Actions.
const (
	ActionRedrive Action = "redrive" // open dead events again, with fresh attempts
	ActionDiscard Action = "discard" // end events without publishing them
	ActionReplay  Action = "replay"  // publish done events again, each by a new row
)

// Plan is a change that was planned and not yet made. It names every event that Apply may touch. It
// can be stored and sent as JSON.
type Plan struct {
	Action Action `json:"action"`
	Filter Filter `json:"filter"`
	// IDs are the rows, in the order in which Apply works them off: each key in its order.
	IDs []core.RowID `json:"ids"`
	// Seen is how each of the rows was when the plan was made, see Event.Sight. A redrive and a
	// discard leave events alone that have changed since.
	Seen []core.Sight `json:"seen"`
	// More: the filter selects more events: plan again after Apply.
	More   bool           `json:"more,omitempty"`
	Topics map[string]int `json:"topics"` // events of each destination
	Keys   int            `json:"keys"`   // keys of the events
	// ByLog is how many of the events a reader of the database's log publishes (Event.ByLog). The
	// reader also gets their replays, which are done at once and count as published in a StoredPlan
	// whether it reads them or not.
	ByLog  int       `json:"by_log,omitempty"`
	Oldest time.Time `json:"oldest,omitzero"`
	Newest time.Time `json:"newest,omitzero"`
	// Until is when the consumers forget the first event of a replay. RunPlan replays nothing after
	// it. Zero for the other actions.
	Until time.Time `json:"until,omitzero"`
	// Windows are the windows that a replay was planned with, by topic. RunPlan replays nothing if
	// a consumer of a topic has declared a shorter one since. In JSON they are nanoseconds.
	Windows map[string]time.Duration `json:"windows,omitempty"`
	// Beyond names the windows that were exceeded by ReplayOptions.BeyondWindows. Then Windows is
	// empty.
	Beyond string `json:"beyond,omitempty"`
	// Digest is a hash of the action, the ids and their Sight, by which people can compare the
	// approved plan with the applied one.
	Digest string `json:"digest"`
}

// PlanRedrive plans to redrive the dead events that the filter selects, up to limit. A limit of 0
// is MaxPlan. Filter.Statuses may be StatusDead or empty, which means the same. It changes nothing,
// and reads on until it has limit events or has seen all dead ones.
func (a *API) PlanRedrive(ctx context.Context, f Filter, limit int) (Plan, error) {
	for _, s := range f.Statuses {
		if s != StatusDead {
			return Plan{}, invalid("only dead events can be redriven, not %s ones", s)
		}
	}
	return a.plan(ctx, ActionRedrive, f, limit)
}

// PlanDiscard plans to discard the events that the filter selects, up to limit. A limit of 0 is
// MaxPlan. Filter.Statuses may have StatusDead, StatusNew and StatusRetry; empty means StatusDead.
// It changes nothing.
func (a *API) PlanDiscard(ctx context.Context, f Filter, limit int) (Plan, error) {
	for _, s := range f.Statuses {
		if s != StatusDead && !s.Open() {
			return Plan{}, invalid("events that are %s have ended", s)
		}
	}
	return a.plan(ctx, ActionDiscard, f, limit)
}

// PlanRows plans to redrive or discard the rows with these ids, at most MaxPlan. Rows that the
// action cannot change, and ids without a row, are refused with an error wrapping
// core.ErrInvalidRequest: a redrive changes dead events, a discard also waiting ones. It changes
// nothing, and reads one row a query. PlanReplay takes ids too.
func (a *API) PlanRows(ctx context.Context, action Action, ids ...core.RowID) (Plan, error) {
	if action != ActionRedrive && action != ActionDiscard {
		return Plan{}, invalid("rows are planned to redrive or to discard, not to %.32q", string(action))
	}
	if len(ids) == 0 || len(ids) > MaxPlan {
		return Plan{}, invalid("a plan has 1 to %d events, not %d", MaxPlan, len(ids))
	}
	events, err := a.distinctRows(ctx, ids, func(e *Event) error {
		if e.Status == StatusDead || action == ActionDiscard && e.Status.Open() {
			return nil
		}
		return invalid("row %s is %s: there is nothing to %s", e.ID, e.Status, action)
	})
	if err != nil {
		return Plan{}, err
	}
	return newPlan(action, Filter{}, events), nil
}

// distinctRows reads the rows with these ids, each once. It refuses ids that no row has, and rows
// that check refuses.
func (a *API) distinctRows(
	ctx context.Context, ids []core.RowID, check func(*Event) error,
) (events []Event, err error) {
	seen := make(map[core.RowID]bool, len(ids))
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		found, err := a.Rows(ctx, id)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, invalid("no row has the id %s: it was deleted after the retention, or it is no row id", id)
		}
		if err := check(&found[0]); err != nil {
			return nil, err
		}
		events = append(events, found[0])
	}
	return events, nil
}

func (a *API) plan(ctx context.Context, action Action, f Filter, limit int) (Plan, error) {
	if err := f.check(); err != nil {
		return Plan{}, err
	}
	if limit < 0 || limit > MaxPlan {
		return Plan{}, invalid("a plan has 1 to %d events, not %d", MaxPlan, limit)
	}
	if len(f.Statuses) == 0 {
		f.Statuses = []Status{StatusDead}
	}
	events, next, err := a.selected(ctx, f, cmp.Or(limit, MaxPlan))
	if err != nil {
		return Plan{}, err
	}
	p := newPlan(action, f, events)
	p.More = next
	return p, nil
}

// selected returns the first events that the filter selects, and whether there may be more. One
// call of the Store looks at MaxLook rows, and selected goes on behind them. Otherwise a plan would
// stay empty, however often it is made, while the filter selects none of the first rows.
func (a *API) selected(ctx context.Context, f Filter, limit int) (events []Event, more bool, err error) {
	scan := Scan{Filter: f, Look: MaxLook}
	for {
		scan.Limit = limit - len(events)
		s, err := a.store.ScanEvents(ctx, scan)
		if err != nil {
			return nil, false, err
		}
		events = append(events, s.Events...)
		if s.Next == "" || len(events) >= limit {
			return events, s.Next != "", nil
		}
		scan.After = s.Next
	}
}

func newPlan(action Action, f Filter, events []Event) Plan {
	p := Plan{Action: action, Filter: f, Topics: map[string]int{}}
	slices.SortStableFunc(events, func(a, b Event) int {
		return cmp.Or(bytes.Compare(a.KeyID[:], b.KeyID[:]), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.KeySeq, b.KeySeq), bytes.Compare(a.ID[:], b.ID[:]))
	})
	type key struct{ tenant, topic, key string }
	keys := map[key]bool{}
	for _, e := range events {
		p.IDs, p.Seen = append(p.IDs, e.ID), append(p.Seen, e.Sight())
		p.Topics[e.Topic]++
		if e.ByLog() {
			p.ByLog++
		}
		if e.KeySeq != 0 {
			keys[key{e.TenantID, e.Topic, e.Key}] = true
		}
		if p.Oldest.IsZero() || e.CreatedAt.Before(p.Oldest) {
			p.Oldest = e.CreatedAt
		}
		if e.CreatedAt.After(p.Newest) {
			p.Newest = e.CreatedAt
		}
	}
	p.Keys, p.Digest = len(keys), p.digest()
	return p
}

func (p *Plan) digest() string {
	h := sha256.New()
	h.Write([]byte(p.Action))
	for _, id := range p.IDs {
		h.Write(id[:])
	}
	for _, s := range p.Seen {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(s)))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// check reports a plan that cannot be applied.
func (p *Plan) check() error {
	switch {
	case p.Action != ActionRedrive && p.Action != ActionDiscard && p.Action != ActionReplay:
		return invalid("%.32q is no action", string(p.Action))
	case len(p.IDs) == 0:
		return invalid("the plan has no events")
	case len(p.IDs) > MaxPlan:
		return invalid("the plan has %d events, more than %d", len(p.IDs), MaxPlan)
	case p.digest() != p.Digest || len(p.Seen) != len(p.IDs):
		return fmt.Errorf("%w: its digest is %.64q, and its events give %s", ErrPlanChanged, p.Digest, p.digest())
	}
	return nil
}

// seen returns how the plan saw its events from one position on, up to another one.
func (p *Plan) seen(from, to int) map[core.RowID]core.Sight {
	seen := make(map[core.RowID]core.Sight, to-from)
	for i := from; i < to; i++ {
		seen[p.IDs[i]] = p.Seen[i]
	}
	return seen
}

// Applied is the result of Apply.
type Applied struct {
	// Changed is how many events changed. The others of Tried were left alone: they have changed
	// since they were planned, or a process holds them.
	Changed int `json:"changed"`
	Tried   int `json:"tried"` // how many ids of the Plan were worked off, from its beginning
}

// applyChunk is how many events Apply changes in one transaction.
const applyChunk = 500

// Apply makes the change for exactly the events of the Plan, in their order, in transactions of up
// to 500 events. Each changed event gets its audit row in the same transaction. Actor and reason
// are required: without them, or with a Plan that has no events, the error wraps
// core.ErrInvalidRequest, and nothing was changed.
//
// An event that has changed since the Plan was made is left alone: it was redriven or ended, it
// waited and is dead, or it was redriven and has died again. So Apply can be repeated after an
// error. A plan to replay is refused, because a done event stays done: store it, and call RunPlan.
func (a *API) Apply(ctx context.Context, p Plan, actor, reason string) (Applied, error) {
	var done Applied
	if err := p.check(); err != nil {
		return done, err
	}
	if p.Action == ActionReplay {
		return done, invalid("Apply could replay events twice: store the plan with StorePlan, and call RunPlan")
	}
	do := a.outbox.Redrive
	if p.Action == ActionDiscard {
		do = a.outbox.Discard
	}
	for ids := range slices.Chunk(p.IDs, applyChunk) {
		seen := p.seen(done.Tried, done.Tried+len(ids))
		n, err := do(ctx, core.AdminRequest{IDs: ids, Seen: seen, Actor: actor, Reason: reason})
		done.Changed += n
		if err != nil {
			return done, err
		}
		done.Tried += len(ids)
	}
	return done, nil
}
