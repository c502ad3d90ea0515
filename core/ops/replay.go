package ops

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// ErrDedupWindow is wrapped by the error of PlanReplay and RunPlan if consumers may have forgotten
// an event: they would process it a second time. The call has replayed nothing.
var ErrDedupWindow = errors.New("ops: consumers may have forgotten the events")

// ReplayOptions says what PlanReplay plans. Only DedupWindow is required.
type ReplayOptions struct {
	// DedupWindow is how long the consumers remember an event that they have processed: the
	// shortest Retention of their inboxes, less the time that a message can be on its way. Events
	// that were done before are refused.
	DedupWindow time.Duration
	// IDs are the rows to replay. Empty: those that the filter selects.
	IDs []core.RowID
	// Limit is how many events the plan can have. If there are more, PlanReplay refuses. Default,
	// and the largest value: MaxPlan.
	Limit int
}

// PlanReplay plans to publish done events again: those that the filter selects, or with
// ReplayOptions.IDs those rows, and then the filter is empty. Filter.Statuses may be StatusDone or
// empty, which means the same. It changes nothing. Store the plan with StorePlan, and work it off
// with RunPlan.
//
// RunPlan gives each event a new row with the same event id, topic, key and payload. The row that
// was done stays as it is. The rows of a replay have an order of their own for each key: that of
// the plan. They neither wait for new events of the key nor delay them. A relay publishes them with
// low priority: they hold up no other event.
//
// Consumers that remember the event skip it, so a replay reaches only those that never processed
// it. The error wraps ErrDedupWindow if one of the events was done longer than
// ReplayOptions.DedupWindow ago. It wraps core.ErrInvalidRequest for options that make no sense, a
// row that is not done or is a replay itself, and more events than Limit. A filter passes over rows
// of earlier replays: it selects each event once.
func (a *API) PlanReplay(ctx context.Context, f Filter, o ReplayOptions) (Plan, error) {
	if err := o.check(&f); err != nil {
		return Plan{}, err
	}
	f.Statuses = []Status{StatusDone}
	var events []Event
	var err error
	if len(o.IDs) > 0 {
		events, err = a.distinctRows(ctx, o.IDs, replayable)
	} else {
		events, err = a.doneEvents(ctx, f, o.Limit)
	}
	if err != nil {
		return Plan{}, err
	}
	until, err := o.until(events)
	if err != nil {
		return Plan{}, err
	}
	p := newPlan(ActionReplay, f, events)
	p.Until = until
	return p, nil
}

func (o *ReplayOptions) check(f *Filter) error {
	for _, s := range f.Statuses {
		if s != StatusDone {
			return invalid("only done events can be replayed, not those that are %s", s)
		}
	}
	if o.DedupWindow <= 0 {
		return invalid("ReplayOptions.DedupWindow is required: how long do the consumers remember an event?")
	}
	if o.Limit < 0 || max(o.Limit, len(o.IDs)) > MaxPlan {
		return invalid("a plan has 1 to %d events, not %d", MaxPlan, max(o.Limit, len(o.IDs)))
	}
	o.Limit = cmp.Or(o.Limit, MaxPlan)
	if len(o.IDs) == 0 {
		return f.check()
	}
	empty := *f
	empty.Statuses = nil
	if !reflect.ValueOf(empty).IsZero() {
		return invalid("ReplayOptions.IDs and a filter exclude each other")
	}
	if len(o.IDs) > o.Limit {
		return invalid("there are %d ids, more than %d", len(o.IDs), o.Limit)
	}
	return nil
}

// replayable refuses a row that cannot be replayed.
func replayable(e *Event) error {
	switch {
	case e.Status != StatusDone:
		return invalid("row %s is %s: only done events can be replayed", e.ID, e.Status)
	case !e.ReplayOf.IsZero():
		return invalid("row %s is a replay: replay row %s", e.ID, e.ReplayOf)
	}
	return nil
}

// doneEvents reads the events that a filter selects, without those of replays.
func (a *API) doneEvents(ctx context.Context, f Filter, limit int) (events []Event, err error) {
	scan := Scan{Filter: f, Limit: min(limit+1, MaxLook), Look: MaxLook}
	for {
		s, err := a.store.ScanEvents(ctx, scan)
		if err != nil {
			return nil, err
		}
		for _, e := range s.Events {
			if e.ReplayOf.IsZero() {
				events = append(events, e)
			}
		}
		if len(events) > limit {
			return nil, invalid("the filter selects more than %d events: narrow it to a shorter time, and make "+
				"several plans", limit)
		}
		if s.Next == "" {
			return events, nil
		}
		scan.After = s.Next
	}
}

// until returns when the consumers forget the first of the events.
func (o *ReplayOptions) until(events []Event) (until time.Time, err error) {
	var first *Event
	forgotten := 0
	for i := range events {
		e := &events[i]
		if e.DoneAt.Add(o.DedupWindow).Before(e.ReadAt) {
			forgotten++
		}
		if first == nil || e.DoneAt.Before(first.DoneAt) {
			first = e
		}
	}
	switch {
	case first == nil:
		return until, nil
	case forgotten > 0:
		return until, fmt.Errorf("%w: %d of %d events were done longer than %s ago, row %s at %s; choose newer events",
			ErrDedupWindow, forgotten, len(events), o.DedupWindow, first.ID, first.DoneAt.Format(time.RFC3339))
	}
	return first.DoneAt.Add(o.DedupWindow), nil
}

// ReplayID is the id of the row with which the plan replays the row that has the id original. A
// plan has one such id for each row, so it can never replay a row twice.
func (p *StoredPlan) ReplayID(original core.RowID) core.RowID {
	// Like every row id of the event, it begins with the first half of the event's id.
	sum := sha256.Sum256(append([]byte("replay "+p.ID+" "), original[:]...))
	id := original
	copy(id[8:], sum[:8])
	id[8] = id[8]&0x3f | 0x80 // variant
	return id
}
