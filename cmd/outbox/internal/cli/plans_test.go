package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// relaying runs a relay until the end of the test. Its destination refuses every event while broken
// is set.
func (w *world) relaying(broken *atomic.Bool, published *atomic.Int64) {
	w.Helper()
	repo, err := sqloutbox.New(w.open(), sqloutbox.Config{Dialect: w.dialect})
	must(w, err)
	ob, err := core.New(core.Config{
		Repository: repo,
		Logger:     slog.New(slog.DiscardHandler),
		Relay:      relay.Config{PollInterval: 20 * time.Millisecond},
		Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error {
			published.Add(1)
			if broken.Load() {
				return core.Permanent(errors.New("schema v3: field total"))
			}
			return nil
		}),
	})
	must(w, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ob.Run(ctx) }()
	w.Cleanup(func() {
		stop()
		noError(w, <-ended)
	})
}

// --stop-share 0 does not mean the default.
func TestStopShare(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"": 0.1, "0.25": 0.25, "0": 1e-9} {
		c := (&app{}).applyCommand(ops.ActionRedrive)
		if text != "" {
			must(t, c.Flags().Set("stop-share", text))
		}
		share, err := c.Flags().GetFloat64("stop-share")
		if got := stopShare(c, share); got != want || err != nil {
			t.Errorf("--stop-share %s is %v, want %v: %v", text, got, want, err)
		}
	}
}

// A plan is stored, stops because nothing was repaired, and goes on after the repair.
func TestPlans(t *testing.T) {
	migrated(t, func(w *world) {
		w.require(w.run("plans", "list"), ExitOK, "no plan is stored")
		for i := range 30 {
			w.publish(core.Event{Type: "order.placed", Topic: "orders", Key: fmt.Sprint(i), Payload: []byte("{}")})
		}
		w.publish(core.Event{Type: "mail", Topic: "mails", Payload: []byte("{}")})
		w.drain(core.Permanent(errors.New("schema v3: field total")), core.BlockKey)

		w.require(w.run("redrive", "plan", "--topic", "orders"), ExitUsage, "--reason is missing")
		w.require(w.run("redrive", "plan", "--topic", "", "--dry-run"), ExitUsage, "--topic", "it is empty")
		w.require(w.run("pause", "--all", "--tenant", "", "--reason", "INC-42", "--yes"), ExitUsage, "it is empty")
		w.require(w.run("inbox", "discard", "--all", "--consumer=", "--reason", "x", "--yes"), ExitUsage, "it is empty")
		w.require(w.run("redrive", "plan", "--topic", "orders", "--dry-run"), ExitOK, "30 dead events of 30 keys",
			"nothing is stored: it is a dry run")
		w.require(w.run("plans", "list"), ExitOK, "no plan is stored")
		var p ops.StoredPlan
		w.json(&p, "redrive", "plan", "--topic", "orders", "--reason", "INC-42", "--actor", "ada")
		if p.ID == "" || p.Events != 30 || p.State != ops.PlanPlanned || p.IDs != nil || p.Actor != "ada" {
			t.Fatalf("%+v", p)
		}
		w.require(w.run("plans", "show", p.ID), ExitOK, "plan "+p.ID+" is planned", "stored by ada at 20", "INC-42",
			"30 dead events",
			"outbox redrive apply "+p.ID)
		w.require(w.run("plans", "list"), ExitOK, p.ID, "planned", "INC-42")
		w.require(w.run("plans", "show", "none"), ExitFailed, "no such plan")
		w.require(w.run("discard", "apply", p.ID, "--yes"), ExitUsage, "outbox redrive apply "+p.ID)
		w.require(w.run("redrive", "apply", p.ID), ExitRefused, "--yes")
		w.require(w.answer("n\n", "redrive", "apply", p.ID), ExitRefused, "redrive 30 events in ")
		for _, how := range []string{"--dry-run", "--yes"} { // they end in the same way
			w.exec("UPDATE outbox_plan SET state = 'running', worker_until = " + w.inOneHour())
			w.require(w.run("redrive", "apply", p.ID, how), ExitFailed, "another process runs the plan")
			w.exec("UPDATE outbox_plan SET state = 'planned', worker_until = NULL")
			w.require(w.run("redrive", "apply", p.ID, how, "--rate", "-1"), ExitUsage, "-1 is not 0, nor between")
			w.require(w.run("redrive", "apply", p.ID, how, "--actor", strings.Repeat("x", 256)), ExitUsage,
				"--actor has 256 bytes, more than 255")
		}

		var broken atomic.Bool
		var published atomic.Int64
		broken.Store(true)
		w.relaying(&broken, &published)
		w.require(w.run("redrive", "apply", p.ID, "--yes"), ExitPartial, "is stopped: 1 of 1 events failed again",
			"outbox groups says why events failed",
			"1 of 30 events are worked off")
		equal(t, published.Load(), 1, "events were published again")
		broken.Store(false)
		pause := []string{"plans", "pause", p.ID, "--reason", "lunch", "--actor", "eve"}
		w.require(w.run(pause...), ExitRefused, "29 events of 30 are not worked off", "--yes")
		w.require(w.answer("n\n", pause...), ExitRefused, "pause plan "+p.ID+" of ")
		w.require(w.run("plans", "pause", p.ID, "--dry-run"), ExitOK, "it is stopped", "would be paused")
		w.require(w.run("plans", "cancel", p.ID, "--dry-run"), ExitOK, "would be cancelled")
		w.require(w.run("plans", "cancel", "none", "--dry-run"), ExitFailed, "no such plan")
		w.require(w.run("redrive", "apply", p.ID, "--dry-run"), ExitOK, "30 dead events of 30 keys", "would be applied")
		w.require(w.run("discard", "apply", p.ID, "--dry-run"), ExitUsage, "outbox redrive apply "+p.ID)
		var would dryPlan
		if w.json(&would, "plans", "cancel", p.ID, "--dry-run"); !would.DryRun || would.State != ops.PlanStopped ||
			would.IDs != nil {
			t.Errorf("%+v", would)
		}
		w.require(w.run(append(pause, "--yes")...), ExitOK, "is paused: by eve: lunch")
		w.require(w.run("redrive", "apply", p.ID, "--yes"), ExitOK, "is done", "30 worked off, 30 changed",
			"29 published, 1 failed again", "last change at 20",
			"1 event failed again: outbox groups says why; plan again")
		equal(t, published.Load(), 30, "events were published")
		w.require(w.run("redrive", "apply", p.ID, "--yes"), ExitFailed, "the plan has ended")
		w.require(w.run("redrive", "apply", p.ID, "--dry-run"), ExitFailed, "the plan has ended")

		w.json(&p, "discard", "plan", "--reason", "test orders")
		w.require(w.run("plans", "cancel", p.ID, "--reason", "not these"), ExitRefused, "--yes")
		w.require(w.run("plans", "cancel", p.ID, "--reason", "not these", "--yes"), ExitOK, "is cancelled")
		w.require(w.run("plans", "cancel", p.ID, "--dry-run"), ExitFailed, "the plan has ended")
		w.require(w.run("plans", "pause", p.ID, "--reason", "x", "--yes"), ExitFailed, "the plan has ended")
		w.json(&p, "discard", "plan", "--topic", "mails", "--reason", "test mails")
		w.require(w.run("discard", "apply", p.ID, "--yes", "--rate", "1000"), ExitOK, "is done", "1 changed")
		var dead []deadRow
		if w.list(&dead, "events", "dead"); len(dead) != 1 || dead[0].Topic != "orders" {
			t.Errorf("%+v are dead", dead)
		}
		audit := w.ok("audit")
		for _, want := range []string{"run-plan", "pause-plan", "cancel-plan", "INC-42", "redrive of 30 events"} {
			if !strings.Contains(audit, want) {
				t.Errorf("the audit lacks %q:\n%s", want, audit)
			}
		}
	})
}

