package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// wire carries wake-ups between the processes of a test.
type wire struct {
	takes time.Duration // duration of a Notify

	mu        sync.Mutex
	next      int
	listeners map[int]func()
	notified  []time.Time   // when each Notify began
	deaf      bool          // no Notify arrives
	err       error         // of every Notify and of new calls of Listen
	lost      chan struct{} // closed: every Listen returns
}

func newWire() *wire { return &wire{listeners: map[int]func(){}, lost: make(chan struct{})} }

func (w *wire) policy() core.WakePolicy { return core.WakePolicy{Listen: w.Listen, Notify: w.Notify} }

func (w *wire) Notify(context.Context) error {
	w.mu.Lock()
	w.notified = append(w.notified, time.Now())
	wakes, err := slices.Collect(maps.Values(w.listeners)), w.err
	if w.deaf || err != nil {
		wakes = nil
	}
	w.mu.Unlock()
	time.Sleep(w.takes)
	for _, wake := range wakes {
		wake()
	}
	return err
}

var errLineLost = errors.New("connection lost")

func (w *wire) Listen(ctx context.Context, wake func()) error {
	w.mu.Lock()
	if err := w.err; err != nil {
		w.mu.Unlock()
		return err
	}
	w.next++
	n, lost := w.next, w.lost
	w.listeners[n] = wake
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.listeners, n)
	}()
	wake()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-lost:
		return errLineLost
	}
}

// set changes the wire.
func (w *wire) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// drop ends the calls of Listen.
func (w *wire) drop() {
	w.set(func() {
		close(w.lost)
		w.lost = make(chan struct{})
	})
}

func (w *wire) notifies() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.notified)
}

func (w *wire) listening() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.listeners)
}

// two are a process that only publishes and a relay, on one table.
func two(t *testing.T, line *wire, relay core.Config) (producer, relaying *world) {
	t.Helper()
	repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
	relay.Wake = line.policy()
	producer = join(t, repo, pub, core.Config{Wake: line.policy()})
	relaying = join(t, repo, pub, relay)
	return producer, relaying
}

// seldom is a relay that would poll too late for every test.
var seldom = core.Config{Relay: relay.Config{PollInterval: time.Hour, MaxPollInterval: time.Hour}}

// arrives fails the test unless n events are accepted within d.
func (w *world) arrives(n int, d time.Duration) {
	w.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if got := len(w.pub.Accepted()); got != n {
		w.t.Fatalf("%d events arrived after %s, want %d", got, d, n)
	}
}

// A relay publishes what another process has committed at once, whatever its poll interval.
func TestWakeUpFromAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		producer, relay := two(t, newWire(), seldom)
		relay.run()
		time.Sleep(time.Minute)
		for i := range 10 {
			producer.publish(core.Event{Type: "a", Key: "k"}, core.Event{Type: "a"})
			relay.arrives(2*(i+1), 20*time.Millisecond)
			time.Sleep(time.Second)
		}
		inOrder(t, relay.pub.Accepted())
	})
}

// One Notify stands for all commits before it. It follows the last of them, and Notifies are far
// between when there are many commits.
func TestNotifyIsCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := newWire()
		line.takes = time.Millisecond
		producer, _ := two(t, line, core.Config{})
		start := time.Now()
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for range 100 {
					producer.publish(core.Event{Type: "a"})
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		last := time.Since(start)
		time.Sleep(time.Second)
		all := line.notifies()
		if most := int(last/(11*time.Millisecond)) + 2; len(all) > most || len(all) < 2 {
			t.Errorf("%d Notifies in %s, want 2 to %d", len(all), last, most)
		}
		if d := all[0].Sub(start); d > time.Millisecond {
			t.Errorf("the first came after %s", d)
		}
		if d := all[len(all)-1].Sub(start); d < last-time.Millisecond {
			t.Errorf("the last Notify came after %s, the last commit after %s", d, last-time.Millisecond)
		}
		for _, later := range []time.Duration{line.takes / 2, 5 * line.takes} { // under way, and in the pause
			before := len(line.notifies())
			producer.publish(core.Event{Type: "a"})
			time.Sleep(later)
			producer.publish(core.Event{Type: "a"})
			time.Sleep(time.Second)
			equal(t, len(line.notifies())-before, 2, "Notifies for commits %s apart", later)
		}
	})
}

