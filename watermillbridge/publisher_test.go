package watermillbridge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	bridge "github.com/ormoutbox/ormoutbox/watermillbridge"
)

// fakePublisher is a message.Publisher made of functions.
type fakePublisher struct {
	publish func(topic string, msgs ...*message.Message) error
	close   func() error
	closed  atomic.Int32
}

func (f *fakePublisher) Publish(topic string, msgs ...*message.Message) error {
	return f.publish(topic, msgs...)
}

func (f *fakePublisher) Close() error {
	f.closed.Add(1)
	if f.close != nil {
		return f.close()
	}
	return nil
}

func newPublisher(t testing.TB, publish func(string, ...*message.Message) error,
	cfg bridge.Config,
) (*bridge.Publisher, *fakePublisher) {
	t.Helper()
	fake := &fakePublisher{publish: publish}
	p, err := bridge.NewPublisher(fake, cfg)
	must(t, err)
	return p, fake
}

func delivery(topic string) core.Delivery {
	e := core.Event{ID: core.NewEventID(), Type: "order.placed", Topic: topic, Payload: []byte(`{"total":7}`)}
	id, err := core.NewRowID(e.ID, topic)
	if err != nil {
		panic(err)
	}
	return core.Delivery{Event: e, RowID: id, Attempt: 1}
}

func TestPublishSendsOneMessagePerCall(t *testing.T) {
	t.Parallel()
	type key struct{}
	var topics []string
	var got []*message.Message
	p, _ := newPublisher(t, func(topic string, msgs ...*message.Message) error {
		topics, got = append(topics, topic), append(got, msgs...)
		return nil
	}, bridge.Config{Topic: func(d core.Delivery) string { return "prod." + d.Topic }})

	ctx := context.WithValue(t.Context(), key{}, "value")
	d := delivery("orders")
	must(t, p.Publish(ctx, d))
	if len(got) != 1 || topics[0] != "prod.orders" {
		t.Fatalf("published %d messages to %q, want 1 to prod.orders", len(got), topics)
	}
	equal(t, got[0].UUID, d.ID, "UUID")
	equal(t, got[0].Context().Value(key{}), "value", "the message does not carry the context of the publish")
	got[0].Payload[0] = 'X'
	if d.Payload[0] == 'X' {
		t.Error("the message shares the payload of the delivery, which a call that is left behind would keep")
	}
}

func TestPublishReturnsTheErrorOfThePublisher(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		err        error
		classifier func(error) core.Class
		class      core.Class
		marked     bool
	}{
		"left to the relay":      {err: boom},
		"classifier: no opinion": {err: boom, classifier: func(error) core.Class { return core.ClassTransient }},
		"classifier: permanent": {
			err: boom, classifier: func(error) core.Class { return core.ClassPermanent },
			class: core.ClassPermanent, marked: true,
		},
		"classifier: unavailable": {
			err: boom, classifier: func(error) core.Class { return core.ClassUnavailable },
			class: core.ClassUnavailable, marked: true,
		},
		"classifier: key": {
			err: boom, classifier: func(error) core.Class { return core.ClassKeyUnavailable },
			class: core.ClassKeyUnavailable, marked: true,
		},
		"the publisher knows best": {
			err:        core.Transient(boom),
			classifier: func(error) core.Class { return core.ClassPermanent }, class: core.ClassTransient,
			marked: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := newPublisher(t, func(string, ...*message.Message) error { return tc.err },
				bridge.Config{Classifier: tc.classifier})
			err := p.Publish(t.Context(), delivery("orders"))
			wantErr(t, err, boom, "err")
			if class, ok := core.ClassOf(err); class != tc.class || ok != tc.marked {
				t.Errorf("class = %v, marked %v; want %v, %v", class, ok, tc.class, tc.marked)
			}
		})
	}
}

func TestPublishLeavesAHungCallBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan error)
		p, _ := newPublisher(t, func(string, ...*message.Message) error { return <-release }, bridge.Config{})

		cause := errors.New("the relay's timeout")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, cause)
		defer cancel()
		d := delivery("orders")
		began := time.Now()
		err := p.Publish(ctx, d)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("took %s, want the 5 s of the context", took)
		}
		if !errors.Is(err, bridge.ErrNoAnswer) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cause) {
			t.Errorf("err = %v, want ErrNoAnswer, DeadlineExceeded and the cause", err)
		}
		if class, marked := core.ClassOf(err); marked {
			t.Errorf("marked as %v; a timeout is for the relay to judge", class)
		}
		equal(t, p.Stuck(), 1, "Stuck")

		release <- nil
		synctest.Wait()
		equal(t, p.Stuck(), 0, "Stuck after the answer")
	})
}

