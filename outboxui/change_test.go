package outboxui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// relay runs the relay until the test ends.
func (w *world) relay() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.ob.Run(ctx) }()
	return func() { cancel(); <-ended }
}

// died publishes n orders of n keys, which die. It returns their group.
func (w *world) died(n int) string {
	w.t.Helper()
	w.ob.Publisher.FailFor(func(core.Delivery) error { return tooLarge(2_000_000) })
	for i := range n {
		w.publish(core.Event{
			Type: "order.placed", Topic: "orders", Key: fmt.Sprintf("order/%d", i),
			Payload: []byte("x"),
		})
	}
	must(w.t, w.ob.Drain(w.t.Context()))
	return w.aGroup()
}

func (w *world) status(row string) ops.Status {
	w.t.Helper()
	id, err := core.ParseRowID(row)
	must(w.t, err)
	rows, err := w.api.Rows(w.t.Context(), id)
	must(w.t, err)
	return rows[0].Status
}

// sent requires a redirect after a change.
func (w *world) sent(code int, page string) {
	w.t.Helper()
	if code != http.StatusSeeOther {
		w.t.Fatalf("%d: %s", code, textOf(page))
	}
}

func TestRedriveAndDiscardOne(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		dead := w.badDay()
		ask := w.ok("/shop/confirm?do=redrive&row=" + dead[0])
		says(t, ask, "Nothing is changed yet", "Redrive 1 event to orders?",
			"db1.internal, database shop, schema public",
			"outbox redrive "+dead[0]+" --reason WHY --actor ada", "Redrive 1 on production", "ada, who may act here")
		if w.status(dead[0]) != ops.StatusDead {
			t.Error("the page that asks has changed something")
		}
		if res := w.confirm("do=redrive&row="+dead[0], "  "); res.Code != http.StatusBadRequest {
			t.Errorf("without a reason: %d", res.Code)
		}
		res := w.confirm("do=redrive&row="+dead[0], "limit raised")
		w.sent(res.Code, res.Body.String())
		if to := res.Header().Get("Location"); to != "../shop/events/"+dead[0] {
			t.Errorf("it leads to %s", to)
		}
		if s := w.status(dead[0]); !s.Open() {
			t.Errorf("it is %s", w.status(dead[0]))
		}
		says(t, w.ok("/shop/events/"+dead[0]), "ada redrove it", "for: limit raised")
		res = w.confirm("do=discard&row="+dead[1], "nobody wants it")
		w.sent(res.Code, res.Body.String())
		says(t, w.ok("/shop/events/"+dead[1]), "discarded", "ada discarded it")
		says(t, w.ok("/shop/audit"), "discard", "nobody wants it")
	})
}

// Two people look at the same rows, and both confirm. Each row changes once.
func TestTwoPeople(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		dead := w.badDay()
		q := "do=redrive&row=" + strings.Join(dead, "&row=")
		ann, ada := hidden(t, w.ok("/shop/confirm?"+q)), hidden(t, w.ok("/shop/confirm?do=discard&row="+dead[0]))
		w.actor = "ann"
		ann.Set("reason", "mine")
		res := w.post("/shop/confirm", ann)
		if res.Code != http.StatusOK {
			t.Fatalf("%d %s", res.Code, textOf(res.Body.String()))
		}
		says(t, res.Body.String(), "3 of 3 events are redriven: mine.")
		// The second one sees that the row waits now, and is asked again: it can be discarded
		// still.
		w.actor = "ada"
		ada.Set("reason", "too late")
		res = w.post("/shop/confirm", ada)
		if res.Code != http.StatusConflict {
			t.Errorf("%d", res.Code)
		}
		says(t, res.Body.String(), "Nothing is changed: it is not what you saw", "too late")
		// A redrive of what is redriven is told who was faster.
		res = w.post("/shop/confirm", ann)
		if res.Code != http.StatusConflict {
			t.Errorf("%d", res.Code)
		}
		says(t, res.Body.String(), "Nothing was changed: somebody else, or a relay, was faster.", "ann", "mine")
		if n := w.audited("redrive"); n != 3 {
			t.Errorf("%d redrives", n)
		}
	})
}

