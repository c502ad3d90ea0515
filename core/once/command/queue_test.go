package command_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
)

func TestQueueRedriveAndEvents(t *testing.T) {
	w := newEffects(t)
	if d := w.delivery(1); d.Topic != "effect.mail" || d.TenantID != "acme" || d.AggregateID != w.rec.ID ||
		!d.Unordered || len(d.Payload) != 0 {
		t.Errorf("%+v", d)
	}
	w.inTx(func(ctx context.Context) error {
		if _, added, err := w.queue.Enqueue(ctx, nil,
			command.Effect{Channel: "mail", Tenant: "acme", Key: "1", Payload: []byte("hello")}); added || err != nil {
			t.Errorf("again: %t, %v", added, err)
		}
		if _, _, err := w.queue.Enqueue(ctx, nil, command.Effect{
			Channel: "mail", Tenant: "acme",
			Key: "1",
		}); !errors.Is(err, once.ErrFingerprintMismatch) {
			t.Errorf("another payload: %v", err)
		}
		if redriven, err := w.queue.Redrive(ctx, nil, w.rec.ID, "ada", "why not"); redriven || err != nil {
			t.Errorf("not dead: %t, %v", redriven, err)
		}
		if _, err := w.queue.Redrive(ctx, nil, w.rec.ID, " ", "why not"); !errors.Is(err, once.ErrInvalidRequest) {
			t.Errorf("nobody: %v", err)
		}
		if _, err := w.queue.Redrive(ctx, nil, "nothing", "ada", "why not"); !errors.Is(err, command.ErrNoEffect) {
			t.Errorf("nothing: %v", err)
		}
		return nil
	})
	if n := len(w.repo.Rows()); n != 1 {
		t.Errorf("%d events", n)
	}
	worker := w.worker(func(context.Context, command.Effect) (string, error) {
		return "", core.Permanent(errors.New("no"))
	})
	if err := worker.Publish(t.Context(), w.delivery(1)); err != nil {
		t.Error(err)
	}
	if dead, err := w.queue.Dead(t.Context(), "mail"); err != nil || len(dead) != 1 {
		t.Errorf("%+v, %v", dead, err)
	}
	if receipt, err := worker.PublishWithReceipt(t.Context(), w.delivery(1)); err != nil || receipt != "dead" {
		t.Errorf("a dead effect is executed: %q, %v", receipt, err)
	}
	w.inTx(func(ctx context.Context) error {
		redriven, err := w.queue.Redrive(ctx, nil, w.rec.ID, "ada", "corrected")
		if !redriven {
			t.Error("not redriven")
		}
		return err
	})
	if n := len(w.repo.Rows()); n != 2 {
		t.Errorf("%d events, want a second one", n)
	}
	if _, err := w.queue.Redrive(t.Context(), nil, w.rec.ID, "ada", "x"); !errors.Is(err, core.ErrNoTransaction) {
		t.Errorf("no transaction: %v", err)
	}
}

// Run cleans up at intervals, even if the store fails, and returns when its context ends.
func TestQueueRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEffects(t)
		w.store.fail = func(string) error { return errors.New("database is down") }
		if _, err := w.queue.Cleanup(t.Context()); err == nil {
			t.Error("Cleanup returned no error")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
		defer cancel()
		if err := w.queue.Run(ctx); err != nil || w.store.calls["cleanup"] != 4 {
			t.Errorf("%v after %d cleanups", err, w.store.calls["cleanup"])
		}
	})
}

// An archive needs a store that can show its effects. A panic of the archive is an error of
// Cleanup, and the effects stay.
func TestQueueArchive(t *testing.T) {
	fails := func(context.Context, []command.Record) error { panic("of the archive") }
	err := command.QueueConfig{Store: newMemory(), Outbox: &core.Outbox{}, Archive: fails}.Validate()
	if err == nil || !strings.Contains(err.Error(), "Archiver") {
		t.Errorf("Validate: %v", err)
	}
	q, err := command.NewQueue(command.QueueConfig{
		Store: archivable{newMemory()}, Outbox: &core.Outbox{}, Archive: fails,
	})
	if err != nil {
		t.Fatal(err)
	}
	n, err := q.Cleanup(t.Context())
	if _, ok := errors.AsType[*core.PanicError](err); n != 0 || !ok {
		t.Errorf("%d effects were deleted, %v", n, err)
	}
}

// archivable is a store of one completed effect.
type archivable struct{ *memory }

func (archivable) Archive(ctx context.Context, _ time.Duration, _ int,
	fn func(context.Context, []command.Record) error,
) (int, error) {
	if err := fn(ctx, make([]command.Record, 1)); err != nil {
		return 0, err
	}
	return 1, nil
}

// An archive that ignores the end of its context does not keep Run from ending. No second call
// begins beside it. The log names it.
func TestQueueRunEndsBesideAnArchiveThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		var log strings.Builder
		hang := make(chan struct{})
		q, err := command.NewQueue(command.QueueConfig{
			Store: archivable{newMemory()}, Outbox: &core.Outbox{}, CleanupInterval: time.Minute,
			Archive: func(context.Context, []command.Record) error {
				calls.Add(1)
				<-hang
				return nil
			},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- q.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := strings.Count(log.String(), "QueueConfig.Archive: it has not returned"); calls.Load() != 1 || n < 5 {
			t.Errorf("%d calls, and the log names it %d times:\n%s", calls.Load(), n, log.String())
		}
		cancel()
		time.Sleep(2 * time.Second)
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("Run has not ended")
		}
		close(hang)
		synctest.Wait()
	})
}
