package relay_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// world is one process with an outbox on a table in memory.
type world struct {
	t         *testing.T
	repo      *outboxtest.Repository
	faulty    *outboxtest.FaultyRepository
	pub       *outboxtest.Publisher
	ob        *core.Outbox
	stop      func() error
	hot       atomic.Int64
	cold      atomic.Int64
	fallbacks sync.Map
}

func newWorld(t *testing.T, cfg core.Config) *world {
	t.Helper()
	return join(t, outboxtest.NewRepository(), &outboxtest.Publisher{}, cfg)
}

// join adds a process to a table and a destination.
func join(t *testing.T, repo *outboxtest.Repository, pub *outboxtest.Publisher, cfg core.Config) *world {
	t.Helper()
	if cfg.Repository == nil {
		cfg.Repository = repo
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	w := &world{t: t, repo: repo, pub: pub, faulty: outboxtest.NewFaultyRepository(cfg.Repository)}
	cfg.Repository = w.faulty
	if cfg.Publisher == nil && pub != nil {
		cfg.Publisher = pub
	}
	cfg.Observer = core.TeeObserver(cfg.Observer, &core.Observer{
		Published: func(i core.PublishInfo) {
			if i.Path == core.PathHot {
				w.hot.Add(1)
			} else {
				w.cold.Add(1)
			}
		},
		FellBack: func(_ string, reason core.FallbackReason) {
			n, _ := w.fallbacks.LoadOrStore(reason, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
		},
	})
	ob := newOutbox(t, cfg)
	w.ob = ob
	return w
}

func (w *world) fellBack(reason core.FallbackReason) int64 {
	n, ok := w.fallbacks.Load(reason)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// run starts the relay. stop ends it and waits, and the end of the test does so if nothing else has.
func (w *world) run() *world {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.ob.Run(ctx) }()
	synctest.Wait()
	stopped := false
	w.stop = func() error { stopped = true; cancel(); return <-done }
	w.t.Cleanup(func() {
		if !stopped {
			noError(w.t, w.stop())
		}
	})
	return w
}

func (w *world) publish(events ...core.Event) []string {
	w.t.Helper()
	var ids []string
	err := w.repo.Transactor().RunInTx(context.Background(), func(ctx context.Context, tx core.Tx) (err error) {
		ids, err = w.ob.Publish(ctx, tx, events...)
		return err
	})
	must(w.t, err)
	return ids
}

func (w *world) statuses() map[outboxtest.Status]int {
	m := map[outboxtest.Status]int{}
	for _, r := range w.repo.Rows() {
		m[r.Status]++
	}
	return m
}

// atRest fails the test unless n rows are DONE and no other row exists.
func (w *world) atRest(n int) {
	w.t.Helper()
	if got := w.statuses(); got[outboxtest.StatusDone] != n || len(w.repo.Rows()) != n {
		w.t.Fatalf("rows by status: %v, want %d done", got, n)
	}
}

func ids(ds []core.Delivery) []string {
	var out []string
	for _, d := range ds {
		out = append(out, d.ID)
	}
	return out
}

// inOrder fails the test unless the first copies of each key came in ascending sequence.
func inOrder(t *testing.T, ds []core.Delivery) {
	t.Helper()
	last, seen := map[string]int64{}, map[string]bool{}
	for _, d := range ds {
		if d.KeySeq == 0 || seen[d.ID] {
			continue
		}
		seen[d.ID] = true
		key := d.Topic + "\x00" + d.TenantID + "\x00" + d.Key
		if d.KeySeq <= last[key] {
			t.Errorf("key %q: first copy of %d came after %d", d.Key, d.KeySeq, last[key])
		}
		last[key] = d.KeySeq
	}
}
