package ops_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The row does not say whether a reader of the log has published an event. The tables say what
// holds the event back: a pause, a destination that this process has stopped, and one that was
// down for another process.
func TestExplainByLog(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db, core.Config{RelayedByLog: true})
		id := w.Publish(core.Event{Type: "paid", Topic: "orders", TenantID: "acme"})[0]
		const unknown = "Its row does not say whether that program has published it."
		const held = "If walrelay has not published it, it waits for that."
		plain := w.wants(id, ops.ReasonDone, []string{unknown},
			[]string{"`outbox doctor`", "Until it is past the event, a replay sends the event twice."})
		fixture.NoError(t, w.api.DeclareWindow(t.Context(), ops.WindowRequest{
			Topic: "orders", Consumer: "search", Keep: time.Hour, Actor: "ada", Reason: "its inbox",
		}))
		if x := w.explain(id); x.Text != plain.Text || strings.Contains(x.Fix, "`outbox replay") {
			t.Errorf("explain advises a replay of an event that may not be published yet: %s %s", x.Text, x.Fix)
		}

		one := core.PauseRequest{Topic: "orders", Actor: "ada", Reason: "INC-42"}
		fixture.NoError(t, w.Outbox.Pause(t.Context(), one))
		w.wants(id, ops.ReasonDone, []string{unknown, "Destination orders is paused by ada since ", ": INC-42.", held},
			[]string{"`outbox resume orders --reason WHY`", "`outbox doctor`"})
		resume := func(req core.ResumeRequest) {
			t.Helper()
			req.Actor, req.Reason = "ada", "over"
			if resumed, err := w.Outbox.Resume(t.Context(), req); err != nil || !resumed {
				t.Fatal(resumed, err)
			}
		}
		resume(core.ResumeRequest{Topic: "orders"})
		one = core.PauseRequest{Tenant: "acme", Actor: "ada", Reason: "INC-43"}
		fixture.NoError(t, w.Outbox.Pause(t.Context(), one))
		w.wants(id, ops.ReasonDone, []string{"Tenant acme is paused by ada since ", held},
			[]string{"`outbox resume --tenant acme --reason WHY`"})
		resume(core.ResumeRequest{Tenant: "acme"})
		if x := w.explain(id); x.Text != plain.Text || x.Fix != plain.Fix {
			t.Errorf("nothing holds the event, and it has another explanation: %s %s", x.Text, x.Fix)
		}

		// A relay has stopped the destination, as walrelay does when it is away.
		away := &outboxtest.Publisher{}
		away.Outage("orders", core.Unavailable(errors.New("broker says password=hunter2 is wrong")))
		relay := fixture.NewOutbox(t, db, core.Config{
			Publisher: away,
			Logger:    slog.New(slog.DiscardHandler),
			Relay: relay.Config{
				Breaker: relay.BreakerPolicy{Failures: 1, ProbeInterval: time.Hour, MaxProbeInterval: time.Hour},
			},
		})
		fixture.NoError(t, w.Tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			_, err := relay.Publish(ctx, tx, core.Event{Type: "paid", Topic: "orders"})
			return err
		}))
		fixture.RunRelay(t, relay)
		fixture.Await(t, "the destination is stopped", func() bool { return len(relay.Stopped()) > 0 })
		here, err := sqlops.New(relay)
		fixture.NoError(t, err)
		other := &world{Process: w.Process, api: here}
		other.wants(id, ops.ReasonDone, []string{"Destination orders is stopped since ", held},
			[]string{"Repair the destination"})
		fixture.Await(t, "the heartbeat says it", func() bool {
			stopped, err := w.api.Outage(t.Context(), "orders")
			return err == nil && stopped != nil
		})
		w.wants(id, ops.ReasonDone, []string{"Destination orders is stopped since ", held},
			[]string{"Repair the destination"})
	})
}
