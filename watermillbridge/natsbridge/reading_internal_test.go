package natsbridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// told is a message that writes down what its subscriber tells the server.
type told struct {
	jetstream.Msg

	calls []string
	err   error
}

func (m *told) Data() []byte                              { return []byte("x") }
func (m *told) Headers() nats.Header                      { return nats.Header{uuidHeader: {"id"}} }
func (m *told) Metadata() (*jetstream.MsgMetadata, error) { return nil, errors.New("none") }
func (m *told) InProgress() error                         { m.calls = append(m.calls, "works"); return m.err }

func (m *told) DoubleAck(context.Context) error { m.calls = append(m.calls, "ack"); return m.err }

func (m *told) Nak() error { m.calls = append(m.calls, "nak"); return m.err }

func (m *told) NakWithDelay(d time.Duration) error {
	m.calls = append(m.calls, fmt.Sprint("nak ", d))
	return m.err
}

// The server hears of each message: that its handler still works, and how it ended.
func TestDeliver(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reader func(r *reading, stop, giveUp func())
		err    error
		want   []string
	}{
		"acknowledged":        {func(r *reading, _, _ func()) { (<-r.output).Ack() }, nil, []string{"ack"}},
		"rejected":            {func(r *reading, _, _ func()) { (<-r.output).Nack() }, nil, []string{"nak 7ms"}},
		"its handler is slow": {slowly((*message.Message).Ack), nil, []string{"works", "works", "works", "ack"}},
		"it waits for a handler": {
			func(r *reading, _, _ func()) { time.Sleep(25 * time.Second); (<-r.output).Ack() }, nil,
			[]string{"works", "works", "ack"},
		},
		"nobody reads it": {
			func(r *reading, stop, _ func()) { stop(); synctest.Wait(); close(r.ended) }, nil, []string{"nak"},
		},
		"its handler does not end": {
			func(r *reading, stop, giveUp func()) {
				msg := <-r.output
				stop()
				synctest.Wait()
				close(r.ended)
				giveUp()
				<-msg.Context().Done()
			}, nil, []string{"nak"},
		},
		"the server is away": {
			func(r *reading, _, _ func()) { (<-r.output).Ack() }, errors.New("away"), []string{"ack"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				s, err := NewSubscriber(SubscriberConfig{
					URL: "nats://127.0.0.1:1", Group: "g", NackPause: 7 * time.Millisecond,
					Logger: slog.New(slog.NewTextHandler(&log, nil)),
				})
				if err != nil {
					t.Fatal(err)
				}
				r := &reading{Subscriber: s, output: make(chan *message.Message), ended: make(chan struct{})}
				ctx, stop := context.WithCancel(t.Context())
				work, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				defer stop()
				m := &told{err: tc.err}
				r.senders.Add(1)
				done := make(chan struct{})
				go func() { defer close(done); r.deliver(ctx, work, m) }()
				tc.reader(r, stop, giveUp)
				<-done
				if !slices.Equal(m.calls, tc.want) {
					t.Errorf("the server was told %v, want %v", m.calls, tc.want)
				}
				if logged := strings.Contains(log.String(), "away"); logged != (tc.err != nil) {
					t.Errorf("log: %s", &log)
				}
			})
		})
	}
}

func slowly(answer func(*message.Message) bool) func(r *reading, stop, giveUp func()) {
	return func(r *reading, _, _ func()) {
		msg := <-r.output
		time.Sleep(35 * time.Second) // AckWait is 30 s
		answer(msg)
	}
}