// Some of the rows are as they were, and some are not.
func TestSomeAreChanged(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		dead := w.badDay()
		res := w.confirm("do=discard&row="+dead[0], "mine")
		w.sent(res.Code, res.Body.String())
		page := w.get("/shop/confirm?do=redrive&row=" + strings.Join(dead, "&row="))
		says(t, page.Body.String(), "Nothing was changed: somebody else, or a relay, was faster.", "discarded",
			"Go on with the others…")
		says(t, w.ok("/shop/confirm?do=redrive&row="+dead[1]+"&row="+dead[2]), "Redrive 2 events to orders?")
	})
}

// A redrive of a group goes by 1, 10 and the others, and each step is asked for.
func TestGroupStepByStep(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		group := w.died(15)
		defer w.relay()()
		w.ob.Publisher.FailFor(nil)
		says(t, w.ok("/shop/groups/"+group), "15 events of orders died", "Redrive 1…", "After the first one.")
		says(t, w.ok("/shop/confirm?do=plan-redrive&group="+group),
			"Freeze 15 dead events of orders, and redrive the first one?",
			"outbox redrive plan --group "+group)
		res := w.confirm("do=plan-redrive&group="+group, "limit raised")
		w.sent(res.Code, res.Body.String())
		page := w.ok("/shop/groups/" + group)
		says(t, page, "Frozen by ada", "1 published, 0 failed again, 14 to go.", "Redrive 10…", "the other 4")
		// A second plan for the group is refused while this one is open.
		if res := w.get("/shop/confirm?do=plan-discard&group=" + group); res.Code != http.StatusConflict {
			t.Errorf("a second plan: %d", res.Code)
		}
		step := func() {
			t.Helper()
			q := stepLink(t, w.ok("/shop/groups/"+group))
			res := w.confirm(q, "")
			w.sent(res.Code, res.Body.String())
		}
		step()
		says(t, w.ok("/shop/groups/"+group), "11 published, 0 failed again, 4 to go.", "Redrive the other 4…")
		again := hidden(t, w.ok("/shop/confirm?"+stepLink(t, w.ok("/shop/groups/"+group))))
		step()
		says(t, w.ok("/shop/groups/"+group), "15 published, 0 failed again.", "No event of this group is left.")
		if res := w.post("/shop/confirm", again); res.Code != http.StatusConflict {
			t.Errorf("the same step again: %d", res.Code)
		}
		if n := w.audited("redrive"); n != 15 {
			t.Errorf("%d redrives", n)
		}
	})
}

// stepLink is the address of the next step of a plan, as its page has it.
func stepLink(t *testing.T, page string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, "confirm?do=plan-step&amp;")
	if !ok {
		t.Fatalf("there is no step:\n%s", textOf(page))
	}
	query, _, _ := strings.Cut(rest, `"`)
	return "do=plan-step&" + strings.ReplaceAll(query, "&amp;", "&")
}

// Nothing was repaired: the redrive stops after its first event.
func TestGroupStops(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		group := w.died(15)
		defer w.relay()()
		res := w.confirm("do=plan-redrive&group="+group, "I hope")
		w.sent(res.Code, res.Body.String())
		page := w.ok("/shop/groups/" + group)
		says(t, page, "Redrive has stopped", "1 of 1 events failed again", "0 published, 1 failed again", "Redrive 1…")
		says(t, w.ok("/shop/"), "stopped by itself")
		says(t, w.ok("/shop/plans"), "stopped")
		plan := hidden(t, w.ok("/shop/confirm?"+stepLink(t, page))).Get("plan")
		res = w.confirm("do=plan-cancel&plan="+plan, "wait for 4.18.3")
		w.sent(res.Code, res.Body.String())
		says(t, w.ok("/shop/plans/"+plan), "cancelled")
		if res := w.get("/shop/confirm?do=plan-step&plan=" + plan); res.Code != http.StatusConflict {
			t.Errorf("a step of a plan that has ended: %d", res.Code)
		}
		res = w.confirm("do=plan-discard&group="+group, "they are test orders")
		w.sent(res.Code, res.Body.String())
		says(t, w.ok("/shop/groups/"+group), "15 discarded, 0 to go.", "No event of this group is left.")
	})
}

