package relay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

type traceKey struct{}

// traces records what a Tracer is told.
type traces struct {
	mu    sync.Mutex
	lines []string
	hops  int
}

func (t *traces) add(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

func (t *traces) tracer(created map[string]string) *core.Tracer {
	return &core.Tracer{
		Create: func(ctx context.Context, e core.Event) (map[string]string, func(error)) {
			t.add("create %s %s %v", e.Type, e.Topic, ctx.Value(traceKey{}))
			return created, func(err error) { t.add("created %s %t", e.Topic, err == nil) }
		},
		Send: func(ctx context.Context, d core.Delivery, path core.Path) (
			context.Context, map[string]string, func(string, error),
		) {
			t.mu.Lock()
			t.hops++
			hop := fmt.Sprint(t.hops)
			t.mu.Unlock()
			t.add("send %s %s %s %d", d.Topic, d.Headers["trace"], path, d.Attempt)
			return context.WithValue(ctx, traceKey{}, "sending"), map[string]string{"hop": hop},
				func(receipt string, err error) { t.add("sent %q %v", receipt, err) }
		},
	}
}

func (t *traces) want(test *testing.T, want ...string) {
	test.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	if got := strings.Join(t.lines, "\n"); got != strings.Join(want, "\n") {
		test.Errorf("the tracer was told\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	t.lines = nil
}

// One event for two topics has two creations, each with the context of the event. The
// headers of Send are there for one call only, and those of Create are in the table.
func TestTracerIsCalledAroundPublishAndSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got traces
		var mu sync.Mutex
		var sent []map[string]string
		fail := errors.New("not now")
		w := newWorld(t, core.Config{
			Tracer: got.tracer(map[string]string{"trace": "t1"}),
			Routes: map[string][]string{"placed": {"a", "b"}},
			Publisher: core.PublisherFunc(func(ctx context.Context, d core.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, d.Headers)
				equal(t, ctx.Value(traceKey{}), "sending", "the publisher has another context than Send returned")
				if len(sent) == 1 {
					return fail
				}
				return nil
			}),
		})
		ctx := context.WithValue(t.Context(), traceKey{}, "request")
		own := map[string]string{"mine": "1"}
		err := w.repo.Transactor().RunInTx(t.Context(), func(c context.Context, tx core.Tx) error {
			_, err := w.ob.Publish(c, tx, core.Event{Type: "placed", Headers: own}.WithContext(ctx))
			return err
		})
		must(t, err)
		got.want(t, "create placed a request", "create placed b request", "created a true", "created b true")
		equal(t, len(own), 1, "the headers of the caller are now %v", own)
		err = w.repo.Transactor().RunInTx(t.Context(), func(c context.Context, tx core.Tx) error {
			_, err := w.ob.Publish(c, tx, core.Event{Type: "alone", Topic: "c"})
			if err != nil {
				return err
			}
			_, err = w.ob.Publish(c, tx, core.Event{Type: "bad\x00", Topic: "c"})
			if err == nil {
				t.Error("an invalid event was accepted")
			}
			return errors.New("undo")
		})
		if err == nil {
			t.Fatal("the transaction committed")
		}
		// An invalid event is not traced.
		got.want(t, "create alone c <nil>", "created c true")

		w.run()
		time.Sleep(10 * time.Second)
		if err := w.stop(); err != nil || len(sent) != 3 {
			t.Fatalf("%d calls of the publisher, %v", len(sent), err)
		}
		for n, headers := range sent {
			want := map[string]string{"mine": "1", "trace": "t1", "hop": headers["hop"]}
			if !maps.Equal(headers, want) || headers["hop"] == "" {
				t.Errorf("call %d had the headers %v, want %v", n+1, headers, want)
			}
		}
	})
}

// An event that cannot carry the headers of a trace goes without them.
func TestTraceDoesNotStopAnEvent(t *testing.T) {
	for name, headers := range map[string]map[string]string{
		"too long":                           {"trace": strings.Repeat("x", 17<<10)},
		"reserved":                           {"outbox_row_id": "1"},
		"too many bytes for the destination": {"trace": "heavy"},
	} {
		t.Run(name, func(t *testing.T) {
			var got traces
			table := outboxtest.NewRepository()
			ob := newOutbox(t, core.Config{
				Repository: table, Tracer: got.tracer(headers), Publisher: light{},
			})
			must(t, publishTx(t.Context(), table, ob, core.Event{Type: "a", Headers: map[string]string{"mine": "1"}}))
			got.want(t, "create a a <nil>", "created a true")
			for _, row := range table.Rows() {
				if !maps.Equal(row.Event.Headers, map[string]string{"mine": "1"}) {
					t.Errorf("the row has the headers %v", row.Event.Headers)
				}
			}
		})
	}
}

// An event that a process without a Tracer has written may have no room for the headers of the
// relay's. It goes without them, and does not die.
func TestTraceOfTheRelayDoesNotStopAnEvent(t *testing.T) {
	for name, headers := range map[string]map[string]string{
		"reserved":                           {"trace": "1", "outbox_row_id": "1"},
		"a control character":                {"trace": "1\n"},
		"too many bytes for the destination": {"trace": "heavy"},
	} {
		t.Run(name, func(t *testing.T) {
			table := outboxtest.NewRepository()
			ended := 0
			ob := newOutbox(t, core.Config{
				Repository: table, Publisher: light{},
				Tracer: &core.Tracer{Send: func(ctx context.Context, _ core.Delivery, _ core.Path) (
					context.Context, map[string]string, func(string, error),
				) {
					return ctx, headers, func(_ string, err error) {
						if ended++; err != nil {
							t.Error(err)
						}
					}
				}},
			})
			err := publishTx(t.Context(), table, ob, core.Event{Type: "a", Headers: map[string]string{"mine": "1"}})
			if err = errors.Join(err, ob.Drain(t.Context())); err != nil || ended != 1 {
				t.Errorf("%d sends, %v", ended, err)
			}
		})
	}
}

// light is a destination that refuses heavy events, and those with a trace.
type light struct{}

func (light) Publish(_ context.Context, d core.Delivery) error {
	if !maps.Equal(d.Headers, map[string]string{"mine": "1"}) {
		return core.Permanent(fmt.Errorf("too large: %v", d.Headers))
	}
	return nil
}

func (light) CheckSize(e core.Event) error {
	if e.Headers["trace"] == "heavy" {
		return errors.New("too large")
	}
	return nil
}

// A refused insert ends the creation with its error, and a panic of the publisher ends the sending.
func TestTracerHearsOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got traces
		calls := 0
		w := newWorld(t, core.Config{
			Tracer: got.tracer(nil),
			Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error {
				if calls++; calls == 1 {
					panic("broken")
				}
				return nil
			}),
		})
		id := core.NewEventID()
		for n := range 2 {
			err := publishTx(t.Context(), w.repo, w.ob, core.Event{ID: id, Type: "a"})
			if (err == nil) != (n == 0) {
				t.Fatalf("insert %d: %v", n, err)
			}
		}
		got.want(t, "create a a <nil>", "created a true", "create a a <nil>", "created a false")
		w.run()
		time.Sleep(10 * time.Second)
		must(t, w.stop())
		got.want(t, "send a  cold 1", `sent "" outbox: publisher panicked`, "send a  cold 2", `sent "" <nil>`)
	})
}
