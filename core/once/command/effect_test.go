package command_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// memory is a table of effects without a database. If fail is set, it returns the error of each
// call. sqlcommand has the tests of the contract.
type memory struct {
	mu    sync.Mutex
	rows  map[string]*memoryRow
	fail  func(call string) error
	calls map[string]int
}

type memoryRow struct {
	command.Record
	owner string
	fence int64
	until time.Time
	due   time.Time
}

func newMemory() *memory { return &memory{rows: map[string]*memoryRow{}, calls: map[string]int{}} }

func (m *memory) enter(call string) (func(), error) {
	m.mu.Lock()
	m.calls[call]++
	if m.fail != nil {
		if err := m.fail(call); err != nil {
			m.mu.Unlock()
			return nil, err
		}
	}
	return m.mu.Unlock, nil
}

func (m *memory) EnqueueTx(_ context.Context, tx core.Tx, e command.Effect) (command.Record, bool, error) {
	leave, err := m.enter("enqueue")
	if err != nil {
		return command.Record{}, false, err
	}
	defer leave()
	for _, r := range m.rows {
		if r.Tenant == e.Tenant && r.Channel == e.Channel && r.Key == e.Key {
			if r.Fingerprint() != e.Fingerprint() {
				return command.Record{}, false, once.ErrFingerprintMismatch
			}
			return r.Record, false, nil
		}
	}
	m.rows[e.ID] = &memoryRow{Record: command.Record{Effect: e}, due: time.Now().Add(e.Delay)}
	tx.OnOutcome(func(out core.Outcome) {
		if out == core.RolledBack {
			delete(m.rows, e.ID)
		}
	})
	return command.Record{Effect: e}, true, nil
}

func (m *memory) Claim(_ context.Context, id, owner string, lease time.Duration) (command.Claimed, error) {
	leave, err := m.enter("claim")
	if err != nil {
		return command.Claimed{}, err
	}
	defer leave()
	r := m.rows[id]
	if r == nil {
		return command.Claimed{}, command.ErrNoEffect
	}
	stale := r.Status == command.StatusProcessing && !time.Now().Before(r.until)
	if r.Status != command.StatusPending && r.Status != command.StatusFailed && !stale {
		return command.Claimed{Record: r.Record, RetryAfter: time.Until(r.until)}, nil
	}
	if stale {
		r.LostLeases++
	}
	r.Status, r.owner, r.until = command.StatusProcessing, owner, time.Now().Add(lease)
	r.fence++
	r.UpdatedAt = time.Now()
	return command.Claimed{Record: r.Record, Fresh: true, Fence: r.fence}, nil
}

// end changes the row if the claim is its latest.
func (m *memory) end(call string, c command.Claim, do func(r *memoryRow)) error {
	leave, err := m.enter(call)
	if err != nil {
		return err
	}
	defer leave()
	r := m.rows[c.ID]
	if r == nil || r.owner != c.Owner || r.fence != c.Fence || r.Status != command.StatusProcessing {
		return once.ErrLeaseLost
	}
	do(r)
	return nil
}

func (m *memory) Extend(_ context.Context, c command.Claim, lease time.Duration) error {
	return m.end("extend", c, func(r *memoryRow) { r.until = time.Now().Add(lease) })
}

func (m *memory) Complete(_ context.Context, c command.Claim, ref string) error {
	return m.end("complete", c, func(r *memoryRow) { r.Status, r.ExternalRef = command.StatusCompleted, ref })
}

func (m *memory) Fail(_ context.Context, c command.Claim, f command.Failure) error {
	return m.end("fail", c, func(r *memoryRow) {
		r.Status, r.ErrorCode, r.Error, r.due = command.StatusFailed, f.Code, f.Text, time.Now()
		if f.Dead {
			r.Status = command.StatusDead
		}
		if !f.Free {
			r.Attempts++
		}
	})
}

func (m *memory) RedriveTx(_ context.Context, _ core.Tx, id, note string) (command.Record, bool, error) {
	r := m.rows[id]
	if r == nil {
		return command.Record{}, false, command.ErrNoEffect
	}
	if r.Status != command.StatusDead {
		return r.Record, false, nil
	}
	r.Status, r.Attempts, r.Error = command.StatusPending, 0, note
	return r.Record, true, nil
}

func (m *memory) Find(_ context.Context, tenant, channel, key string) (command.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rows {
		if r.Tenant == tenant && r.Channel == channel && r.Key == key {
			return r.Record, nil
		}
	}
	return command.Record{}, command.ErrNoEffect
}

