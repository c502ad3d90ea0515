package natsbridge

import (
	"bytes"
	"cmp"
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
	away  int   // so many calls fail
	err   error // the failure; nil: the server is away
}

func (m *told) tell(what string) error {
	m.calls = append(m.calls, what)
	if m.away == 0 {
		return nil
	}
	m.away--
	return cmp.Or(m.err, errors.New("away"))
}

func (m *told) Data() []byte                              { return []byte("x") }
func (m *told) Headers() nats.Header                      { return nats.Header{uuidHeader: {"id"}} }
func (m *told) Metadata() (*jetstream.MsgMetadata, error) { return nil, errors.New("none") }
func (m *told) InProgress() error                         { return m.tell("works") }
func (m *told) DoubleAck(context.Context) error           { return m.tell("ack") }
func (m *told) Nak() error                                { return m.tell("nak") }
func (m *told) NakWithDelay(d time.Duration) error        { return m.tell(fmt.Sprint("nak ", d)) }

// The server hears of each message: that its handler still works, and how it ended.
func TestDeliver(t *testing.T) {
	t.Parallel()
	const forever = 1 << 30
	for name, tc := range map[string]struct {
		reader func(r *reading, stop, giveUp func())
		away   int
		want   []string
	}{
		"acknowledged":        {func(r *reading, _, _ func()) { (<-r.output).Ack() }, 0, []string{"ack"}},
		"rejected":            {func(r *reading, _, _ func()) { (<-r.output).Nack() }, 0, []string{"nak 7ms"}},
		"its handler is slow": {slowly((*message.Message).Ack), 0, []string{"works", "works", "works", "ack"}},
		"it waits for a handler": {
			func(r *reading, _, _ func()) { time.Sleep(25 * time.Second); (<-r.output).Ack() }, 0,
			[]string{"works", "works", "ack"},
		},
		"nobody reads it": {
			func(r *reading, stop, _ func()) { stop(); synctest.Wait(); close(r.ended) }, 0, []string{"nak"},
		},
		"its handler does not end": {
			func(r *reading, stop, giveUp func()) {
				msg := <-r.output
				stop()
				synctest.Wait()
				close(r.ended)
				giveUp()
				<-msg.Context().Done()
			}, 0, []string{"nak"},
		},
		"the server is away": {
			func(r *reading, _, _ func()) { (<-r.output).Ack() }, forever, []string{"ack"},
		},
		"the server was away, acknowledged": {
			func(r *reading, _, _ func()) { (<-r.output).Ack() }, 2, []string{"ack", "ack", "ack"},
		},
		"the server was away, rejected": {
			func(r *reading, _, _ func()) { (<-r.output).Nack() }, 1, []string{"nak 7ms", "nak 7ms"},
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
				m := &told{away: tc.away}
				r.senders.Add(1)
				done := make(chan struct{})
				go func() { defer close(done); r.deliver(ctx, work, m) }()
				tc.reader(r, stop, giveUp)
				<-done
				if tc.away == forever { // it was told again and again
					m.calls = slices.Compact(m.calls)
				}
				if !slices.Equal(m.calls, tc.want) {
					t.Errorf("the server was told %v, want %v", m.calls, tc.want)
				}
				if logged := strings.Contains(log.String(), "away"); logged != (tc.away == forever) {
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

// An acknowledgement is not sent again after the consumer was deleted.
func TestTheConsumerIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := NewSubscriber(SubscriberConfig{URL: "nats://127.0.0.1:1", Group: "g"})
		if err != nil {
			t.Fatal(err)
		}
		m := &told{away: 2, err: nats.ErrNoResponders}
		(&reading{Subscriber: s}).answer(message.NewMessage("", nil), m.DoubleAck)
		if len(m.calls) != 1 {
			t.Errorf("the server was told %v", m.calls)
		}
	})
}

// idle is a consumer without messages.
type idle struct {
	jetstream.Consumer

	asked int
}

func (c *idle) Next(...jetstream.FetchOpt) (jetstream.Msg, error) {
	c.asked++
	time.Sleep(pullFor)
	return nil, nats.ErrTimeout
}

// Reading ends from time to time, so that the settings of the consumer are checked again.
func TestReadingEndsForACheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &reading{slots: make(chan struct{}, 1)}
		began, c := time.Now(), &idle{}
		err := r.read(t.Context(), t.Context(), c)
		if took := time.Since(began); err != nil || took != checkEvery || c.asked != 60 || len(r.slots) != 0 {
			t.Errorf("%v after %s, the server was asked %d times, %d slots are taken", err, took, c.asked, len(r.slots))
		}
	})
}