// A broker that does not answer: the step goes on in the background, its page is live, and a person
// pauses it.
func TestRunningPlan(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		group := w.died(3)
		defer w.relay()()
		w.ob.Publisher.FailFor(nil)
		w.ob.Publisher.Block()
		defer w.ob.Publisher.Unblock()
		res := w.confirm("do=plan-redrive&group="+group, "limit raised", "wait", "10m")
		w.sent(res.Code, res.Body.String())
		page := w.ok("/shop/groups/" + group)
		says(t, page, "Redrive is running", "1 on the way", "Pause…", "Cancel the rest…", "Discard")
		if !strings.Contains(page, `data-live="2"`) || !strings.Contains(page, `role="status"`) ||
			!strings.Contains(page, "<progress") {
			t.Error("the page of a plan that runs is not live")
		}
		if res := w.get("/shop/groups/" + group + "?follow=5"); res.Header().Get("Refresh") != "5" {
			t.Errorf("Refresh is %q", res.Header().Get("Refresh"))
		}
		plans, err := w.api.StoredPlans(t.Context(), 1)
		must(t, err)
		res = w.confirm("do=plan-pause&plan="+plans[0].ID, "the broker hangs")
		w.sent(res.Code, res.Body.String())
		time.Sleep(10 * time.Second)
		says(t, w.ok("/shop/groups/"+group), "paused")
	})
}

// Close pauses what runs.
func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		group := w.died(3)
		w.plan(group) // no relay runs: nothing is published
		must(t, w.page.Close())
		plans, err := w.api.StoredPlans(t.Context(), 1)
		must(t, err)
		if s := plans[0].State; s == ops.PlanRunning {
			t.Errorf("the plan is %s", s)
		}
	})
}

func TestPauseResumeAndRate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.badDay()
		for _, q := range []url.Values{{"topic": {"orders", "mail"}}, {"tenant": {"acme"}}, {"all": {"1"}}} {
			first, second := hidden(t, w.ok("/shop/confirm?do=pause&"+q.Encode())), hidden(t,
				w.ok("/shop/confirm?do=pause&"+q.Encode()))
			first.Set("reason", "broker upgrade")
			first.Set("for", "30m")
			res := w.post("/shop/confirm", first)
			w.sent(res.Code, res.Body.String())
			second.Set("reason", "me too")
			if res := w.post("/shop/confirm", second); res.Code != http.StatusConflict {
				t.Errorf("a second pause of %v: %d", q, res.Code)
			} else {
				says(t, res.Body.String(), "is paused by ada", "broker upgrade")
			}
			says(t, w.ok("/shop/"), "ada has paused", "broker upgrade")
			res = w.confirm("do=resume&"+q.Encode(), "upgraded")
			w.sent(res.Code, res.Body.String())
			if res := w.get("/shop/confirm?do=resume&" + q.Encode()); res.Code != http.StatusConflict {
				t.Errorf("a second resume: %d", res.Code)
			}
		}
		res := w.confirm("do=rate&topic=orders", "the partner asks", "per-second", "20", "in-flight", "4")
		w.sent(res.Code, res.Body.String())
		says(t, w.ok("/shop/"), "at most 20 a second, 4 at a time, by ada")
		if res := w.confirm("do=rate&topic=orders", "x", "per-second", "many", "in-flight",
			"4"); res.Code != http.StatusBadRequest {
			t.Errorf("no number: %d", res.Code)
		}
		if res := w.confirm("do=pause&topic=orders", "x", "for", "soon"); res.Code != http.StatusBadRequest {
			t.Errorf("no duration: %d", res.Code)
		}
	})
}