func (m *memory) List(_ context.Context, q command.Query) (list []command.Record, err error) {
	for _, r := range m.rows {
		if r.Status == q.Status {
			list = append(list, r.Record)
		}
	}
	return list, nil
}

func (m *memory) Overdue(_ context.Context, channel string, grace time.Duration,
	limit int,
) (list []command.Record, err error) {
	leave, err := m.enter("overdue")
	if err != nil {
		return nil, err
	}
	defer leave()
	over := func(t time.Time) bool { return time.Since(t) > grace }
	for _, r := range m.rows {
		open := r.Status == command.StatusPending || r.Status == command.StatusFailed ||
			r.Status == command.StatusProcessing && over(r.until)
		if r.Channel == channel && open && over(r.due) {
			list = append(list, r.Record)
		}
	}
	slices.SortFunc(list, func(a, b command.Record) int { return strings.Compare(a.ID, b.ID) })
	return list[:min(limit, len(list))], nil
}

func (m *memory) Backlog(_ context.Context, limit int) ([]command.Backlog, error) {
	leave, err := m.enter("backlog")
	if err != nil {
		return nil, err
	}
	defer leave()
	return []command.Backlog{{Channel: "mail", Pending: int64(len(m.rows)), Limit: int64(limit)}}, nil
}

func (m *memory) Cleanup(context.Context, time.Duration, int) (int, error) {
	leave, err := m.enter("cleanup")
	if err != nil {
		return 0, err
	}
	defer leave()
	return 0, nil
}

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

// The test checks the status of the effect and the error that the relay gets, for every way in
// which a handler can end.
func TestWorkerOutcomes(t *testing.T) {
	odd := errors.New("odd")
	for name, c := range map[string]struct {
		err     error
		attempt int
		status  command.Status
		spent   int
		told    bool // the relay gets an error
		class   core.Class
		outcome command.ExecResult
	}{
		"done":         {nil, 1, command.StatusCompleted, 0, false, 0, command.Executed},
		"unmarked":     {odd, 1, command.StatusFailed, 1, true, core.ClassTransient, command.Retried},
		"transient":    {core.Transient(odd), 9, command.StatusFailed, 1, true, core.ClassTransient, command.Retried},
		"last attempt": {odd, 10, command.StatusDead, 1, false, 0, command.Dead},
		"permanent":    {core.Permanent(odd), 1, command.StatusDead, 1, false, 0, command.Dead},
		"outage": {
			core.Unavailable(odd), 99, command.StatusFailed, 0, true, core.ClassUnavailable,
			command.Retried,
		},
		"outage of a part": {
			core.UnavailableForKey(odd), 99, command.StatusFailed, 0, true, core.ClassKeyUnavailable,
			command.Retried,
		},
		"network error": {
			fmt.Errorf("call: %w", syscall.ECONNREFUSED), 99, command.StatusFailed, 0, true,
			core.ClassUnavailable, command.Retried,
		},
		"its own deadline": {
			context.DeadlineExceeded, 1, command.StatusFailed, 1, true, core.ClassTransient,
			command.Retried,
		},
		"deadline, at last": {context.DeadlineExceeded, 10, command.StatusDead, 1, false, 0, command.Dead},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEffects(t)
			var info command.ExecInfo
			var got command.Effect
			worker := w.worker(func(_ context.Context, e command.Effect) (string, error) {
				got = e
				return "ref", c.err
			}, func(cfg *command.WorkerConfig) { cfg.Observer = func(i command.ExecInfo) { info = i } })
			receipt, err := worker.PublishWithReceipt(t.Context(), w.delivery(c.attempt))
			class, marked := core.ClassOf(err)
			if (err != nil) != c.told || class != c.class ||
				c.told && !marked && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the relay is told %v, class %s", err, class)
			}
			rec, _ := w.queue.Find(t.Context(), "acme", "mail", "1")
			if rec.Status != c.status || rec.Attempts != c.spent ||
				(c.status == command.StatusCompleted) != (receipt == "ref") {
				t.Errorf("%q, %+v", receipt, rec)
			}
			if info.Result != c.outcome || info.Channel != "mail" || info.Key != "1" || info.ID != w.rec.ID ||
				info.Attempt != c.attempt || !errors.Is(info.Err, c.err) {
				t.Errorf("%+v", info)
			}
			if string(got.Payload) != "hello" || len(got.IdempotencyKey()) != 64 ||
				got.IdempotencyKey() != w.rec.IdempotencyKey() {
				t.Errorf("%+v", got)
			}
		})
	}
}

