package ops_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// try is one call of the publisher.
type try struct {
	core.Delivery
	began, ended time.Time
	ok           bool
}

// busyBroker notes every try. It refuses some events until it is repaired.
type busyBroker struct {
	mu       sync.Mutex
	tries    []try
	repaired bool
	down     string // a topic that is not available
}

func (b *busyBroker) Publish(_ context.Context, d core.Delivery) error {
	began := time.Now()
	time.Sleep(time.Duration(rand.IntN(int(3 * time.Millisecond))))
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	switch n := rand.IntN(100); {
	case b.repaired:
	case d.Topic == b.down:
		err = core.Unavailable(errors.New("the broker is down"))
	case n < 3:
		err = core.Permanent(errors.New("schema 3 has no field total"))
	case n < 6:
		err = core.Transient(errors.New("try again"))
	}
	b.tries = append(b.tries, try{Delivery: d, began: began, ended: time.Now(), ok: err == nil})
	return err
}

func (b *busyBroker) set(fn func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fn()
}

// busyWorld is a table that producers, relays that come and go, and several operators use at once.
type busyWorld struct {
	t      *testing.T
	db     testdb.DB
	broker busyBroker

	mu        sync.Mutex
	committed map[string]core.Event
	refused   map[string]bool // events that the limit of producers has refused
	archived  map[core.RowID]core.ArchivedEvent
	discarded map[core.RowID]bool // rows that an operator has discarded
	edited    map[core.RowID]bool // of these, rows in whose place there is another one
	pauses    []pauseNote
	counts    map[string]int
}

type pauseNote struct {
	core.PauseRequest
	from, to time.Time // from the answer of Pause to the call of Resume
}

func (w *busyWorld) note(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
}

func (w *busyWorld) config() core.Config {
	return core.Config{
		Publisher: &w.broker, Logger: slog.New(slog.DiscardHandler), Relay: relay.Config{
			ShutdownTimeout: 100 * time.Millisecond,
			Retry:           relay.RetryPolicy{BaseDelay: 20 * time.Millisecond, MaxDelay: 200 * time.Millisecond},
			Retention: relay.Retention{
				Keep: 3 * time.Second, KeepDiscarded: 5 * time.Second, CleanupInterval: 100 * time.Millisecond,
				CleanupBatch: 50, Archive: w.archive,
			},
		},
		BacklogLimit: core.BacklogLimit{Rows: 500},
	}
}

// archive fails and panics now and then, also after it has taken some rows.
func (w *busyWorld) archive(_ context.Context, rows []core.ArchivedEvent) error {
	for _, r := range rows {
		switch n := rand.IntN(200); n {
		case 0:
			return errors.New("the archive is away")
		case 1:
			panic("the archive has a bug")
		}
		w.note(func() { w.archived[r.ID] = r })
	}
	return nil
}

const busyTopics = 4

func (w *busyWorld) produce(ctx context.Context, p *fixture.Process, worker int) {
	for n := 0; ctx.Err() == nil; n++ {
		e := core.Event{
			ID: core.NewEventID(), Type: "order.placed", Topic: fmt.Sprint("t", rand.IntN(busyTopics)),
			TenantID: fmt.Sprint("tenant", rand.IntN(3)), Payload: fmt.Appendf(nil, "%d-%d", worker, n),
		}
		if rand.IntN(4) > 0 {
			e.Key = fmt.Sprint(rand.IntN(10))
		}
		var refusal error
		errBack := errors.New("roll back")
		keeps, back := rand.IntN(2) == 0, rand.IntN(20) == 0
		err := p.Tx.RunInTx(context.WithoutCancel(ctx), func(ctx context.Context, tx core.Tx) error {
			_, refusal = p.Outbox.Publish(ctx, tx, e)
			if refusal != nil && keeps {
				return nil // a caller that goes on in spite of the error
			}
			if refusal == nil && back {
				return errBack
			}
			return refusal
		})
		switch {
		case errors.Is(refusal, core.ErrBacklogFull):
			w.note(func() { w.refused[e.ID] = true; w.counts["refused"]++ })
			time.Sleep(20 * time.Millisecond)
		case errors.Is(err, errBack):
			w.note(func() { w.refused[e.ID] = true })
		case err != nil || refusal != nil:
			w.t.Errorf("publish: %v, %v", err, refusal)
			return
		default:
			w.note(func() { w.committed[e.ID] = e })
		}
		time.Sleep(time.Duration(rand.IntN(int(20 * time.Millisecond))))
	}
}

