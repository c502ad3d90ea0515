package ops_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

const window = 7 * 24 * time.Hour

// A replay sends each event to its destination once more, unchanged and in the order of its key.
// New events of the key do not wait for it. The rows that were done do not change.
func TestReplay(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := &poisoned{world: newWorld(t, db, core.Config{Relay: relay.Config{PollInterval: 20 * time.Millisecond}})}
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
				fixture.Check(t, d.ReplayOf.IsZero(), "a live event is a replay: %+v", d)
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
			fixture.Check(t, slices.Equal(list, want), "key %q: replayed %v, want %v", key, list, want)
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
		fixture.Check(t, err == nil && len(p.IDs) == 1 && !p.Until.Before(done.DoneAt), "%+v %v", p, err)
	})
}

// PlanReplay respects the windows that consumers have declared for each topic. RunPlan respects
// shorter windows that they declare later.
func TestReplayFollowsDeclaredWindows(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db, core.Config{Relay: relay.Config{PollInterval: 20 * time.Millisecond}})
		ids := w.Publish(core.Event{Type: "paid", Topic: "orders"}, core.Event{Type: "sent", Topic: "mails"})
		w.drain()
		done := w.one(ids[0])
		fixture.Await(t, "the clock of SQLite, which counts milliseconds, goes on", func() bool {
			return w.one(ids[0]).ReadAt.After(done.DoneAt.Add(time.Millisecond))
		})
		declare := func(topic, consumer string, keep time.Duration) {
			t.Helper()
			fixture.NoError(t, w.api.DeclareWindow(t.Context(), ops.WindowRequest{
				Topic: topic, Consumer: consumer, Keep: keep, Actor: "ann", Reason: "its inbox",
			}))
		}
		plan := func(topic string, o ops.ReplayOptions) (ops.Plan, error) {
			return w.api.PlanReplay(t.Context(), ops.Filter{Topic: topic}, o)
		}
		refused := func(name string, err, want error, texts ...string) {
			t.Helper()
			fixture.Must(t, errors.Is(err, want), "%s: %v, want %v", name, err, want)
			for _, text := range texts {
				fixture.Check(t, strings.Contains(err.Error(), text), "%s: %v does not say %q", name, err, text)
			}
		}

		_, err := plan("orders", ops.ReplayOptions{})
		refused("no window", err, core.ErrInvalidRequest, "DedupWindow is missing")
		declare("orders", "search", ops.Forever)
		declare("orders", "billing", window)
		declare("orders", "billing", window)
		if n := len(w.audit()); n != 2 {
			t.Errorf("%d audit rows, want one for each change", n)
		}
		_, err = plan("", ops.ReplayOptions{})
		refused("one topic has none", err, core.ErrInvalidRequest, "no consumer of topic mails")
		p, err := plan("orders", ops.ReplayOptions{})
		if err != nil || !p.Until.Equal(done.DoneAt.Add(window)) || p.Windows["orders"] != window || p.Beyond != "" {
			t.Errorf("the shortest window: %+v %v", p, err)
		}
		p, err = plan("", ops.ReplayOptions{DedupWindow: time.Hour})
		if err != nil || len(p.IDs) != 2 || p.Windows["orders"] != time.Hour || p.Windows["mails"] != time.Hour {
			t.Errorf("narrowed: %+v %v", p, err)
		}
		p, err = plan("orders", ops.ReplayOptions{DedupWindow: 2 * window})
		fixture.Check(t, err == nil && p.Windows["orders"] == window, "DedupWindow cannot widen: %+v %v", p, err)
		_, err = plan("orders", ops.ReplayOptions{DedupWindow: time.Microsecond})
		refused("narrowed too far", err, ops.ErrDedupWindow, "DedupWindow is 1µs", done.ID.String())
		_, err = plan("orders", ops.ReplayOptions{BeyondWindows: true})
		refused("beyond, but how far?", err, core.ErrInvalidRequest)

		stored, err := w.api.StorePlan(t.Context(), p, "ann", "INC-7")
		fixture.NoError(t, err)
		declare("orders", "billing", time.Microsecond)
		_, err = plan("orders", ops.ReplayOptions{DedupWindow: window})
		refused("forgotten", err, ops.ErrDedupWindow, "consumer billing remembers events of orders for 1µs",
			"1 of 1 events", done.ID.String())
		_, err = w.api.RunPlan(t.Context(), stored.ID, ops.RunOptions{Actor: "ann"})
		refused("run", err, ops.ErrDedupWindow, "consumer billing", "after the plan was made")
		if x := w.explain(ids[0]); !strings.Contains(x.Text, "no more: consumer billing has forgotten it") {
			t.Errorf("explained as %q", x.Text)
		}
		p, err = plan("orders", ops.ReplayOptions{DedupWindow: window, BeyondWindows: true})
		fixture.Must(t, err == nil && len(p.IDs) == 1 && strings.Contains(p.Beyond, "consumer billing"),
			"beyond: %+v %v", p, err)
		stored, err = w.api.StorePlan(t.Context(), p, "ann", "INC-7")
		fixture.NoError(t, err)
		if a := w.audit()[0]; !strings.Contains(a.Reason, "beyond: consumer billing remembers") {
			t.Errorf("audited as %+v", a)
		}
		stop := w.Run()
		ran, err := w.api.RunPlan(t.Context(), stored.ID, ops.RunOptions{Actor: "ann"})
		fixture.Check(t, err == nil && ran.Succeeded == 1, "beyond: %+v %v", ran, err)
		stop()

		there, err := w.api.WithdrawWindow(t.Context(), ops.WindowRequest{
			Topic: "orders", Consumer: "billing", Actor: "ann", Reason: "gone",
		})
		fixture.NoError(t, err)
		if p, err = plan("orders", ops.ReplayOptions{}); !there || err != nil || p.Windows["orders"] != ops.Forever {
			t.Errorf("withdrawn: %v %+v %v", there, p, err)
		}
	})
}

