package watermillbridge_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// scripted is a Watermill publisher whose answers the test sets.
type scripted struct {
	mu     sync.Mutex
	got    []*message.Message
	answer func(msg *message.Message) error
	closed bool
}

func (s *scripted) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		if s.answer != nil {
			if err := s.answer(msg); err != nil {
				return err
			}
		}
		s.mu.Lock()
		s.got = append(s.got, msg)
		s.mu.Unlock()
	}
	return nil
}

func (s *scripted) Close() error { s.closed = true; return nil }

func TestMessagePublisherSendsMessagesAsTheyAre(t *testing.T) {
	t.Parallel()
	inner := &scripted{}
	p, err := watermillbridge.NewPublisher(inner, watermillbridge.Config{
		Topic: func(core.Delivery) string { return "elsewhere" },
		Marshal: func(context.Context, core.Delivery) (*message.Message, error) {
			return nil, errors.New("only for deliveries")
		},
	})
	must(t, err)
	mp := p.MessagePublisher(0)
	a, b := message.NewMessage("a", []byte("1")), message.NewMessage("b", []byte("2"))
	a.Metadata.Set("reason_poisoned", "x")
	must(t, mp.Publish("poison", a, b))
	if len(inner.got) != 2 || !inner.got[0].Equals(a) || !inner.got[1].Equals(b) {
		t.Errorf("sent %v", inner.got)
	}
	if err := mp.Close(); err != nil || inner.closed {
		t.Errorf("Close: %v, closed what it does not own: %v", err, inner.closed)
	}
	must(t, p.Close(t.Context()))
	wantErr(t, mp.Publish("poison", a), watermillbridge.ErrClosed, "after Close")
}

func TestMessagePublisherStopsAtTheFirstError(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	inner := &scripted{answer: func(msg *message.Message) error {
		if msg.UUID == "b" {
			return refused
		}
		return nil
	}}
	p, err := watermillbridge.NewPublisher(inner,
		watermillbridge.Config{Classifier: func(error) core.Class { return core.ClassPermanent }})
	must(t, err)
	mp := p.MessagePublisher(0)
	err = mp.Publish("t", message.NewMessage("a", nil), message.NewMessage("b", nil), message.NewMessage("c", nil))
	if class, _ := core.ClassOf(err); !errors.Is(err, refused) || class != core.ClassPermanent {
		t.Errorf("err = %v, class %v; want the publisher's, permanent", err, class)
	}
	equal(t, len(inner.got), 1, "messages were sent (the one before the error)")
	if err := mp.Publish("", message.NewMessage("a", nil)); err == nil {
		t.Error("no topic was accepted")
	}
	if err := mp.Publish("t", nil); err == nil {
		t.Error("a nil message was accepted")
	}
}

// A publisher that hangs costs its caller only the timeout. It may still use its message.
func TestMessagePublisherIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // so that the time ends in the call, not before it
		release, seen := make(chan struct{}), make(chan string, 1)
		inner := &scripted{answer: func(msg *message.Message) error {
			<-release
			seen <- string(msg.Payload)
			return nil
		}}
		var log bytes.Buffer
		p, err := watermillbridge.NewPublisher(inner, watermillbridge.Config{
			MaxStuck: 1, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		must(t, err)
		msg, began := message.NewMessage("a", []byte("before")), time.Now()
		err = p.MessagePublisher(20*time.Millisecond).Publish("t", msg)
		if !errors.Is(err, watermillbridge.ErrNoAnswer) || !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) != 20*time.Millisecond {
			t.Errorf("err = %v after %s, want ErrNoAnswer and DeadlineExceeded after 20ms", err, time.Since(began))
		}
		wantErr(t, p.MessagePublisher(0).Publish("t", msg), watermillbridge.ErrStuck, "err")
		copy(msg.Payload, "after!")
		close(release)
		equal(t, <-seen, "before", "the call that was left behind sent")
		synctest.Wait()
		if text := log.String(); !strings.Contains(text, "after its caller had left") ||
			strings.Contains(text, "published again") || strings.Contains(text, "row_id") {
			t.Errorf("logged %s", text)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		msg.SetContext(ended)
		wantErr(t, p.MessagePublisher(0).Publish("other", msg), context.Canceled, "err")
	})
}

func TestPublisherPassesTheSizeOn(t *testing.T) {
	t.Parallel()
	large := errors.New("too large")
	p, err := watermillbridge.NewPublisher(&scripted{}, watermillbridge.Config{CheckSize: func(e core.Event) error {
		if len(e.Payload) > 3 {
			return large
		}
		return nil
	}})
	must(t, err)
	var sc core.SizeChecker = p
	noError(t, sc.CheckSize(core.Event{Payload: []byte("123")}))
	bounded, err := watermillbridge.NewPublisher(&scripted{}, watermillbridge.Config{MaxPayload: 3})
	must(t, err)
	noError(t, bounded.CheckSize(core.Event{Payload: []byte("123")}))
	if err := bounded.CheckSize(core.Event{Payload: []byte("1234")}); err == nil ||
		!strings.Contains(err.Error(), "MaxPayload") {
		t.Errorf("more than MaxPayload: %v", err)
	}
	if _, err := watermillbridge.NewPublisher(&scripted{}, watermillbridge.Config{MaxPayload: -1}); err == nil {
		t.Error("a negative MaxPayload was accepted")
	}
	wantErr(t, sc.CheckSize(core.Event{Payload: []byte("1234")}), large, "err")
}