// While the store fails, no effect is treated as done, and the event spends no attempt.
func TestWorkerWithoutStore(t *testing.T) {
	down := errors.New("database is down")
	for call, calls := range map[string]int{"claim": 0, "complete": 1, "fail": 1} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newEffects(t)
				w.store.fail = func(c string) error {
					if c == call {
						return down
					}
					return nil
				}
				n := 0
				worker := w.worker(func(context.Context, command.Effect) (string, error) {
					n++
					if call == "fail" {
						return "", core.Permanent(errors.New("no"))
					}
					return "ref", nil
				})
				err := worker.Publish(t.Context(), w.delivery(1))
				if class, _ := core.ClassOf(err); !errors.Is(err, down) || class != core.ClassKeyUnavailable ||
					n != calls {
					t.Errorf("%v after %d calls", err, n)
				}
				if call != "claim" && w.store.calls[call] < 3 {
					t.Errorf("%s was tried %d times", call, w.store.calls[call])
				}
				// The lease ends and the store works again. The next worker completes the effect.
				w.store.fail = nil
				time.Sleep(time.Minute)
				receipt, err := w.worker(func(context.Context, command.Effect) (string, error) {
					return "again", nil
				}).PublishWithReceipt(t.Context(), w.delivery(1))
				if err != nil || receipt != "again" {
					t.Errorf("%q, %v", receipt, err)
				}
			})
		})
	}
}

// A stop of the relay is no failure of the effect. A panic is a failure, and goes on to the relay.
func TestWorkerStopAndPanic(t *testing.T) {
	w := newEffects(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := w.worker(func(ctx context.Context, _ command.Effect) (string, error) {
		cancel()
		return "", ctx.Err()
	}).Publish(ctx, w.delivery(10))
	rec, _ := w.queue.Find(t.Context(), "acme", "mail", "1")
	if !errors.Is(err, context.Canceled) || rec.Status != command.StatusFailed || rec.Attempts != 0 {
		t.Errorf("stopped: %v, %+v", err, rec)
	}
	func() {
		defer func() {
			if v := recover(); v != "oh no" {
				t.Errorf("recovered %v", v)
			}
		}()
		_ = w.worker(func(context.Context, command.Effect) (string, error) { panic("oh no") }).Publish(t.Context(),
			w.delivery(1))
	}()
	if rec, _ = w.queue.Find(t.Context(), "acme", "mail", "1"); rec.Status != command.StatusFailed ||
		rec.Attempts != 1 ||
		rec.ErrorCode != "panic" ||
		!strings.Contains(rec.Error, "panic: oh no") {
		t.Errorf("panic: %+v", rec)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.worker(func(context.Context, command.Effect) (string, error) {
			runtime.Goexit()
			return "", nil
		}).Publish(t.Context(), w.delivery(2))
		t.Error("runtime.Goexit returned")
	}()
	<-done
	if rec, _ = w.queue.Find(t.Context(), "acme", "mail", "1"); rec.Attempts != 2 || rec.ErrorCode != "goexit" ||
		!strings.Contains(rec.Error, "runtime.Goexit") {
		t.Errorf("runtime.Goexit: %+v", rec)
	}
}

// If the store has not answered for the length of the lease, the handler's context ends. A later
// success of the handler is not relied on.
func TestWorkerLosesLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEffects(t)
		w.store.fail = func(c string) error {
			if c == "extend" {
				return errors.New("database is down")
			}
			return nil
		}
		start := time.Now()
		err := w.worker(func(ctx context.Context, _ command.Effect) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}, func(c *command.WorkerConfig) { c.Lease = 30 * time.Second }).Publish(t.Context(), w.delivery(1))
		if class, _ := core.ClassOf(err); !errors.Is(err, once.ErrLeaseLost) || class != core.ClassKeyUnavailable {
			t.Errorf("%v", err)
		}
		if d := time.Since(start); d != 30*time.Second {
			t.Errorf("told after %s", d)
		}
	})
}

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
		if _, err := w.queue.Redrive(ctx, nil, w.rec.ID, " ", "why not"); !errors.Is(err, core.ErrInvalidRequest) {
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
			t.Error("the error is kept back")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
		defer cancel()
		if err := w.queue.Run(ctx); err != nil || w.store.calls["cleanup"] != 4 {
			t.Errorf("%v after %d cleanups", err, w.store.calls["cleanup"])
		}
	})
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
		t.Error("keys for the other side are not told apart as effects are")
	}
}