// relay runs and stops relays, one after the other, until ctx ends.
func (w *busyWorld) relay(ctx context.Context) {
	for ctx.Err() == nil {
		p := fixture.JoinProcess(w.t, w.db, nil, w.config())
		run, stop := context.WithTimeout(ctx, 2*time.Second+time.Duration(rand.IntN(int(6*time.Second))))
		_ = p.Outbox.Run(run) // its workers may not end in time
		stop()
		w.note(func() { w.counts["runs"]++ })
	}
}

// follow is how long relays may take to follow a pause: 3 seconds, and more on a busy machine.
const follow = 10 * time.Second

// pauser pauses topics or tenants, and now and then all destinations.
func (w *busyWorld) pauser(ctx context.Context, p *fixture.Process, tenants bool) {
	for ctx.Err() == nil {
		req := core.PauseRequest{Actor: "ada", Reason: "chaos"}
		switch {
		case tenants:
			req.Tenant = fmt.Sprint("tenant", rand.IntN(3))
		case rand.IntN(4) == 0:
			req.All = true
		default:
			req.Topic = fmt.Sprint("t", rand.IntN(busyTopics))
		}
		if err := p.Outbox.Pause(context.WithoutCancel(ctx), req); err != nil {
			w.t.Errorf("pause: %v", err)
			return
		}
		from := time.Now()
		wait(ctx, follow+2*time.Second)
		to := time.Now()
		_, err := p.Outbox.Resume(context.WithoutCancel(ctx), core.ResumeRequest{
			All: req.All, Topic: req.Topic, Tenant: req.Tenant, Actor: "ada", Reason: "over",
		})
		fixture.Check(w.t, err == nil, "resume: %v", err)
		w.note(func() { w.pauses = append(w.pauses, pauseNote{PauseRequest: req, from: from, to: to}) })
		wait(ctx, 2*time.Second)
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (w *busyWorld) operate(ctx context.Context, p *fixture.Process, api *ops.API) {
	for ctx.Err() == nil {
		var err error
		switch rand.IntN(7) {
		case 4:
			err = w.edit(ctx, api)
		case 0:
			var found ops.Page
			statuses := [][]ops.Status{{ops.StatusDead}, {ops.StatusNew, ops.StatusRetry}}[rand.IntN(2)]
			found, err = api.List(ctx, ops.ListQuery{Filter: ops.Filter{Statuses: statuses}, Limit: 3})
			var ids []core.RowID
			for _, e := range found.Events {
				ids = append(ids, e.ID)
				w.note(func() { w.discarded[e.ID] = true })
			}
			if err == nil && len(ids) > 0 {
				_, err = p.Outbox.Discard(ctx, core.AdminRequest{IDs: ids, Actor: "bob", Reason: "chaos"})
			}
		case 1:
			req := core.RateRequest{Topic: fmt.Sprint("t", rand.IntN(busyTopics)), Actor: "bob", Reason: "chaos"}
			if rand.IntN(2) == 0 {
				req.PerSecond, req.InFlight = 20, rand.IntN(3)
			}
			err = p.Outbox.SetRate(ctx, req)
		case 2:
			topic := fmt.Sprint("t", rand.IntN(busyTopics))
			w.broker.set(func() { w.broker.down = topic })
			wait(ctx, time.Second)
			w.broker.set(func() { w.broker.down = "" })
		case 3:
			err = w.plan(ctx, api, func() (ops.Plan, error) {
				return api.PlanReplay(ctx, ops.Filter{
					Topic: fmt.Sprint("t", rand.IntN(busyTopics)), CreatedFrom: time.Now().Add(-time.Second),
				}, ops.ReplayOptions{DedupWindow: time.Hour})
			})
		default:
			err = w.plan(ctx, api, func() (ops.Plan, error) { return api.PlanRedrive(ctx, ops.Filter{}, 0) })
		}
		stopped := errors.Is(err, ops.ErrPlanStopped) || errors.Is(err, ops.ErrPlanRunning)
		fixture.Check(w.t, err == nil || stopped || ctx.Err() != nil, "operator: %v", err)
		wait(ctx, 200*time.Millisecond)
	}
}

// edit changes a header of a dead event.
func (w *busyWorld) edit(ctx context.Context, api *ops.API) error {
	found, err := api.List(ctx, ops.ListQuery{Filter: ops.Filter{Statuses: []ops.Status{ops.StatusDead}}, Limit: 1})
	if err != nil || len(found.Events) == 0 {
		return err
	}
	e := &found.Events[0]
	w.note(func() { w.discarded[e.ID], w.edited[e.ID] = true, true })
	_, err = api.Edit(ctx, ops.EditRequest{
		ID: e.ID, Headers: map[string]string{"edit": e.ID.String()}, Seen: e.Sight(), Actor: "bob", Reason: "chaos",
	})
	if errors.Is(err, ops.ErrChanged) || errors.Is(err, ops.ErrNotFound) { // another operator was faster
		return nil
	}
	if err == nil {
		w.note(func() { w.counts["edits"]++ })
	}
	return err
}

// plan stores a plan, and two operators run it at once. One of them may go away.
func (w *busyWorld) plan(ctx context.Context, api *ops.API, make func() (ops.Plan, error)) error {
	p, err := make()
	if err != nil || len(p.IDs) == 0 {
		return err
	}
	stored, err := api.StorePlan(ctx, p, "bob", "chaos")
	if err != nil {
		return err
	}
	w.note(func() { w.counts["plans of "+string(p.Action)]++ })
	o := ops.RunOptions{Actor: "bob", StopShare: 1, Wait: 2 * time.Second}
	var wg sync.WaitGroup
	wg.Go(func() {
		short, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(int(time.Second))))
		defer cancel()
		_, _ = api.RunPlan(short, stored.ID, o)
	})
	_, err = api.RunPlan(ctx, stored.ID, o)
	wg.Wait()
	return err
}

