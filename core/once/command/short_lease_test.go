package command_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once/command"
)

// The worker warns once if its lease is shorter than the time for which a handler may run.
func TestWorkerTellsOfAShortLease(t *testing.T) {
	for limit, told := range map[time.Duration]int{20 * time.Second: 0, 40 * time.Second: 1, 0: 0} {
		w := newEffects(t)
		var out safeBuffer
		worker := w.worker(
			func(context.Context, command.Effect) (string, error) { return "", context.DeadlineExceeded },
			func(cfg *command.WorkerConfig) { cfg.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
		ctx, cancel := t.Context(), func() {}
		if limit > 0 {
			ctx, cancel = context.WithTimeout(ctx, limit)
		}
		for attempt := range 3 {
			_ = worker.Publish(ctx, w.delivery(attempt+1))
		}
		cancel()
		if got := out.String(); strings.Count(got, "lease=30s") != told || strings.Count(got, "\n") != told {
			t.Errorf("handlers may run for %s: logged %q, want %d lines", limit, got, told)
		}
	}
}
