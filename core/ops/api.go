package ops

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/ormoutbox/ormoutbox/core"
)

// Limits of a call.
const (
	DefaultLimit = 100  // events on a page
	MaxLimit     = 1000 // events on a page
	MaxCount     = 1000 // events that Count counts
	Neighbours   = 10   // events of the key that Show returns on each side
)

// ErrNotFound is wrapped by the error of Show if no row has that id.
var ErrNotFound = errors.New("ops: no such event")

// API answers questions about the events of an Outbox and changes events. Create it with New. It is
// safe for use by several goroutines.
type API struct {
	outbox *core.Outbox
	store  Store
	beside *besides
}

// New returns the API of an Outbox whose tables the Store reads and changes. Programs with the
// tables of package sqloutbox call sqlops.New. In memory a *outboxtest.Repository is a Store. Give
// New the Outbox that runs the relay, if this process has one: Explain then has the list of stopped
// destinations, and a redrive wakes the relay. Give every Outbox the DeadPolicy of the relay. New
// uses no database.
func New(ob *core.Outbox, store Store) (*API, error) {
	if ob == nil || store == nil {
		return nil, errors.New("ops: the Outbox or the Store is nil")
	}
	return &API{outbox: ob, store: store, beside: newBesides(store)}, nil
}

// ListQuery selects the events that List returns.
type ListQuery struct {
	Filter
	Newest bool   // in reverse order
	After  string // Page.Next of the page before
	Limit  int    // default DefaultLimit, at most MaxLimit
}

// Page is a part of a list.
type Page struct {
	Events []Event `json:"events"`
	// Next is ListQuery.After of the next page, with the same filter and direction. Empty: this is
	// the last page.
	Next string `json:"next,omitempty"`
	// Truncated: the page is short, perhaps empty, because MaxLook rows were examined. More events
	// may follow: go on with Next.
	Truncated bool `json:"truncated,omitempty"`
}

// List returns events in the order of an index: by row id, which begins with the time of the
// event's id. If Filter.Statuses has StatusNew or StatusRetry, and neither StatusDone nor
// StatusDiscarded, open events without a key come first, by topic and due time. The events of the
// keys follow, each key in its order, and then the dead ones without a key. A filter that makes no
// sense, or After of another filter, is refused with an error wrapping core.ErrInvalidRequest.
func (a *API) List(ctx context.Context, q ListQuery) (Page, error) {
	if err := q.check(); err != nil {
		return Page{}, err
	}
	if q.Limit <= 0 {
		q.Limit = DefaultLimit
	}
	s, err := a.store.ScanEvents(ctx, Scan{
		Filter: q.Filter, Newest: q.Newest, After: q.After, Limit: min(q.Limit, MaxLimit), Look: MaxLook,
	})
	return Page(s), err
}

// Rows returns the rows with these ids, in this order. It leaves out ids that no row has. It reads
// one row a query.
func (a *API) Rows(ctx context.Context, ids ...core.RowID) (events []Event, err error) {
	for _, id := range ids {
		if id.IsZero() {
			continue
		}
		s, err := a.store.ScanEvents(ctx, Scan{ID: id, Limit: 1, Look: 1})
		if err != nil {
			return nil, err
		}
		events = append(events, s.Events...)
	}
	return events, nil
}

// Count is a number of events that was counted up to a limit.
type Count struct {
	N    int  `json:"n"`
	More bool `json:"more,omitempty"` // there may be more
}

// String returns the number, with a plus if there may be more: "37", "1000+".
func (c Count) String() string {
	if c.More {
		return strconv.Itoa(c.N) + "+"
	}
	return strconv.Itoa(c.N)
}

// Count counts the events that the filter selects, up to MaxCount.
func (a *API) Count(ctx context.Context, f Filter) (Count, error) {
	if err := f.check(); err != nil {
		return Count{}, err
	}
	s, err := a.store.ScanEvents(ctx, Scan{Filter: f, Limit: MaxCount, Look: MaxLook})
	return Count{N: len(s.Events), More: s.Next != ""}, err
}

// Show returns all about an event. id is a row's or an event's: an event with several destinations
// has one row for each. The error wraps ErrNotFound if there is none, and core.ErrInvalidRequest if
// id is empty or cannot be an id.
func (a *API) Show(ctx context.Context, id string) ([]Details, error) {
	events, err := a.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(events) == 0 {
		return nil, fmt.Errorf("%w: %s: its transaction has not committed, or it was deleted after the retention",
			ErrNotFound, id)
	}
	all := make([]Details, 0, len(events))
	for _, e := range events {
		d, err := a.details(ctx, e)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

func (a *API) details(ctx context.Context, e Event) (d Details, err error) {
	d.Event = e
	if d.Content, _, err = a.store.ReadContent(ctx, e.ID); err != nil {
		return d, err
	}
	if d.Failures, err = a.store.ReadFailures(ctx, e.ID); err != nil {
		return d, err
	}
	if d.Audit, err = a.store.ReadAudit(ctx, e.ID); err != nil || e.KeyID.IsZero() {
		return d, err
	}
	ahead, err := a.store.ScanEvents(ctx, Scan{
		KeyID: e.KeyID, BeforeSeq: e.KeySeq, Newest: true, Limit: Neighbours, Look: MaxLook,
	})
	if err != nil {
		return d, err
	}
	for i := range ahead.Events { // they come from the nearest on
		d.Ahead = append(d.Ahead, ahead.Events[len(ahead.Events)-1-i])
	}
	behind, err := a.store.ScanEvents(ctx, Scan{KeyID: e.KeyID, AfterSeq: e.KeySeq, Limit: Neighbours, Look: MaxLook})
	d.Behind = behind.Events
	return d, err
}

// find returns the row with that id, or the rows of the event with that id.
func (a *API) find(ctx context.Context, id string) ([]Event, error) {
	if id == "" { // as a filter it would select every event
		return nil, invalid("the id is empty")
	}
	f := Filter{EventID: id}
	if err := f.check(); err != nil {
		return nil, err
	}
	if row, err := core.ParseRowID(id); err == nil {
		found, err := a.Rows(ctx, row)
		if err != nil || len(found) > 0 {
			return found, err
		}
	}
	s, err := a.store.ScanEvents(ctx, Scan{Filter: f, Limit: MaxLimit, Look: MaxLook})
	return s.Events, err
}

// Pause stops the events of a topic, or of all topics, on every relay of the table. It calls
// core.Outbox.Pause.
func (a *API) Pause(ctx context.Context, req core.PauseRequest) error {
	return a.outbox.Pause(ctx, req)
}

// Resume ends a pause, and reports whether there was one. It calls core.Outbox.Resume.
func (a *API) Resume(ctx context.Context, req core.ResumeRequest) (resumed bool, err error) {
	return a.outbox.Resume(ctx, req)
}

// Pauses returns the pauses that hold now. It calls core.Outbox.Pauses.
func (a *API) Pauses(ctx context.Context) ([]core.Pause, error) { return a.outbox.Pauses(ctx) }