// A publisher that takes longer than the relay's timeout is slow, and its answer is a fact: each
// event becomes DONE with its receipt, and copies are few.
func TestASlowPublisherIsServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var messages atomic.Int32
		p, _ := newPublisher(t, func(string, ...*message.Message) error {
			time.Sleep(7 * time.Second)
			messages.Add(1)
			return nil
		}, bridge.Config{Receipt: func(*message.Message) string { return "here" }})
		repo := outboxtest.NewRepository()
		ob, err := core.New(
			core.Config{Repository: repo, Publisher: p, Relay: relay.Config{PublishTimeout: 5 * time.Second}},
		)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ob.Run(ctx) }()
		const events = 5
		for range events {
			err := repo.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
				_, err := ob.Publish(ctx, tx, core.Event{Type: "orders"})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		for _, row := range repo.Rows() {
			if row.Status != outboxtest.StatusDone || row.Receipt != "here" || row.Attempts != 0 {
				t.Errorf("%s is %s with %d attempts and receipt %q, want DONE, 0 and here", row.Event.ID, row.Status,
					row.Attempts, row.Receipt)
			}
		}
		if n := messages.Load(); n > 2*events {
			t.Errorf("%d messages of %d events", n, events)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestPublishBoundsStuckCallsByTopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var begun atomic.Int32
		p, _ := newPublisher(t, func(topic string, _ ...*message.Message) error {
			if topic == "hung" {
				begun.Add(1)
				<-release
			}
			return nil
		}, bridge.Config{MaxStuck: 3})

		publish := func(topic string) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return p.Publish(ctx, delivery(topic))
		}
		for range 3 {
			wantErr(t, publish("hung"), bridge.ErrNoAnswer, "err")
		}
		began := time.Now()
		err := publish("hung")
		if class, _ := core.ClassOf(err); !errors.Is(err, bridge.ErrStuck) || class != core.ClassUnavailable {
			t.Errorf("err = %v, class %v; want ErrStuck, unavailable", err, class)
		}
		if time.Since(began) != 0 || begun.Load() != 3 {
			t.Errorf("took %s and %d calls, want none and 3", time.Since(began), begun.Load())
		}
		if err := publish("healthy"); err != nil {
			t.Errorf("another topic: %v", err)
		}
		close(release)
		synctest.Wait()
		if err := publish("hung"); err != nil {
			t.Errorf("after the calls have returned: %v", err)
		}
	})
}

func TestPublishSurvivesThePublisher(t *testing.T) {
	t.Parallel()
	for name, publish := range map[string]func(string, ...*message.Message) error{
		"panic":  func(string, ...*message.Message) error { panic("boom") },
		"goexit": func(string, ...*message.Message) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := newPublisher(t, publish, bridge.Config{})
			wantErr(t, p.Publish(t.Context(), delivery("orders")), bridge.ErrPanic, "err")
		})
	}
}

func TestPublishRefusesBeforeItCalls(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	busy := core.Unavailable(errors.New("key server away"))
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tc := range map[string]struct {
		ctx   context.Context
		topic string
		cfg   bridge.Config
		is    error
		class core.Class
	}{
		"context ended": {ctx: ended, topic: "orders", is: context.Canceled, class: core.ClassTransient},
		"no topic":      {topic: "", class: core.ClassPermanent},
		"marshal fails": {topic: "orders", is: refused, class: core.ClassPermanent, cfg: bridge.Config{
			Marshal: func(context.Context, core.Delivery) (*message.Message, error) { return nil, refused },
		}},
		"marshal says what it means": {topic: "orders", is: busy, class: core.ClassUnavailable, cfg: bridge.Config{
			Marshal: func(context.Context, core.Delivery) (*message.Message, error) { return nil, busy },
		}},
		"no message": {topic: "orders", class: core.ClassPermanent, cfg: bridge.Config{
			Marshal: func(context.Context, core.Delivery) (*message.Message, error) { return nil, nil },
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := newPublisher(t, func(string, ...*message.Message) error { t.Error("called"); return nil }, tc.cfg)
			ctx := tc.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			err := p.Publish(ctx, delivery(tc.topic))
			if class, _ := core.ClassOf(err); err == nil || class != tc.class ||
				tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("err = %v, class %v; want %v, %v", err, class, tc.is, tc.class)
			}
		})
	}
}