// Many things happen at once: producers, relays that come and go, a limit of producers, an archive
// that fails, pauses, rates, redrives, discards and replays. No event is lost, invented or out of
// its order. No event is deleted before the archive has it. No paused event is published.
func TestOperatorsAtOnce(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		w := &busyWorld{
			t: t, db: db, committed: map[string]core.Event{}, refused: map[string]bool{},
			archived: map[core.RowID]core.ArchivedEvent{}, discarded: map[core.RowID]bool{},
			edited: map[core.RowID]bool{}, counts: map[string]int{},
		}
		own := fixture.NewProcess(t, db, w.config())
		api, err := sqlops.New(own.Outbox)
		fixture.NoError(t, err)
		busy, calm := context.WithTimeout(t.Context(), 15*time.Second)
		defer calm()
		var relays, others sync.WaitGroup
		on, off := context.WithCancel(t.Context())
		defer relays.Wait()
		defer off()
		for range 2 {
			relays.Go(func() { w.relay(on) })
		}
		for i := range 4 {
			others.Go(func() { w.produce(busy, own, i) })
		}
		others.Go(func() { w.pauser(busy, own, false) })
		others.Go(func() { w.pauser(busy, own, true) })
		for range 2 {
			others.Go(func() { w.operate(busy, own, api) })
		}
		others.Wait()

		w.broker.set(func() { w.broker.repaired = true })
		for i := range busyTopics {
			fixture.NoError(t, own.Outbox.SetRate(t.Context(), core.RateRequest{
				Topic: fmt.Sprint("t", i), Actor: "bob", Reason: "over",
			}))
		}
		fixture.AwaitIn(t, 2*time.Minute, "nothing is dead or open", func() bool {
			p, err := api.PlanRedrive(t.Context(), ops.Filter{}, 0)
			fixture.NoError(t, err)
			if len(p.IDs) > 0 {
				_, err = api.Apply(t.Context(), p, "bob", "the end")
				fixture.NoError(t, err)
			}
			b, err := own.Outbox.Backlog(t.Context())
			fixture.NoError(t, err)
			return b.Pending == 0 && b.Dead == 0
		})
		fixture.AwaitIn(t, 2*time.Minute, "the archive has all", func() bool {
			n, err := api.Count(t.Context(), ops.Filter{})
			fixture.NoError(t, err)
			return n.N == 0
		})
		off()
		relays.Wait()
		w.compare()
	})
}

