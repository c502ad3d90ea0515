package relay_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// registry is a table whose heartbeats are counted and can fail.
type registry struct {
	*outboxtest.Repository
	beats, forgotten atomic.Int64
	fail             atomic.Pointer[error]
}

func (r *registry) Beat(ctx context.Context, b core.Heartbeat) error {
	r.beats.Add(1)
	if err := r.fail.Load(); err != nil {
		return *err
	}
	return r.Repository.Beat(ctx, b)
}

func (r *registry) ForgetRelays(ctx context.Context, unseen time.Duration) (int, error) {
	r.forgotten.Add(1)
	if err := r.fail.Load(); err != nil {
		return 0, *err
	}
	return r.Repository.ForgetRelays(ctx, unseen)
}

// runOutbox starts a relay. stop ends it and waits, and the end of the test does so if nothing else
// has.
func runOutbox(t *testing.T, cfg core.Config) (ob *core.Outbox, stop func()) {
	t.Helper()
	if cfg.Publisher == nil && !cfg.RelayedByLog {
		cfg.Publisher = &outboxtest.Publisher{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	ob = newOutbox(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ob.Run(ctx) }()
	synctest.Wait()
	stop = sync.OnceFunc(func() {
		cancel()
		noError(t, <-done)
	})
	t.Cleanup(stop)
	return ob, stop
}

func relaysOf(t *testing.T, ob *core.Outbox) []core.RelayStatus {
	t.Helper()
	relays, err := ob.Relays(t.Context())
	must(t, err)
	return relays
}

// A relay is seen from its start to its clean end. It costs less than seven heartbeats a minute,
// and its heartbeat says what it did.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &registry{Repository: outboxtest.NewRepository()}
		ob, stop := runOutbox(t, core.Config{Repository: repo, Node: "web"})
		other := newOutbox(t, core.Config{Repository: repo})
		got := relaysOf(t, other)
		if len(got) != 1 {
			t.Fatalf("relays %+v", got)
		}
		s := got[0]
		host, _ := os.Hostname()
		if s.Node != ob.Node() || s.Host != host || s.PID != os.Getpid() || s.Program == "" || s.Version == "" ||
			!s.AllTopics || len(s.Topics) > 0 || !s.Alive() || !s.PublishedAt.IsZero() {
			t.Errorf("relay %+v", s)
		}
		must(t, publishTx(t.Context(), repo, ob, core.Event{Type: "order.placed", Data: 1}))
		for range 600 {
			time.Sleep(time.Second)
			if s = relaysOf(t, other)[0]; s.Age > 13*time.Second {
				t.Fatalf("the heartbeat is %s old", s.Age)
			}
		}
		if n := repo.beats.Load(); n < 50 || n > 75 {
			t.Errorf("%d heartbeats in ten minutes, want about one in 10 s", n)
		}
		if s.ClaimedAt.Before(s.SeenAt.Add(-10*time.Second)) || !s.PublishedAt.Before(s.SeenAt.Add(-9*time.Minute)) ||
			s.PublishedAt.Before(s.StartedAt) || s.SeenAt.Sub(s.StartedAt) < 9*time.Minute {
			t.Errorf("times %+v", s)
		}
		stop()
		if got := relaysOf(t, other); len(got) != 0 {
			t.Errorf("after its end: %+v", got)
		}
	})
}

// A topic that nobody relays is known within 30 s after the crash of its last relay.
func TestUnrelayedTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &registry{Repository: outboxtest.NewRepository()}
		router := core.NewRouter()
		router.Handle("orders", &outboxtest.Publisher{})
		ob, _ := runOutbox(t, core.Config{Repository: repo, Publisher: router})
		producer := newOutbox(t, core.Config{Repository: repo})
		unrelayed := func() []string {
			topics, err := producer.UnrelayedTopics(t.Context())
			must(t, err)
			return topics
		}
		if topics := unrelayed(); len(topics) > 0 {
			t.Errorf("topics %v without events", topics)
		}
		must(t, publishTx(t.Context(), repo, producer, core.Event{Type: "e", Topic: "mail", Key: "k", Data: 1},
			core.Event{Type: "e", Topic: "orders", Data: 1, Delay: time.Hour}))
		if topics := unrelayed(); !slices.Equal(topics, []string{"mail"}) {
			t.Errorf("topics %v, want mail", topics)
		}
		if s := relaysOf(t, ob); len(s) != 1 || s[0].AllTopics || !slices.Equal(s[0].Topics, []string{"orders"}) {
			t.Errorf("relays %+v", s)
		}
		crash := errors.New("the process is gone")
		repo.fail.Store(&crash)
		time.Sleep(30 * time.Second)
		if topics := unrelayed(); !slices.Equal(topics, []string{"mail", "orders"}) {
			t.Errorf("topics %v after the crash, want both", topics)
		}
	})
}

