package ops_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

const window = 7 * 24 * time.Hour

// A replay gives a destination each event once more with what it had, each key in its order, beside
// new events of the key, which do not wait. The rows that were done stay as they are.
func TestReplay(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := &poisoned{world: newWorld(t, db, core.Config{PollInterval: 20 * time.Millisecond})}
		var events []core.Event
		for i := range 30 {
			e := core.Event{
				Type: "paid", Topic: "orders", Payload: fmt.Appendf(nil, `{"n":%d}`, i), TenantID: "t",
				Headers: map[string]string{"h": fmt.Sprint(i)},
			}
			if i%3 > 0 {
				e.Key = fmt.Sprint("k", i%3)
			}
			events = append(events, e)
		}
		ids := w.Publish(events...)
		w.Publish(core.Event{Type: "sent", Topic: "mails", Key: "k1"})
		w.drain()
		before := map[string]core.Delivery{}
		for _, d := range w.Publisher.Accepted() {
			before[d.ID] = d
		}
		rows := map[string]ops.Event{}
		for _, id := range ids {
			rows[id] = w.one(id)
			rows[id] = withoutReadAt(rows[id])
		}

		p, err := w.api.PlanReplay(t.Context(), ops.Filter{Topic: "orders"}, ops.ReplayOptions{DedupWindow: window})
		fixture.NoError(t, err)
		if _, err := w.api.Apply(t.Context(), p, "ada", "r"); !errors.Is(err, core.ErrInvalidRequest) {
			t.Errorf("Apply of a replay: %v", err)
		}
		w.plan, err = w.api.StorePlan(t.Context(), p, "ada", "search lost its index")
		fixture.NoError(t, err)

		w.breaks("paid", 0) // the destination refuses: one replay is dead, and no more are inserted
		stop := w.Run()
		if p, err := w.run(ops.RunOptions{}); !errors.Is(err, ops.ErrPlanStopped) || p.Position != 1 || p.Failed != 1 {
			t.Fatalf("%+v %v", p, err)
		}
		w.Publisher.FailFor(nil)
		seen := len(w.Publisher.Accepted())
		live := w.Publish(core.Event{Type: "live", Topic: "orders", Key: "k1", TenantID: "t"},
			core.Event{Type: "live", Topic: "orders", Key: "k2", TenantID: "t"})
		w.Publisher.Wait(t, seen+2) // a replay that is dead stops no live event
		fixture.NoError(t, w.redriveDead())
		done, err := w.run(ops.RunOptions{})
		if err != nil || done.State != ops.PlanDone || done.Changed != 30 || done.Succeeded != 29 || done.Failed != 1 {
			t.Fatalf("%+v %v", done, err)
		}
		if _, err := w.run(ops.RunOptions{}); !errors.Is(err, ops.ErrPlanEnded) {
			t.Errorf("a plan that is done: %v", err)
		}
		got := w.Publisher.Wait(t, seen+2+30)[seen:]
		stop()

		again := map[string][]string{}
		for _, d := range got {
			if slices.Contains(live, d.ID) {
				if !d.ReplayOf.IsZero() {
					t.Errorf("a live event is a replay: %+v", d)
				}
				continue
			}
			was, row := before[d.ID], rows[d.ID]
			if d.ReplayOf != row.ID || d.RowID == row.ID || d.Topic != was.Topic || d.Key != was.Key ||
				d.Type != was.Type || d.TenantID != "t" || string(d.Payload) != string(was.Payload) ||
				d.Headers["h"] != was.Headers["h"] || (d.Headers[core.HeaderFirstKeySeq] != "") != (d.Key != "") {
				t.Errorf("replayed %+v\nof %+v", d, was)
			}
			again[d.Key] = append(again[d.Key], d.ID)
		}
		for key, list := range again {
			var want []string
			for i, e := range events {
				if e.Key == key {
					want = append(want, ids[i])
				}
			}
			if key == "" {
				slices.Sort(want)
				slices.Sort(list)
			}
			if !slices.Equal(list, want) {
				t.Errorf("key %q: replayed %v, want %v", key, list, want)
			}
		}
		if n := slices.Sorted(maps.Keys(again)); len(n) != 3 || len(got) != 32 {
			t.Errorf("%d arrived, of keys %q", len(got), n)
		}
		for id, row := range rows {
			page, err := w.api.List(t.Context(), ops.ListQuery{Filter: ops.Filter{EventID: id}})
			fixture.NoError(t, err)
			i := slices.IndexFunc(page.Events, func(e ops.Event) bool { return e.ID == row.ID })
			if len(page.Events) != 2 || withoutReadAt(page.Events[i]) != row ||
				page.Events[1-i].ReplayOf != row.ID || page.Events[1-i].Status != ops.StatusDone {
				t.Errorf("the rows of %s are %+v, and its row was %+v", id, page.Events, row)
			}
		}
	})
}

func withoutReadAt(e ops.Event) ops.Event {
	e.ReadAt = time.Time{}
	return e
}

// redriveDead redrives every dead event.
func (w *poisoned) redriveDead() error {
	p, err := w.api.PlanRedrive(w.T.Context(), ops.Filter{}, 0)
	if err == nil {
		_, err = w.api.Apply(w.T.Context(), p, "ada", "the destination is back")
	}
	return err
}

// PlanReplay refuses events that cannot be replayed.
func TestReplayIsRefused(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db, core.Config{})
		ids := w.Publish(core.Event{Type: "paid", Topic: "orders"}, core.Event{Type: "dead", Topic: "orders"})
		w.drain()
		done, dead := w.one(ids[0]), w.one(ids[1])
		fixture.Await(t, "the clock of SQLite, which counts milliseconds, goes on", func() bool {
			return w.one(ids[0]).ReadAt.After(done.DoneAt.Add(time.Microsecond))
		})
		invalid := core.ErrInvalidRequest
		byID := func(ids ...core.RowID) ops.ReplayOptions { return ops.ReplayOptions{DedupWindow: window, IDs: ids} }
		for name, c := range map[string]struct {
			filter ops.Filter
			o      ops.ReplayOptions
			want   error
		}{
			"no window":        {want: invalid},
			"forgotten":        {o: ops.ReplayOptions{DedupWindow: time.Microsecond}, want: ops.ErrDedupWindow},
			"a dead row":       {o: byID(dead.ID), want: invalid},
			"no row":           {o: byID(core.RowID{1}), want: invalid},
			"a negative limit": {o: ops.ReplayOptions{DedupWindow: window, Limit: -1}, want: invalid},
			"another status": {
				filter: ops.Filter{Statuses: []ops.Status{ops.StatusDead}}, o: ops.ReplayOptions{DedupWindow: window},
				want: invalid,
			},
			"ids and a filter": {
				filter: ops.Filter{Topic: "orders"}, o: byID(done.ID), want: invalid,
			},
		} {
			if p, err := w.api.PlanReplay(t.Context(), c.filter, c.o); !errors.Is(err, c.want) {
				t.Errorf("%s: %+v %v", name, p, err)
			}
		}
		p, err := w.api.PlanReplay(t.Context(), ops.Filter{}, byID(done.ID, done.ID))
		if err != nil || len(p.IDs) != 1 || p.Until.Before(done.DoneAt) {
			t.Errorf("%+v %v", p, err)
		}
	})
}
