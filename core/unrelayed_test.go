package core_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// A process with a Publisher that never calls Run gets one warning. A process that relays, drains,
// or has no Publisher gets none.
func TestForgottenRun(t *testing.T) {
	for name, c := range map[string]struct {
		relay func(t *testing.T, w *world)
		warns bool
	}{
		"no Run": {func(*testing.T, *world) {}, true},
		"Run":    {func(_ *testing.T, w *world) { w.run() }, false},
		"Drain": {func(t *testing.T, w *world) {
			t.Helper()
			noError(t, w.ob.Drain(context.Background()))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logLines
				w := newWorld(t, core.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				w.publish(core.Event{Type: "a"})
				time.Sleep(9 * time.Second)
				w.publish(core.Event{Type: "a"})
				c.relay(t, w)
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := log.has("level=WARN", "never called Run"); got != c.warns {
					t.Errorf("warned %t, want %t: %s", got, c.warns, log.buf.String())
				}
				if n := log.count("never called Run"); n > 1 {
					t.Errorf("warned %d times", n)
				}
				if w.stop != nil {
					noError(t, w.stop())
				}
			})
		})
	}
}

// Events of transactions that were rolled back are no reason to warn.
func TestForgottenRunAfterRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logLines
		w := newWorld(t, core.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		rollback := errors.New("rollback")
		err := w.repo.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			if _, err := w.ob.Publish(ctx, tx, core.Event{Type: "a"}); err != nil {
				return err
			}
			return rollback
		})
		if !errors.Is(err, rollback) {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if log.has("never called Run") {
			t.Error(log.buf.String())
		}
	})
}