// Only commits of events that this process does not relay are worth a Notify.
func TestWhatIsNotified(t *testing.T) {
	router := core.NewRouter()
	router.Handle("ours", core.PublisherFunc(func(context.Context, core.Delivery) error { return nil }))
	routed := core.Config{Publisher: router, Routes: map[string][]string{"theirs": {"theirs"}}}
	for _, c := range []struct {
		name    string
		cfg     core.Config
		run     bool
		event   core.Event
		disable bool
		end     func(tx *outboxtest.Tx) error
		want    bool
	}{
		{name: "no relay", event: core.Event{Type: "a"}, want: true},
		{name: "relay", run: true, event: core.Event{Type: "a"}},
		{name: "rolled back", event: core.Event{Type: "a"}, end: (*outboxtest.Tx).Rollback},
		{name: "commit unknown", event: core.Event{Type: "a"}, want: true, end: func(tx *outboxtest.Tx) error {
			tx.FailCommit(outboxtest.CommitAnswerLost)
			if err := tx.Commit(); !errors.Is(err, core.ErrCommitUnknown) {
				return fmt.Errorf("commit: %w", err)
			}
			return nil
		}},
		{name: "delayed", event: core.Event{Type: "a", Delay: time.Minute}},
		{name: "topic of this relay", cfg: routed, run: true, event: core.Event{Type: "ours"}},
		{name: "topic of another relay", cfg: routed, run: true, event: core.Event{Type: "theirs"}, want: true},
		{name: "disabled", event: core.Event{Type: "a"}, disable: true},
	} {
		bubble(t, c.name, func(t *testing.T) {
			line := newWire()
			c.cfg.Wake = core.WakePolicy{Notify: line.Notify, Disable: c.disable}
			w := newWorld(t, c.cfg)
			if c.run {
				w.run()
			}
			tx, err := w.repo.Begin(t.Context())
			must(t, err)
			must(t, errOf(w.ob.Publish(t.Context(), tx, c.event)))
			time.Sleep(time.Second)
			equal(t, len(line.notifies()), 0, "Notifies before the commit")
			if c.end == nil {
				c.end = (*outboxtest.Tx).Commit
			}
			must(t, c.end(tx))
			time.Sleep(time.Second)
			equal(t, len(line.notifies()), map[bool]int{true: 1}[c.want], "Notifies after the end")
			if c.run {
				noError(t, w.stop())
			}
		})
	}
}

// A Notify that fails costs the producer nothing and is logged once. Notify is not called again if
// no relay needs it.
func TestNotifyFails(t *testing.T) {
	for _, c := range []struct {
		name      string
		err       error
		calls     int
		warnings  int
		afterward int
	}{
		{"database away", errLineLost, 20, 1, 1},
		{"nobody needs it", fmt.Errorf("here: %w", errors.ErrUnsupported), 1, 0, 0},
	} {
		bubble(t, c.name, func(t *testing.T) {
			var log logLines
			line := newWire()
			line.err = c.err
			w := newWorld(t, core.Config{
				Wake:   core.WakePolicy{Notify: line.Notify},
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			for range 20 {
				w.publish(core.Event{Type: "a"})
				time.Sleep(time.Second)
			}
			equal(t, len(line.notifies()), c.calls, "calls")
			line.set(func() { line.err = nil })
			w.publish(core.Event{Type: "a"})
			time.Sleep(time.Second)
			equal(t, len(line.notifies())-c.calls, c.afterward, "calls afterwards")
			if n := log.count("cannot wake the relays"); n != c.warnings {
				t.Errorf("%d warnings, want %d: %s", n, c.warnings, log.buf.String())
			}
		})
	}
}

// The poller needs no wake-ups. If none arrives, every event still comes within the poll interval.
func TestEveryWakeUpIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := newWire()
		line.deaf = true
		var log logLines
		producer, relay := two(t, line, core.Config{
			Relay: relay.Config{
				PollInterval:    time.Second,
				MaxPollInterval: 2 * time.Second,
			},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		relay.run()
		time.Sleep(time.Minute)
		for i := range 50 {
			producer.publish(core.Event{Type: "a", Key: "k"})
			relay.arrives(i+1, 2*time.Second+2*time.Second/5) // with its jitter
		}
		// The log says once that the listener hears nothing, and later that it hears again.
		if n := log.count("no wake-ups arrive"); n != 1 || !log.has("level=WARN", "PgBouncer") {
			t.Errorf("%d warnings: %s", n, log.buf.String())
		}
		line.set(func() { line.deaf = false })
		time.Sleep(3 * time.Minute)
		if !log.has("level=INFO", "arrive again") {
			t.Error(log.buf.String())
		}
		producer.publish(core.Event{Type: "a"})
		relay.arrives(51, 20*time.Millisecond)
	})
}

// A Listen that has lost its connection is called again. The relay polls then, so that no event
// waits that was committed meanwhile.
func TestListenIsCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := newWire()
		var log logLines
		cfg := seldom
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		producer, relay := two(t, line, cfg)
		relay.run()
		time.Sleep(time.Minute)
		for i := range 5 { // each loss is followed by a time in which it hears
			line.drop()
			producer.publish(core.Event{Type: "a"})
			relay.arrives(2*i+1, 200*time.Millisecond)
			producer.publish(core.Event{Type: "a"})
			relay.arrives(2*i+2, 150*time.Millisecond)
			time.Sleep(time.Minute)
		}
		if log.has("level=WARN") {
			t.Errorf("a connection that came back at once was a warning: %s", log.buf.String())
		}
		line.set(func() { line.err = errLineLost })
		line.drop()
		time.Sleep(10 * time.Minute)
		if n := log.count("no wake-ups arrive"); n != 1 || !log.has("error=\"connection lost\"") {
			t.Errorf("%d warnings of a database that was away: %s", n, log.buf.String())
		}
		line.set(func() { line.err = nil })
		time.Sleep(2 * time.Minute)
		if line.listening() != 1 || !log.has("level=INFO", "arrive again") {
			t.Errorf("%d listen: %s", line.listening(), log.buf.String())
		}
		noError(t, relay.stop())
		equal(t, line.listening(), 0, "listen after Run returned")
	})
}