func TestNewPublisherRefusesBadInput(t *testing.T) {
	t.Parallel()
	if _, err := bridge.NewPublisher(nil, bridge.Config{}); err == nil {
		t.Error("nil publisher accepted")
	}
	if _, err := bridge.NewPublisher(&fakePublisher{}, bridge.Config{MaxStuck: -1}); err == nil ||
		!strings.Contains(err.Error(), "MaxStuck") {
		t.Errorf("err = %v, want it to name MaxStuck", err)
	}
}

func TestReceipt(t *testing.T) {
	t.Parallel()
	p, _ := newPublisher(t, func(_ string, msgs ...*message.Message) error {
		msgs[0].Metadata.Set("offset", "42")
		return nil
	}, bridge.Config{Receipt: func(msg *message.Message) string { return msg.Metadata.Get("offset") }})
	receipt, err := p.PublishWithReceipt(t.Context(), delivery("orders"))
	if receipt != "42" || err != nil {
		t.Errorf("receipt %q, err %v; want 42", receipt, err)
	}
}

// A receipt that cannot be read must not fail the publish. Otherwise the event would be published
// again and again.
func TestReceiptPanics(t *testing.T) {
	t.Parallel()
	var sent atomic.Int32
	p, _ := newPublisher(t, func(string, ...*message.Message) error {
		sent.Add(1)
		return nil
	}, bridge.Config{
		Logger:  slog.New(slog.DiscardHandler),
		Receipt: func(*message.Message) string { panic("no offset") },
	})
	if receipt, err := p.PublishWithReceipt(t.Context(), delivery("orders")); receipt != "" || err != nil ||
		sent.Load() != 1 {
		t.Errorf("receipt %q, %v, sent %d times", receipt, err, sent.Load())
	}
}

func TestCloseWaitsForCallsAndRefusesMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan error)
		p, fake := newPublisher(t, func(string, ...*message.Message) error { return <-release }, bridge.Config{})
		published, closed := make(chan error, 1), make(chan error, 1)
		go func() { published <- p.Publish(t.Context(), delivery("orders")) }()
		synctest.Wait()
		go func() { closed <- p.Close(t.Context()) }()
		synctest.Wait()
		equal(t, fake.closed.Load(), 0, "closed under a call")
		err := p.Publish(t.Context(), delivery("orders"))
		if class, _ := core.ClassOf(err); !errors.Is(err, bridge.ErrClosed) || class != core.ClassUnavailable {
			t.Errorf("err = %v, class %v; want ErrClosed, unavailable", err, class)
		}
		release <- nil
		noError(t, <-published)
		noError(t, <-closed)
		if err := p.Close(t.Context()); err != nil || fake.closed.Load() != 1 {
			t.Errorf("second Close: %v, the publisher was closed %d times", err, fake.closed.Load())
		}
	})
}

func TestCloseDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan error)
		p, fake := newPublisher(t, func(string, ...*message.Message) error { return <-release }, bridge.Config{})
		fake.close = func() error { return <-release }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Publish(ctx, delivery("orders")); !errors.Is(err, bridge.ErrNoAnswer) {
			t.Fatal(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, p.Close(ctx), context.DeadlineExceeded, "err")
		close(release)
	})
}

func TestPublishFromManyGoroutines(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	fail := errors.New("odd")
	p, _ := newPublisher(t, func(_ string, msgs ...*message.Message) error {
		mu.Lock()
		defer mu.Unlock()
		seen[msgs[0].UUID]++
		if len(seen)%2 == 1 {
			msgs[0].Metadata.Set("failed", "yes")
			return fail
		}
		return nil
	}, bridge.Config{})

	var wg sync.WaitGroup
	var failed atomic.Int32
	const workers, each = 16, 100
	for range workers {
		wg.Go(func() {
			for range each {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if err := p.Publish(ctx, delivery("orders")); errors.Is(err, fail) {
					failed.Add(1)
				} else if err != nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if len(seen) != workers*each || failed.Load() != workers*each/2 {
		t.Errorf("%d messages, %d failures; want %d and half of them", len(seen), failed.Load(), workers*each)
	}
	noError(t, p.Close(t.Context()))
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noError fails the test if err is not nil, and goes on. Goroutines of a test may call it.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// wantErr fails the test unless err is the target. The rest says what was tried.
func wantErr(t testing.TB, err, target error, format string, args ...any) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), err, target)
	}
}

// equal fails the test unless got is want. The rest says of what.
func equal[T comparable](t testing.TB, got, want T, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), got, want)
	}
}

// errOf returns the error of a call whose result does not matter.
func errOf[T any](_ T, err error) error { return err }
