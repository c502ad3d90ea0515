package ops_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// wants fails the test unless the explanation has the reason, and its text and its fix contain
// these parts.
func (w *world) wants(id string, reason ops.Reason, text, fix []string) ops.Explanation {
	w.T.Helper()
	x := w.explain(id)
	if x.Reason != reason {
		w.T.Fatalf("reason %s, want %s: %s", x.Reason, reason, x.Text)
	}
	for _, part := range text {
		fixture.Check(w.T, strings.Contains(x.Text, part), "%s does not name %q: %s", reason, part, x.Text)
	}
	for _, part := range fix {
		fixture.Check(w.T, strings.Contains(x.Fix, part), "the fix of %s does not name %q: %s", reason, part, x.Fix)
	}
	fixture.Check(w.T, !strings.Contains(x.Text+x.Fix, ".."), "a sentence ends twice: %s %s", x.Text, x.Fix)
	fixture.Check(w.T, len(fix) != 0 || x.Fix == "", "%s needs no fix, and has %q", reason, x.Fix)
	return x
}

const clock = "2006-01-02 15:04:05 UTC"

// Explain finds every reason. The relay itself has brought each of them about.
func TestExplain(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(
			t,
			db,
			core.Config{
				Relay: relay.Config{
					Breaker: relay.BreakerPolicy{ProbeInterval: time.Hour, MaxProbeInterval: time.Hour},
				},
			},
		)
		publish := func(events ...core.Event) []string {
			t.Helper()
			ids := w.Publish(events...)
			w.drain()
			return ids
		}

		t.Run("done", func(t *testing.T) {
			id := publish(core.Event{Type: "paid", Topic: "orders"})[0]
			w.wants(
				id,
				ops.ReasonDone,
				[]string{"orders accepted it", "orders/3@1042", w.one(id).DoneAt.Format(clock)},
				nil,
			)
		})
		t.Run("unknown", func(t *testing.T) {
			var id string
			err := w.Tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				ids, err := w.Outbox.Publish(ctx, tx, core.Event{Type: "paid"})
				id = ids[0]
				return errors.Join(err, errors.New("rolled back"))
			})
			fixture.Must(t, err != nil, "the transaction committed")
			w.wants(
				id,
				ops.ReasonUnknown,
				[]string{id, "not committed or was rolled back", "retention"},
				[]string{"open transaction"},
			)
		})
		t.Run("dead, blocked, redriven", func(t *testing.T) {
			ids := publish(core.Event{Type: "dead.paid", Topic: "orders", Key: "k7", Payload: []byte("xx")},
				core.Event{Type: "paid", Topic: "orders", Key: "k7"})
			dead := w.one(ids[0])
			w.wants(ids[0], ops.ReasonDead, []string{"after 1 refusal", "permanent", "is missing in version 2", "k7"},
				[]string{"Redrive " + dead.ID.String(), "Discard " + dead.ID.String()})
			x := w.wants(ids[1], ops.ReasonBlocked, []string{"k7", dead.ID.String(), "dead", "is missing"},
				[]string{"Redrive " + dead.ID.String(), "Discard " + dead.ID.String()})
			fixture.Check(t, x.Other != nil && x.Other.EventID == ids[0] && x.Event.EventID == ids[1],
				"it waits for %+v", x.Other)
			// The action that the fix names works.
			n, err := w.Outbox.Discard(
				t.Context(),
				core.AdminRequest{IDs: []core.RowID{x.Other.ID}, Actor: "ada", Reason: "a test order"},
			)
			if err != nil || n != 1 {
				t.Fatal(n, err)
			}
			w.wants(ids[0], ops.ReasonDiscarded, []string{"ada", "a test order"}, nil)
			w.wants(ids[1], ops.ReasonUnrelayed, []string{"due since"}, []string{"orders", "`outbox status`"})
			w.drain()
			w.wants(ids[1], ops.ReasonDone, nil, nil)
		})
		t.Run("not due, behind", func(t *testing.T) {
			ids := publish(
				core.Event{Type: "paid", Topic: "later", Delay: time.Hour},
				core.Event{
					Type:  "retry.paid",
					Topic: "later",
					Key:   "k9",
				},
				core.Event{Type: "paid", Topic: "later", Key: "k9"},
			)
			delayed, retry := w.one(ids[0]), w.one(ids[1])
			x := w.wants(ids[0], ops.ReasonNotDue, []string{delayed.AvailableAt.Format(clock)}, nil)
			fixture.Check(t, x.Until.Equal(delayed.AvailableAt) && !x.Until.Before(delayed.ReadAt.Add(50*time.Minute)),
				"until %s", x.Until)
			w.wants(
				ids[1],
				ops.ReasonNotDue,
				[]string{retry.AvailableAt.Format(clock), "1 refusal", "transient, try again in 250 ms"},
				[]string{"Discard " + retry.ID.String()},
			)
			w.wants(ids[2], ops.ReasonBehind, []string{
				"its key k9", retry.ID.String(),
				"due at " + retry.AvailableAt.Format(clock), "try again",
			}, []string{retry.ID.String()})
		})
		t.Run("leased", func(t *testing.T) {
			ids := w.Publish(
				core.Event{Type: "paid", Topic: "held", Key: "k1"},
				core.Event{Type: "paid", Topic: "held", Key: "k1"},
			)
			w.wants(ids[0], ops.ReasonUnrelayed, []string{"No relay", "held", "due since"}, []string{"held"})
			w.wants(ids[1], ops.ReasonUnrelayed, []string{"held", w.one(ids[0]).ID.String(), "k1"}, []string{"held"})
			beat := func(topic string) {
				t.Helper()
				fixture.NoError(t, w.Repository.Beat(t.Context(),
					core.Heartbeat{Node: "relay of " + topic, Topics: []string{topic}}))
			}
			beat("mails")
			w.wants(ids[0], ops.ReasonUnrelayed, []string{"held"}, []string{"held"})
			beat("held")
			w.wants(ids[0], ops.ReasonReady, []string{"no relay has claimed it"}, []string{"held"})
			w.wants(ids[1], ops.ReasonBehind, []string{"no relay has claimed yet"}, []string{w.one(ids[0]).ID.String()})
			rows, err := w.Repository.ClaimKey(t.Context(), core.ClaimRequest{
				Node:     "other-node",
				ClaimNo:  1,
				Lease:    time.Minute,
				MaxLease: time.Hour,
				Limit:    1,
				MaxBytes: 1 << 20,
				Run:      1,
				Keys:     1,
			}, core.NewKeyID("", "held", "k1"))
			if err != nil || len(rows) != 1 {
				t.Fatal(rows, err)
			}
			first := w.one(ids[0])
			x := w.wants(ids[0], ops.ReasonLeased, []string{"other-node", first.LeaseUntil.Format(clock)}, nil)
			if d := x.Until.Sub(x.Event.ReadAt); d <= 0 || d > time.Minute {
				t.Errorf("until %s from now", d)
			}
			w.wants(
				ids[1],
				ops.ReasonBehind,
				[]string{first.ID.String(), "other-node holds until " + first.LeaseUntil.Format(clock)},
				[]string{first.ID.String()},
			)
		})
		t.Run("suspicious", func(t *testing.T) {
			id := w.Publish(core.Event{Type: "paid", Topic: "held", Key: "suspicious"})[0]
			fixture.MustExec(t, w.Pool, "UPDATE outbox_event SET lost_claims = 4 WHERE partition_key = 'suspicious'")
			if x := w.explain(id); !strings.Contains(x.Text, "4 processes or more have ended while they held it") {
				t.Errorf("%s: %s", x.Reason, x.Text)
			}
		})
		t.Run("paused", func(t *testing.T) {
			id := w.Publish(core.Event{Type: "paid", Topic: "later"})[0]
			who := core.PauseRequest{
				Topic: "later", Actor: "ada", Reason: "INC-42", Until: time.Now().Add(time.Hour).Truncate(time.Second),
			}
			fixture.NoError(t, w.Outbox.Pause(t.Context(), who))
			x := w.wants(id, ops.ReasonPaused, []string{
				"Destination later is paused by ada since ", "until " + who.Until.UTC().Format(clock) + ": INC-42.",
			}, []string{"`outbox resume later --reason WHY`"})
			fixture.Check(t, x.Until.Equal(who.Until), "until %s, want %s", x.Until, who.Until)
			all := core.PauseRequest{All: true, Actor: "bob", Reason: "restore."}
			fixture.NoError(t, w.Outbox.Pause(t.Context(), all))
			w.wants(id, ops.ReasonPaused, []string{"All destinations are paused by bob since ", ": restore."},
				[]string{"`outbox resume --all --reason WHY`"})
			for _, req := range []core.ResumeRequest{{All: true}, {Topic: "later"}} {
				req.Actor, req.Reason = "ada", "over"
				resumed, err := w.Outbox.Resume(t.Context(), req)
				if err != nil || !resumed {
					t.Fatal(resumed, err)
				}
			}
			w.wants(id, ops.ReasonUnrelayed, nil, []string{"later"})
			id = w.Publish(core.Event{Type: "paid", Topic: "later", TenantID: "it's acme"})[0]
			one := core.PauseRequest{Tenant: "it's acme", Actor: "ada", Reason: "INC-43"}
			fixture.NoError(t, w.Outbox.Pause(t.Context(), one))
			w.wants(id, ops.ReasonPaused, []string{"Tenant it's acme is paused by ada since ", ": INC-43."},
				[]string{`outbox resume --tenant 'it'\''s acme' --reason WHY`})
			over := core.ResumeRequest{Tenant: "it's acme", Actor: "ada", Reason: "over"}
			if resumed, err := w.Outbox.Resume(t.Context(), over); err != nil || !resumed {
				t.Fatal(resumed, err)
			}
		})
		t.Run("limited", func(t *testing.T) {
			// Another relay runs whose turn has not come.
			fixture.NoError(t, w.Repository.Beat(t.Context(), core.Heartbeat{
				Node: "other", Topics: []string{"hooks"}, SinceClaim: -1, SincePublish: -1,
			}))
			id := w.Publish(core.Event{Type: "paid", Topic: "hooks"})[0]
			w.wants(id, ops.ReasonReady, nil, []string{"hooks"})
			who := core.RateRequest{Topic: "hooks", PerSecond: 0.5, InFlight: 3, Actor: "ada", Reason: "contract."}
			fixture.NoError(t, w.Outbox.SetRate(t.Context(), who))
			w.wants(id, ops.ReasonLimited, []string{
				"destination hooks gets at most 0.5 events a second and 3 at the same time, set by ada at ",
				": contract.",
			}, []string{"`outbox rate hooks --off --reason WHY`"})
			fixture.NoError(t, w.Outbox.SetRate(t.Context(), core.RateRequest{Topic: "hooks", Actor: "a", Reason: "b"}))
			w.wants(id, ops.ReasonReady, nil, []string{"hooks"})
			fixture.NoError(t, w.Repository.RemoveRelay(t.Context(), "other"))
		})
		t.Run("stopped", func(t *testing.T) {
			w.Run()
			says := "broker says password=hunter2 is wrong." // the text already ends with a full stop
			w.Publisher.Outage("down", core.Unavailable(errors.New(says)))
			id := w.Publish(
				core.Event{Type: "paid", Topic: "down", Key: "k"},
				core.Event{Type: "paid", Topic: "down", Key: "k"},
			)
			fixture.Await(t, "the destination is stopped", func() bool { return len(w.Outbox.Stopped()) > 0 })
			since := w.Outbox.Stopped()[0].Since.UTC().Format(clock)
			fixture.Await(
				t,
				"the relay has given the events back",
				func() bool { return w.explain(id[1]).Reason != ops.ReasonLeased },
			)
			w.wants(
				id[1],
				ops.ReasonStopped,
				[]string{"Destination down is stopped since " + since, "broker says", "password=***"},
				[]string{"Repair the destination"},
			)
			fixture.Await(
				t,
				"the head waits too",
				func() bool { return w.explain(id[0]).Reason == ops.ReasonStopped },
			)
			// A process that does not relay, such as the command line, gives the same answer while
			// the event is due and while its next try is not.
			beside := w.Publish(core.Event{Type: "paid", Topic: "down"})[0]
			fixture.Await(t, "nobody holds the event", func() bool { return !new(w.one(beside)).Leased() })
			elsewhere, err := core.New(core.Config{Repository: w.Repository, Logger: slog.New(slog.DiscardHandler)})
			fixture.NoError(t, err)
			w.api, err = sqlops.New(elsewhere)
			fixture.NoError(t, err)
			fixture.Await(t, "the heartbeat says it", func() bool {
				return w.explain(beside).Reason == ops.ReasonStopped
			})
			const refusal = "unavailable, broker says password=***"
			w.wants(beside, ops.ReasonStopped, []string{"Destination down is stopped since ", "password=***"},
				[]string{"Repair the destination"})
			later := "'2099-01-01 00:00:00'"
			if db.Dialect == core.SQLite {
				later = "4070908800000000"
			}
			for _, at := range []string{later, "created_at"} {
				fixture.MustExec(t, w.Pool, "UPDATE outbox_event SET available_at = "+at+" WHERE topic = 'down'")
				w.wants(id[0], ops.ReasonStopped,
					[]string{"Destination down is stopped since ", refusal, "no attempt"},
					[]string{"Repair the destination", "`outbox discard " + w.one(id[0]).ID.String()})
			}
		})
	})
}