// A person changes what was shown, and nothing that a colleague has changed meanwhile.
func TestChangedMeanwhile(t *testing.T) {
	refuse := core.Permanent(errors.New("schema v3: field total"))
	migrated(t, func(w *world) {
		for i := range 4 {
			w.publish(core.Event{Type: "order.placed", Topic: "orders", Key: fmt.Sprint(i), Payload: []byte("{}")})
		}
		w.drain(refuse, core.BlockKey)
		redrive := func() { w.ok("redrive", "--all", "--topic", "orders", "--reason", "repaired", "--yes") }
		again := func() { redrive(); w.drain(refuse, core.BlockKey) }
		for _, action := range []string{"discard", "redrive"} {
			var p ops.StoredPlan
			w.json(&p, action, "plan", "--topic", "orders", "--reason", "INC-42")
			again()
			w.require(w.run(action, "apply", p.ID, "--yes"), ExitPartial, "4 worked off, 0 changed",
				"4 events left alone: they have changed since the plan was made", "0 of 4 events are changed")
			w.require(w.answerAfter(again, action, "--all", "--topic", "orders", "--reason", "INC-42"), ExitPartial,
				"0 events changed", "0 of 4 events are changed: the others have changed since they were read")
		}
		var list struct{ Events []ops.Event }
		w.json(&list, "list", "--topic", "orders")
		id := list.Events[0].ID.String()
		w.require(w.answerAfter(redrive, "discard", id, "--reason", "INC-42"), ExitPartial, "0 of 1 events are changed")
		w.json(&list, "list", "--topic", "orders")
		for _, e := range list.Events {
			equal(t, e.Status, ops.StatusRetry, "status of event %s", e.ID)
		}
		w.require(w.run("discard", id, "--reason", "INC-42", "--yes"), ExitOK, "1 event changed")
	})
}