func (w *busyWorld) compare() {
	t := w.t
	rows := map[string]core.ArchivedEvent{} // by event, the row that is no replay
	replays := 0
	for id, r := range w.archived {
		switch want, known := w.committed[r.Event.ID]; {
		case !known:
			t.Errorf("event %s was never committed, and has a row", r.Event.ID)
		case !bytes.Equal(want.Payload, r.Event.Payload) || want.Topic != r.Event.Topic || want.Key != r.Event.Key ||
			want.TenantID != r.Event.TenantID:
			t.Errorf("the archive has %+v of %+v", r.Event, want)
		}
		if !r.ReplayOf.IsZero() {
			replays++
			continue
		}
		if first, twice := rows[r.Event.ID]; twice {
			switch {
			case w.edited[id] && r.Discarded:
				continue
			case !w.edited[first.ID] || !first.Discarded:
				t.Errorf("event %s has two rows", r.Event.ID)
			}
		}
		rows[r.Event.ID] = r
		fixture.Check(t, !r.Discarded || w.discarded[id], "row %s was discarded, and nobody asked for that", id)
	}
	published := map[core.RowID]time.Time{} // first success
	began := map[core.RowID]time.Time{}     // first try
	type place struct {
		id  core.RowID
		seq int64
	}
	keys := map[string][]place{}
	for _, p := range w.broker.tries {
		if _, known := w.committed[p.ID]; !known {
			t.Errorf("event %s was published, and never committed", p.ID)
		}
		if at, seen := began[p.RowID]; !seen || p.began.Before(at) {
			if !seen && p.KeySeq > 0 {
				key := fmt.Sprintf("%s %s %s replay:%t", p.TenantID, p.Topic, p.Key, !p.ReplayOf.IsZero())
				keys[key] = append(keys[key], place{p.RowID, p.KeySeq})
			}
			began[p.RowID] = p.began
		}
		if at, seen := published[p.RowID]; p.ok && (!seen || p.ended.Before(at)) {
			published[p.RowID] = p.ended
		}
		for _, pause := range w.pauses {
			if (pause.All || pause.Topic == p.Topic || pause.Tenant != "" && pause.Tenant == p.TenantID) &&
				p.began.After(pause.from.Add(follow)) && p.began.Before(pause.to) {
				t.Errorf("event of %s and %s was published %s after the pause %+v", p.Topic, p.TenantID,
					p.began.Sub(pause.from), pause.PauseRequest)
			}
		}
	}
	for id := range w.committed {
		r, there := rows[id]
		if !there {
			t.Errorf("event %s was committed, and is gone without the archive", id)
			continue
		}
		if _, out := published[r.ID]; !out && !r.Discarded {
			t.Errorf("event %s is done, and was not published", id)
		}
	}
	for id, r := range w.archived {
		if _, out := published[id]; !r.ReplayOf.IsZero() && !out && !r.Discarded {
			t.Errorf("replay %s is done, and was not published", id)
		}
	}
	for key, all := range keys {
		for _, a := range all {
			for _, b := range all {
				fixture.Check(t, a.seq >= b.seq || !published[a.id].After(began[b.id]),
					"key %s: number %d was published after %d had begun", key, a.seq, b.seq)
			}
		}
	}
	w.counts["committed"], w.counts["archived"], w.counts["replays"] = len(w.committed), len(w.archived), replays
	w.counts["tries"], w.counts["pauses"] = len(w.broker.tries), len(w.pauses)
	t.Logf("%v", w.counts)
	if len(w.committed) == 0 || len(w.archived) < len(w.committed) {
		t.Errorf("nothing happened: %v", w.counts)
	}
}