// With SkipDead no dead event blocks its key, and a redriven event continues as another row.
func TestExplainSkipDead(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db, core.Config{DeadPolicy: core.SkipDead})
		ids := w.Publish(
			core.Event{Type: "dead.paid", Topic: "orders", Key: "k"},
			core.Event{
				Type:  "retry.paid",
				Topic: "orders",
				Key:   "k",
			},
			core.Event{Type: "paid", Topic: "orders", Key: "k"},
		)
		w.drain()
		dead := w.one(ids[0])
		if x := w.explain(ids[0]); x.Reason != ops.ReasonDead || strings.Contains(x.Text, "waits for it") {
			t.Errorf("%s: %s", x.Reason, x.Text)
		}
		w.wants(ids[2], ops.ReasonBehind, []string{w.one(ids[1]).ID.String()}, []string{w.one(ids[1]).ID.String()})
		p, err := w.api.PlanRedrive(t.Context(), ops.Filter{EventID: ids[0]}, 0)
		fixture.NoError(t, err)
		if done, err := w.api.Apply(t.Context(), p, "ada", "schema registered"); err != nil || done.Changed != 1 {
			t.Fatal(done, err)
		}
		all, err := w.api.Explain(t.Context(), ids[0])
		if err != nil || len(all) != 2 {
			t.Fatal(all, err)
		}
		for _, x := range all {
			if x.Event.ID != dead.ID {
				if x.Reason != ops.ReasonBehind {
					t.Errorf("the new row: %s %s", x.Reason, x.Text)
				}
				continue
			}
			other := all[0].Event.ID
			if other == dead.ID {
				other = all[1].Event.ID
			}
			if x.Reason != ops.ReasonDiscarded ||
				!strings.Contains(x.Text, fmt.Sprintf("continues as row %s", other)) ||
				!strings.Contains(x.Fix, other.String()) ||
				!strings.Contains(x.Text, "ada") {
				t.Errorf("the old row: %s %s %s", x.Reason, x.Text, x.Fix)
			}
		}
	})
}