func TestNoteAndMute(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.badDay()
		group := w.aGroup()
		res := w.confirm("do=group-note&group="+group, "INC-42", "note", "4.18.3 takes the pictures out", "for", "8h")
		w.sent(res.Code, res.Body.String())
		says(t, w.ok("/shop/groups/"+group), "4.18.3 takes the pictures out", "Muted until")
		says(t, w.ok("/shop/groups"), "No event is dead;", "Show 1 muted")
		says(t, w.ok("/shop/groups?muted=1"), "muted until", "4.18.3")
		if strings.Contains(textOf(w.ok("/shop/")), "Open the group") {
			t.Error("the overview names a muted group")
		}
		res = w.confirm("do=group-note&group="+group, "it is back", "for", "off", "note", "")
		w.sent(res.Code, res.Body.String())
		if strings.Contains(textOf(w.ok("/shop/groups/"+group)), "Muted until") {
			t.Error("it is muted still")
		}
	})
}

func TestReplay(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		defer w.relay()()
		row := w.publish(core.Event{Type: "order.placed", Topic: "orders", Key: "order/1", Payload: []byte("x")})[0]
		time.Sleep(time.Second)
		page := w.ok("/shop/confirm?do=replay&row=" + row)
		empty := w.post("/shop/confirm", url.Values{
			"do":     {"replay"},
			"row":    {row},
			"window": {" "},
			"reason": {"search lost it"},
			"digest": {"a window is missing"},
		})
		if empty.Code != http.StatusBadRequest {
			t.Errorf("a replay without a window: %d %s", empty.Code, empty.Body)
		}
		says(t, page, "no consumer has declared how long it remembers")
		form := hidden(t, page)
		form.Set("reason", "search lost it")
		form.Set("window", "7d")
		res := w.post("/shop/confirm", form)
		if res.Code != http.StatusConflict {
			t.Fatalf("a window changes what is touched: %d", res.Code)
		}
		form = hidden(t, res.Body.String())
		form.Set("reason", "search lost it")
		form.Set("window", "7d")
		res = w.post("/shop/confirm", form)
		w.sent(res.Code, res.Body.String())
		says(t, w.ok("/shop/plans"), "replay", "search lost it")
		says(t, w.ok("/shop/events/"+row), "Other rows of the event", "a replay")
	})
}

func TestBadRequests(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		dead := w.badDay()
		for path, code := range map[string]int{
			"confirm": 400, "confirm?do=nothing": 400, "confirm?do=redrive": 400, "confirm?do=redrive&row=x": 400,
			"confirm?do=redrive&row=00000000-0000-7000-8000-000000000000": 404, "confirm?do=plan-discard": 400,
			"confirm?do=plan-step&plan=x": 404, "confirm?do=pause": 400, "confirm?do=rate": 400,
			"confirm?do=group-note&group=x": 404,
			"events?status=asleep":          400, "events?since=soon": 400, "events?key=x": 400, "events/x": 400,
			"events/00000000-0000-7000-8000-000000000000": 404, "groups/0123": 404, "plans/0123": 404,
			"audit?row=x":    400,
			"audit?before=x": 400, "nowhere": 404, "events/" + dead[0] +
				"/more": 404, "confirm?do=plan-redrive&topic=none": 409,
		} {
			if res := w.get("/shop/" + path); res.Code != code {
				t.Errorf("%s: %d, not %d: %s", path, res.Code, code, textOf(res.Body.String()))
			}
		}
		if res := w.post("/shop/events", url.Values{}); res.Code != http.StatusMethodNotAllowed {
			t.Errorf("a POST to a list: %d", res.Code)
		}
	})
}

// A database that does not answer is said so, without its error.
func TestDatabaseAway(t *testing.T) {
	w := newWorld(t, Config{})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("password=secret"))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/shop/events", nil)
	must(t, err)
	res := httptestRecord(w.page, r)
	if res.Code != http.StatusInternalServerError || strings.Contains(res.Body.String(), "secret") {
		t.Errorf("%d %s", res.Code, res.Body)
	}
}
