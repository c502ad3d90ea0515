package ops

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// ErrDedupWindow is wrapped by the error of PlanReplay and RunPlan if consumers may have forgotten
// an event: they would process it a second time. The call has replayed nothing.
var ErrDedupWindow = errors.New("ops: consumers may have forgotten the events")

// ReplayOptions are options of PlanReplay. Its zero value is for topics whose consumers declared
// their windows.
type ReplayOptions struct {
	// DedupWindow is how long the consumers remember an event, see Window.Keep. Events that were
	// published longer ago are refused. It is required if a topic has no window that a consumer
	// declared (DeclareWindow). For other topics the shorter of the two applies.
	DedupWindow time.Duration
	// BeyondWindows makes DedupWindow hold even if a consumer declared a shorter window. Such a
	// consumer may process events a second time. Plan.Beyond and the audit row name it.
	BeyondWindows bool
	// IDs are the rows to replay. Empty: the rows that the filter selects.
	IDs []core.RowID
	// Limit is how many events the plan can have. If there are more, PlanReplay refuses. Default,
	// and the largest value: MaxPlan.
	Limit int
}

// PlanReplay plans to publish done events again: the events that the filter selects, or with
// ReplayOptions.IDs those rows, and then the filter is empty. Filter.Statuses may be StatusDone or
// empty, which means the same. It changes nothing. Store the plan with StorePlan, and work it off
// with RunPlan.
//
// RunPlan gives each event a new row with the same event id, topic, key and payload. The row that
// was done stays as it is. The rows of a replay have an order of their own for each key, by the
// plan. They neither wait for new events of the key nor delay them. A relay publishes them with low
// priority: they hold up no other event.
//
// Consumers that remember the event skip it, so a replay reaches only consumers that never
// processed it. The error wraps ErrDedupWindow if a consumer has forgotten one of the events: it
// was done longer ago than the shortest Window of its topic, or than ReplayOptions.DedupWindow. It
// wraps core.ErrInvalidRequest for options that make no sense, a topic without a window, a row that
// is not done or is a replay itself, and more events than Limit. A filter passes over rows of
// earlier replays: it selects each event once.
func (a *API) PlanReplay(ctx context.Context, f Filter, o ReplayOptions) (Plan, error) {
	if err := o.check(&f); err != nil {
		return Plan{}, err
	}
	declared, err := a.shortest(ctx)
	if err != nil {
		return Plan{}, err
	}
	if o.DedupWindow == 0 && len(declared) == 0 {
		return Plan{}, noWindow("any topic")
	}
	f.Statuses = []Status{StatusDone}
	var events []Event
	if len(o.IDs) > 0 {
		events, err = a.distinctRows(ctx, o.IDs, replayable)
	} else {
		events, err = a.doneEvents(ctx, f, o.Limit)
	}
	if err != nil {
		return Plan{}, err
	}
	p := newPlan(ActionReplay, f, events)
	m := memory{windows: map[string]Window{}}
	for _, topic := range slices.Sorted(maps.Keys(p.Topics)) {
		if err := m.add(topic, declared, o); err != nil {
			return Plan{}, err
		}
	}
	if p.Until, err = m.until(events); err != nil {
		return Plan{}, err
	}
	p.Beyond = strings.Join(m.beyond, "; ")
	if p.Beyond == "" {
		p.Windows = map[string]time.Duration{}
		for topic, w := range m.windows {
			p.Windows[topic] = w.Keep
		}
	}
	return p, nil
}

func (o *ReplayOptions) check(f *Filter) error {
	for _, s := range f.Statuses {
		if s != StatusDone {
			return invalid("only done events can be replayed, not %s ones", s)
		}
	}
	if o.DedupWindow < 0 {
		return invalid("{DedupWindow} %s is negative", o.DedupWindow)
	}
	if o.BeyondWindows && o.DedupWindow == 0 {
		return invalid(
			"{BeyondWindows} needs {DedupWindow}: what holds in place of the windows that consumers declared?",
		)
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
		return invalid("{ReplayOptions.IDs} and a filter exclude each other")
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

// doneEvents reads the events that a filter selects, except for replays.
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

func noWindow(topic string) error {
	return invalid(
		"{DedupWindow} is missing, and no consumer of %s has declared its window: how long do the consumers "+
			"remember an event?",
		topic,
	)
}

// memory has how long the consumers remember the events of a replay.
type memory struct {
	windows map[string]Window // the shortest of each topic; without a Consumer: ReplayOptions.DedupWindow
	beyond  []string          // declared windows that do not hold
}

// add finds the window of a topic.
func (m *memory) add(topic string, declared map[string]Window, o ReplayOptions) error {
	w, ok := declared[topic]
	switch {
	case !ok && o.DedupWindow == 0:
		return noWindow("topic " + topic)
	case !ok, o.DedupWindow > 0 && o.DedupWindow < w.Keep:
		w = Window{Topic: topic, Keep: o.DedupWindow}
	case o.BeyondWindows && o.DedupWindow > w.Keep:
		m.beyond = append(m.beyond, w.String())
		w = Window{Topic: topic, Keep: o.DedupWindow}
	}
	m.windows[topic] = w
	return nil
}

// until returns when a consumer forgets the first of the events.
func (m *memory) until(events []Event) (until time.Time, err error) {
	var first *Event // the first event that a consumer has forgotten
	forgotten := 0
	for i := range events {
		e := &events[i]
		end := forgets(e.DoneAt, m.windows[e.Topic].Keep)
		if until.IsZero() || end.Before(until) {
			until = end
		}
		if !end.Before(e.ReadAt) {
			continue
		}
		if forgotten++; first == nil || e.DoneAt.Before(first.DoneAt) {
			first = e
		}
	}
	if forgotten == 0 {
		return until, nil
	}
	w := m.windows[first.Topic]
	known := "DedupWindow is " + w.Keep.String()
	if w.Consumer != "" {
		known = w.String()
	}
	return time.Time{}, fmt.Errorf("%w: %s, and %d of %d events were done too long ago, row %s at %s; choose newer "+
		"events", ErrDedupWindow, known, forgotten, len(events), first.ID, first.DoneAt.Format(time.RFC3339))
}

// stillRemembered returns an error if a consumer has declared a shorter window since a replay was
// planned.
func (a *API) stillRemembered(ctx context.Context, p *Plan) error {
	if p.Action != ActionReplay || p.Beyond != "" {
		return nil
	}
	declared, err := a.shortest(ctx)
	if err != nil {
		return err
	}
	for topic, planned := range p.Windows {
		if w, ok := declared[topic]; ok && w.Keep < planned {
			return fmt.Errorf("%w: %s, which it declared after the plan was made; make a new one", ErrDedupWindow, w)
		}
	}
	return nil
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
