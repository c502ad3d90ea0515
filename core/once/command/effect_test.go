package command_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// effects is a queue and one effect in it.
type effects struct {
	t     *testing.T
	store *memory
	repo  *outboxtest.Repository
	queue *command.Queue
	rec   command.Record
}

func newEffects(t *testing.T) *effects {
	t.Helper()
	w := &effects{t: t, store: newMemory(), repo: outboxtest.NewRepository()}
	outbox, err := core.New(core.Config{Repository: w.repo})
	if err != nil {
		t.Fatal(err)
	}
	if w.queue, err = command.NewQueue(command.QueueConfig{Store: w.store, Outbox: outbox}); err != nil {
		t.Fatal(err)
	}
	w.inTx(func(ctx context.Context) (err error) {
		w.rec, _, err = w.queue.Enqueue(ctx, nil, command.Effect{
			Channel: "mail", Tenant: "acme", Key: "1",
			Payload: []byte("hello"),
		})
		return err
	})
	return w
}

func (w *effects) inTx(fn func(ctx context.Context) error) {
	w.t.Helper()
	if err := w.repo.Transactor().RunInTx(w.t.Context(),
		func(ctx context.Context, _ core.Tx) error { return fn(ctx) }); err != nil {
		w.t.Fatal(err)
	}
}

// enqueue writes effects in one transaction.
func (w *effects) enqueue(all ...command.Effect) {
	w.t.Helper()
	w.inTx(func(ctx context.Context) error {
		for _, e := range all {
			if _, _, err := w.queue.Enqueue(ctx, nil, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// relay runs a relay that hands events to the worker, until the end of the test.
func (w *effects) relay(worker *command.Worker, observer *core.Observer) {
	w.t.Helper()
	router := core.NewRouter()
	worker.AddTo(router)
	outbox, err := core.New(core.Config{
		Repository: w.repo,
		Publisher:  router,
		Relay:      relay.Config{},
		Observer:   observer,
		Logger:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- outbox.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

// bubble runs fn as a subtest with a clock of its own.
func bubble(t *testing.T, name string, fn func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, fn) })
}

func (w *effects) worker(handler command.Handler, set ...func(*command.WorkerConfig)) *command.Worker {
	w.t.Helper()
	cfg := command.WorkerConfig{Store: w.store, Handlers: map[string]command.Handler{"mail": handler}}
	for _, fn := range set {
		fn(&cfg)
	}
	worker, err := command.NewWorker(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return worker
}

func (w *effects) delivery(attempt int) core.Delivery {
	row := w.repo.Rows()[0]
	return core.Delivery{Event: row.Event, RowID: row.ID, Attempt: attempt}
}

func TestEffectConfigs(t *testing.T) {
	names := func(err error, parts ...string) {
		t.Helper()
		for _, p := range parts {
			if err == nil || !strings.Contains(err.Error(), p) {
				t.Errorf("%v does not name %s", err, p)
			}
		}
	}
	if _, err := command.NewQueue(command.QueueConfig{Store: newMemory(), Outbox: (*core.Outbox)(nil)}); err == nil {
		t.Error("an outbox that is nil was accepted")
	}
	_, err := command.NewQueue(command.QueueConfig{Retention: -1, CleanupInterval: -1, CleanupBatch: -1})
	names(err, "Store", "Outbox", "Retention", "CleanupInterval", "CleanupBatch")
	_, err = command.NewWorker(command.WorkerConfig{
		MaxAttempts: -1, Lease: time.Millisecond, StoreTimeout: time.Minute,
		Node: strings.Repeat("n", 129), OverdueAfter: -1, SweepInterval: -1, SweepTimeout: -1, PerDestination: -1,
	})
	names(err, "Store", "Handlers", "MaxAttempts", "Lease", "StoreTimeout", "Node", "OverdueAfter", "SweepInterval",
		"SweepTimeout", "PerDestination")
	_, err = command.NewWorker(command.WorkerConfig{
		Store:    newMemory(),
		Handlers: map[string]command.Handler{"mail": nil, strings.Repeat("c", 129): nil},
	})
	names(err, `"mail" is nil`, "129 bytes")

	w := newEffects(t)
	worker := w.worker(func(context.Context, command.Effect) (string, error) { return "", nil })
	router := core.NewRouter()
	worker.AddTo(router)
	if !slices.Equal(router.Topics(), []string{"effect.mail"}) || !slices.Equal(worker.Topics(), router.Topics()) {
		t.Errorf("%v, %v", router.Topics(), worker.Topics())
	}
	err = command.Effect{Headers: map[string]string{"": "\n"}, Delay: -1, EventID: strings.Repeat("e", 256)}.Validate()
	names(err, "channel is empty", "key is empty", "header", "delay", "event id")
	if !errors.Is(err, once.ErrInvalidRequest) {
		t.Error(err)
	}
	a, b := command.Effect{Tenant: "a", Channel: "bc", Key: "d"}, command.Effect{Tenant: "ab", Channel: "c", Key: "d"}
	if a.IdempotencyKey() == b.IdempotencyKey() ||
		a.IdempotencyKey() != (command.Effect{
			Tenant: "a", Channel: "bc", Key: "d",
			Payload: []byte("x"),
		}).IdempotencyKey() {
		t.Error("the idempotency key depends on more or less than the effect's tenant, channel and key")
	}
}