// A connection may fall silent without an error. The relay notices: it does not hear itself.
func TestListenFallsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := newWire()
		producer, relay := two(t, line, seldom)
		relay.run()
		time.Sleep(time.Minute)
		line.set(func() { clear(line.listeners) }) // what they have sent is on its way for ever
		producer.publish(core.Event{Type: "a"})
		relay.arrives(1, 90*time.Second)
		producer.publish(core.Event{Type: "a"})
		relay.arrives(2, 150*time.Millisecond)
	})
}

// The relay goes on, and ends in time, whatever a Listen does.
func TestListenMisbehaves(t *testing.T) {
	for name, listen := range map[string]func(ctx context.Context, wake func()) error{
		"panics":             func(context.Context, func()) error { panic("listen") },
		"ends its goroutine": func(context.Context, func()) error { runtime.Goexit(); return nil },
		"returns nil":        func(context.Context, func()) error { return nil },
		"is never ready": func(ctx context.Context, _ func()) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"has nothing to listen to": func(context.Context, func()) error { return errors.ErrUnsupported },
		"does not end in time": func(_ context.Context, wake func()) error {
			wake()
			time.Sleep(time.Hour)
			return nil
		},
	} {
		bubble(t, name, func(t *testing.T) {
			var log logLines
			calls := 0
			w := newWorld(t, core.Config{
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
				Wake: core.WakePolicy{Listen: func(ctx context.Context, wake func()) error {
					calls++ // one call at a time
					return listen(ctx, wake)
				}},
			})
			producer := join(t, w.repo, w.pub, core.Config{})
			w.run()
			time.Sleep(10 * time.Minute)
			producer.publish(core.Event{Type: "a"})
			time.Sleep(6 * time.Second)
			w.atRest(1)
			start := time.Now()
			noError(t, w.stop())
			if d := time.Since(start); d > 2*time.Second {
				t.Errorf("Run returned after %s", d)
			}
			quiet := name == "has nothing to listen to" || name == "does not end in time"
			if warned := log.count("no wake-ups arrive"); warned != map[bool]int{true: 0, false: 1}[quiet] {
				t.Errorf("%d warnings: %s", warned, log.buf.String())
			}
			if calls > 30 || quiet && calls != 1 {
				t.Errorf("%d calls of Listen in ten minutes", calls)
			}
			time.Sleep(time.Hour) // until its goroutine ends
		})
	}
}

// Wake-ups for other relays, or for nothing, cost only a poll now and then. A wake-up for this
// relay still does not wait long.
func TestWakeUpsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := newWire()
		producer, relay := two(t, line, seldom)
		relay.run()
		time.Sleep(time.Minute)
		before := relay.faulty.Calls(outboxtest.MethodClaimUnordered)
		end := time.Now().Add(time.Minute)
		for time.Now().Before(end) {
			must(t, line.Notify(t.Context()))
			// Not when a pause ends: one that comes while a round runs begins another one at once.
			time.Sleep(1007 * time.Microsecond)
		}
		if n := relay.faulty.Calls(outboxtest.MethodClaimUnordered) - before; n < 60 || n > 700 {
			t.Errorf("%d polls in a minute of wake-ups for nothing, want about ten a second", n)
		}
		producer.publish(core.Event{Type: "a"})
		relay.arrives(1, 110*time.Millisecond)
	})
}