// audit returns the newest entries first.
func (w *world) audit() []core.AuditRecord {
	w.T.Helper()
	all, err := w.Outbox.ListAudit(w.T.Context(), core.AuditQuery{Limit: 100})
	fixture.NoError(w.T, err)
	return all
}

// DeclareWindow refuses requests that make no sense, before it writes anything. A dry run refuses
// the same requests, and it never writes.
func TestDeclareWindowIsRefused(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db, core.Config{})
		good := ops.WindowRequest{Topic: "orders", Consumer: "search", Keep: time.Hour, Actor: "ann", Reason: "r"}
		for name, change := range map[string]func(r *ops.WindowRequest){
			"no topic":        func(r *ops.WindowRequest) { r.Topic = "" },
			"a long topic":    func(r *ops.WindowRequest) { r.Topic = strings.Repeat("x", 250) },
			"no consumer":     func(r *ops.WindowRequest) { r.Consumer = "" },
			"a long consumer": func(r *ops.WindowRequest) { r.Consumer = strings.Repeat("x", 129) },
			"a control code":  func(r *ops.WindowRequest) { r.Consumer = "a\nb" },
			"no time":         func(r *ops.WindowRequest) { r.Keep = 0 },
			"less than none":  func(r *ops.WindowRequest) { r.Keep = -time.Hour },
			"nobody":          func(r *ops.WindowRequest) { r.Actor = "" },
			"no reason":       func(r *ops.WindowRequest) { r.Reason = "" },
		} {
			bad := good
			change(&bad)
			for _, bad.DryRun = range []bool{true, false} {
				if err := w.api.DeclareWindow(t.Context(), bad); !errors.Is(err, core.ErrInvalidRequest) {
					t.Errorf("%s, dry run %t: %v", name, bad.DryRun, err)
				}
			}
		}
		dry := good
		dry.DryRun = true
		fixture.NoError(t, w.api.DeclareWindow(t.Context(), dry))
		if _, err := w.api.WithdrawWindow(t.Context(), good); !errors.Is(err, core.ErrInvalidRequest) {
			t.Errorf("withdraw with Keep: %v", err)
		}
		if all, err := w.api.Windows(t.Context()); err != nil || len(all) != 0 || len(w.audit()) != 0 {
			t.Errorf("%+v %v, audited %+v", all, err, w.audit())
		}
		dry.Keep = 0
		withdraws := func(want bool) {
			t.Helper()
			if there, err := w.api.WithdrawWindow(t.Context(), dry); err != nil || there != want {
				t.Errorf("a dry run withdraws %t, %v, want %t", there, err, want)
			}
		}
		withdraws(false)
		fixture.NoError(t, w.api.DeclareWindow(t.Context(), good))
		withdraws(true)
		if all, err := w.api.Windows(t.Context()); err != nil || len(all) != 1 || len(w.audit()) != 1 {
			t.Errorf("%+v %v, audited %+v", all, err, w.audit())
		}
	})
}
