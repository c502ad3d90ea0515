package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
)

// lockedBuffer is a bytes.Buffer for a logger of several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// A message that a stopping consumer cuts short spends no attempt. Its error says so, and is no
// warning, however often the Pub/Sub delivers the message again.
func TestAStoppingConsumerIsNoFailure(t *testing.T) {
	var log lockedBuffer
	w := newWorld(t, func(c *coreinbox.Config) {
		c.MaxAttempts = 1
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	})
	l := newLeased(t, func(c *coreinbox.AtLeastOnceConfig) {
		c.MaxAttempts, c.MinAge = 1, -1
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
		c.Observer = &coreinbox.Observer{Failed: func(i coreinbox.Info) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.infos = append(w.infos, i)
		}}
	})
	ended := errors.New("the transaction has ended")
	begun := make(chan struct{}, 2)
	cut := func(msg *message.Message) ([]*message.Message, error) {
		begun <- struct{}{}
		<-msg.Context().Done()
		return nil, ended
	}
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 2)
	go func() { errs <- w.deliver(cut, event(ctx, "e")) }()
	go func() { _, err := l.h(cut)(event(ctx, "e")); errs <- err }()
	<-begun
	<-begun
	cancel()
	for range 2 {
		if err := <-errs; !errors.Is(err, ended) || !errors.Is(err, context.Canceled) || coreinbox.Final(err) {
			t.Errorf("%v", err)
		}
	}
	for range 10 { // gochannel delivers again until it is closed
		wantErr(t, w.deliver(w.handler, event(ctx, "e")), context.Canceled, "deliver")
		wantErr(t, errOf(l.h(w.handler)(event(ctx, "e"))), context.Canceled, "lease")
	}
	for _, err := range w.in.ProcessBatch(ctx, []*message.Message{event(ctx, "e")}, nil) {
		wantErr(t, err, context.Canceled, "batch")
	}
	equal(t, len(w.infos), 23, "told of deliveries")
	for _, i := range w.infos {
		if i.Attempt != 0 || !errors.Is(i.Err, context.Canceled) {
			t.Errorf("told of attempt %d: %v", i.Attempt, i.Err)
		}
	}
	equal(t, log.String(), "", "logged")
	if err := w.deliver(w.handler, event(t.Context(), "e")); err != nil {
		t.Errorf("after the restart: %v", err)
	}

	// Errors other than the end of the context are still reported.
	ctx, cancel = context.WithCancel(t.Context())
	func() {
		defer func() { _ = recover() }()
		_ = w.deliver(func(*message.Message) ([]*message.Message, error) { cancel(); panic("boom") },
			event(ctx, "panics"))
	}()
	_ = w.deliver(func(*message.Message) ([]*message.Message, error) { return nil, core.ErrCommitUnknown },
		event(ctx, "f"))
	if !strings.Contains(log.String(), "panic: boom") {
		t.Errorf("logged %s", log.String())
	}
}

// A Router on a Go channel keeps delivering a rejected message while it is being closed.
func TestAStoppingRouterDoesNotFloodTheLog(t *testing.T) {
	var log lockedBuffer
	w := newWorld(t, func(c *coreinbox.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	})
	t.Run("router", func(t *testing.T) {
		begun := make(chan struct{}, 100)
		pubsub := routed(t, func(r *message.Router, pubsub *gochannel.GoChannel) {
			r.AddMiddleware(w.in.Middleware)
			r.AddConsumerHandler("handler", "orders", pubsub, func(msg *message.Message) error {
				begun <- struct{}{}
				<-msg.Context().Done()
				return fmt.Errorf("%w: this one has ended already", core.ErrNoTransaction) // as database/sql does
			})
		})
		go func() { _ = pubsub.Publish("orders", event(t.Context(), "e")) }()
		<-begun
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.infos) == 0 || log.String() != "" {
		t.Errorf("told of %d deliveries, logged %s", len(w.infos), log.String())
	}
	for _, i := range w.infos {
		if i.Attempt != 0 {
			t.Errorf("attempt %d: %v", i.Attempt, i.Err)
		}
	}
}

// A handler that panics because its consumer stops spends no attempt, in both modes.
func TestAPanicOfAStoppingConsumerSpendsNoAttempt(t *testing.T) {
	w := newWorld(t, func(c *coreinbox.Config) { c.MaxAttempts, c.Logger = 2, slog.New(slog.DiscardHandler) })
	l := newLeased(t, func(c *coreinbox.AtLeastOnceConfig) {
		c.MaxAttempts, c.MinAge, c.Logger = 2, -1, slog.New(slog.DiscardHandler)
		c.Observer = &coreinbox.Observer{Failed: func(i coreinbox.Info) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.infos = append(w.infos, i)
		}}
	})
	for name, h := range map[string]func(message.HandlerFunc) message.HandlerFunc{
		"transaction": w.in.Middleware, "lease": l.h,
	} {
		w.infos = nil
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			func() {
				defer func() { _ = recover() }()
				panics := func(*message.Message) ([]*message.Message, error) { cancel(); panic("the consumer stops") }
				_, _ = h(panics)(event(ctx, "e"))
			}()
		}
		equal(t, len(w.infos), 3, "%s: told of deliveries", name)
		for _, i := range w.infos {
			if i.Attempt != 0 || !errors.Is(i.Err, coreinbox.ErrPanicked) {
				t.Errorf("%s: told of attempt %d: %v", name, i.Attempt, i.Err)
			}
		}
		w.infos = nil
		fails := func(*message.Message) ([]*message.Message, error) { return nil, errors.New("once") }
		if err := errOf(h(fails)(event(t.Context(), "e"))); coreinbox.Final(err) {
			t.Errorf("%s: the first failure gave the event up: %v", name, err)
		}
		works := func(*message.Message) ([]*message.Message, error) { return nil, nil }
		noError(t, errOf(h(works)(event(t.Context(), "e"))))
	}
}