// A relay whose heartbeats fail goes on publishing. It logs one warning after several failures in a
// row.
func TestHeartbeatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denied := errors.New("permission denied for table outbox_relay")
		repo := &registry{Repository: outboxtest.NewRepository()}
		repo.fail.Store(&denied)
		var log bytes.Buffer
		pub := &outboxtest.Publisher{}
		ob, stop := runOutbox(t, core.Config{
			Repository: repo, Publisher: pub,
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			Relay:  relay.Config{Retention: relay.Retention{CleanupInterval: time.Minute}},
		})
		time.Sleep(time.Hour)
		must(t, publishTx(t.Context(), repo, ob, core.Event{Type: "e", Data: 1}))
		synctest.Wait()
		equal(t, len(pub.Accepted()), 1, "the relay published nothing")
		repo.fail.Store(nil)
		time.Sleep(30 * time.Second)
		if got := relaysOf(t, ob); len(got) != 1 || !got[0].Alive() {
			t.Errorf("after the right was granted: %+v", got)
		}
		stop()
		if n := strings.Count(log.String(), "heartbeats of this relay fail"); n != 1 {
			t.Errorf("%d warnings, want 1:\n%s", n, log.String())
		}
	})
}

// The janitor forgets relays that crashed a day ago.
func TestHeartbeatForgotten(t *testing.T) {
	if testing.Short() { // a day of heartbeats
		t.Skip("takes long: make test-all runs it")
	}
	synctest.Test(t, func(t *testing.T) {
		repo := &registry{Repository: outboxtest.NewRepository()}
		must(t, repo.Beat(t.Context(), core.Heartbeat{Node: "crashed"}))
		ob, _ := runOutbox(t, core.Config{Repository: repo})
		time.Sleep(23 * time.Hour)
		if got := relaysOf(t, ob); len(got) != 2 || got[1].Node != "crashed" || got[1].Alive() {
			t.Errorf("after 23 hours: %+v", got)
		}
		time.Sleep(2 * time.Hour)
		if got := relaysOf(t, ob); len(got) != 1 || got[0].Node != ob.Node() {
			t.Errorf("after 25 hours: %+v", got)
		}
	})
}

// Two builds of one program are told apart, by version or by revision.
func TestBuildNames(t *testing.T) {
	const module = "github.com/ormoutbox/ormoutbox"
	for _, c := range []struct {
		info             debug.BuildInfo
		program, version string
	}{
		{debug.BuildInfo{
			Main: debug.Module{Path: "example.com/shop", Version: "v1.4.0"},
			Deps: []*debug.Module{{Path: module, Version: "v1.0.2"}},
		}, "example.com/shop v1.4.0", "v1.0.2"},
		{debug.BuildInfo{
			Main: debug.Module{Path: "example.com/shop", Version: "(devel)"},
			Deps: []*debug.Module{{Path: module, Version: "v1.0.2", Replace: &debug.Module{Path: "../ormoutbox"}}},
			Settings: []debug.BuildSetting{
				{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
			},
		}, "example.com/shop 0123456789ab+dirty", "(devel)"},
		{debug.BuildInfo{Path: "command-line-arguments"}, "command-line-arguments", ""},
	} {
		if program, version := relay.DescribeBuild(&c.info); program != c.program || version != c.version {
			t.Errorf("%q, %q; want %q, %q", program, version, c.program, c.version)
		}
	}
}

// A process with a Publisher that never calls Run gets one warning. A process that relays, drains,
// or has no Publisher gets none.
func TestForgottenRun(t *testing.T) {
	for name, c := range map[string]struct {
		relay func(t *testing.T, w *world)
		cfg   core.Config
		warns bool
	}{
		"no Run": {func(*testing.T, *world) {}, core.Config{Publisher: &outboxtest.Publisher{}}, true},
		"Run":    {func(_ *testing.T, w *world) { w.run() }, core.Config{Publisher: &outboxtest.Publisher{}}, false},
		"Drain": {func(t *testing.T, w *world) {
			t.Helper()
			noError(t, w.ob.Drain(context.Background()))
		}, core.Config{Publisher: &outboxtest.Publisher{}}, false},
		"no Publisher":    {func(*testing.T, *world) {}, core.Config{}, false},
		"read by the log": {func(*testing.T, *world) {}, core.Config{RelayedByLog: true}, false},
	} {
		bubble(t, name, func(t *testing.T) {
			var log logLines
			c.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			w := join(t, outboxtest.NewRepository(), nil, c.cfg)
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