// The observer of the process hears of every event that a person changes through the process, in
// any way.
func TestOperatorsAreObserved(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		var mu sync.Mutex
		seen := map[core.OperatorAction]int{}
		w := newWorld(t, db, core.Config{
			Relay: relay.Config{PollInterval: 20 * time.Millisecond},
			Observer: &core.Observer{Operated: func(info core.OperatedInfo) {
				mu.Lock()
				defer mu.Unlock()
				seen[info.Action] += info.Rows
				if info.Duration <= 0 {
					t.Errorf("a %s took %s", info.Action, info.Duration)
				}
			}},
		})
		w.Publish(
			core.Event{Type: "dead", Topic: "orders"},
			core.Event{Type: "dead", Topic: "orders"},
			core.Event{Type: "dead", Topic: "orders"},
			core.Event{
				Type:          "paid",
				Topic:         "orders",
				AggregateType: "order",
				AggregateID:   "1",
			},
			core.Event{Type: "dead", Topic: "mails"},
		)
		w.drain()
		w.Publisher.FailFor(nil)
		apply := func(p ops.Plan, err error) {
			t.Helper()
			fixture.NoError(t, err)
			_, err = w.api.Apply(t.Context(), p, "ada", "r")
			fixture.NoError(t, err)
		}
		apply(w.api.PlanDiscard(t.Context(), ops.Filter{Topic: "mails"}, 0))
		apply(w.api.PlanRedrive(t.Context(), ops.Filter{}, 1))
		dead, err := w.Outbox.ListDead(t.Context(), core.DeadQuery{})
		fixture.NoError(t, err)
		_, err = w.api.Edit(t.Context(), ops.EditRequest{
			ID: dead[0].ID, Payload: []byte("{}"), Actor: "ada", Reason: "r",
		})
		fixture.NoError(t, err)
		stop := w.Run()
		defer stop()
		run := func(p ops.Plan, err error) {
			t.Helper()
			fixture.NoError(t, err)
			stored, err := w.api.StorePlan(t.Context(), p, "ada", "r")
			fixture.NoError(t, err)
			_, err = w.api.RunPlan(t.Context(), stored.ID, ops.RunOptions{Actor: "ada"})
			fixture.NoError(t, err)
		}
		run(w.api.PlanRedrive(t.Context(), ops.Filter{}, 0))
		fixture.Await(t, "all events are done", func() bool {
			b, err := w.Outbox.Backlog(t.Context())
			return err == nil && b.Pending+b.Dead == 0
		})
		run(w.api.PlanReplay(t.Context(), ops.Filter{}, ops.ReplayOptions{DedupWindow: window}))
		_, err = w.api.Erase(t.Context(), ops.EraseRequest{ // of the event and its replay
			AggregateType: "order", AggregateID: "1", Open: true, Actor: "ada", Reason: "r",
		})
		fixture.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		if want := map[core.OperatorAction]int{
			core.OperatorDiscard: 1, core.OperatorRedrive: 2, core.OperatorEdit: 1, core.OperatorReplay: 4,
			core.OperatorErase: 2,
		}; !maps.Equal(seen, want) {
			t.Errorf("%v, want %v", seen, want)
		}
	})
}
