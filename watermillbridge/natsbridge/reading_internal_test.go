package natsbridge

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
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

func TestDurableName(t *testing.T) {
	t.Parallel()
	c := SubscriberConfig{Group: "billing"}
	for topic, want := range map[string]string{
		"orders": "billing_orders", "orders.placed": "billing_orders_placed", "orders.*.eu": "billing_orders_any_eu",
		"orders.>": "billing_orders_all",
	} {
		if got := c.durableName(topic); got != want {
			t.Errorf("%s: %s, want %s", topic, got, want)
		}
	}
}

// Settings that not every server takes (TestNATSSubscriberChecksConsumers has the others).
func TestUnsafeConsumer(t *testing.T) {
	t.Parallel()
	for names, change := range map[string]func(c *jetstream.ConsumerConfig){
		"":                func(*jetstream.ConsumerConfig) {},
		"--backoff":       func(c *jetstream.ConsumerConfig) { c.BackOff = []time.Duration{time.Second} },
		"--memory":        func(c *jetstream.ConsumerConfig) { c.MemoryStorage = true },
		"priority groups": func(c *jetstream.ConsumerConfig) { c.PriorityPolicy = jetstream.PriorityPolicyPinned },
	} {
		cfg := jetstream.ConsumerConfig{FilterSubject: "a", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1}
		change(&cfg)
		err := errors.Join(unsafeConsumer(&cfg, "a")...)
		if (err != nil) != (names != "") || err != nil && !strings.Contains(err.Error(), names) {
			t.Errorf("%v, want it to name %q", err, names)
		}
	}
}

func TestUnsafeStreams(t *testing.T) {
	t.Parallel()
	for names, c := range map[string]jetstream.StreamConfig{
		"no_ack":                {NoAck: true},
		"--storage file":        {Storage: jetstream.MemoryStorage},
		"retention is interest": {Retention: jetstream.InterestPolicy},
		"sealed":                {Sealed: true},
	} {
		if err := errors.Join(unsafeStream(&c)...); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("%v, want it to name %s", err, names)
		}
	}
	for _, c := range []jetstream.StreamConfig{{}, {Retention: jetstream.WorkQueuePolicy, Replicas: 3, MaxMsgs: 5}} {
		if problems := unsafeStream(&c); len(problems) > 0 {
			t.Errorf("%+v: %v", c, problems)
		}
	}
}

func TestTheCommandThatMakesAStream(t *testing.T) {
	t.Parallel()
	for topic, want := range map[string]string{
		"orders": "add ORDERS --subjects 'orders' ", "orders.placed.v1": "add ORDERS --subjects 'orders.>' ",
		"x';reboot": `add X__REBOOT --subjects 'x'\'';reboot' `,
		"größe/1.a": "add GR__E_1 --subjects 'größe/1.>' ",
	} {
		if got := createCommand(topic); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q in it", topic, got, want)
		}
	}
}

// scripted answers in place of a server.
type scripted struct {
	jetstream.JetStream
	info jetstream.StreamInfo
}

func (s *scripted) StreamNameBySubject(context.Context, string) (string, error) { return "ORDERS", nil }

func (s *scripted) Stream(context.Context, string) (jetstream.Stream, error) {
	return found{info: &s.info}, nil
}

type found struct {
	jetstream.Stream
	info *jetstream.StreamInfo
}

func (f found) CachedInfo() *jetstream.StreamInfo { return f.info }

// A stream that loses messages since its settings were changed is noticed within a minute, and so
// is another limit.
func TestTheStreamIsCheckedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &scripted{}
		server.info.Config.MaxMsgSize = 1000
		p := &publisher{streams: map[string]stream{}}
		of := func() (stream, error) { return p.streamOf(t.Context(), server, "orders.placed") }
		if s, err := of(); err != nil || s.maxMessage != 1000 {
			t.Fatal(s, err)
		}
		server.info.Config.MaxMsgSize = 5000
		if s, err := of(); err != nil || s.maxMessage != 1000 {
			t.Errorf("%+v, %v: the server is asked for each event", s, err)
		}
		time.Sleep(checkEvery)
		if s, err := of(); err != nil || s.maxMessage != 5000 {
			t.Errorf("a larger limit: %+v, %v", s, err)
		}
		server.info.Config.Retention = jetstream.InterestPolicy
		time.Sleep(checkEvery)
		for range 2 {
			if _, err := of(); !errors.Is(err, ErrUnsafeStream) {
				t.Errorf("a stream that drops messages: %v", err)
			}
		}
	})
}

// Subjects may be made of user data, and be used once.
func TestSubjectsAreForgotten(t *testing.T) {
	t.Parallel()
	p := &publisher{streams: map[string]stream{}}
	for i := range 2*maxStreams + 1 {
		if _, err := p.streamOf(t.Context(), &scripted{}, "orders."+strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(p.streams); n > maxStreams {
		t.Errorf("%d subjects are remembered, want at most %d", n, maxStreams)
	}
}

func TestSubscriberConfigIsChecked(t *testing.T) {
	t.Parallel()
	const url = "nats://127.0.0.1:1"
	for name, tc := range map[string]struct {
		cfg   SubscriberConfig
		names string
	}{
		"zero":    {SubscriberConfig{}, "URL is empty\nnatsbridge: SubscriberConfig.Group is empty"},
		"group":   {SubscriberConfig{URL: url, Group: "a.b"}, `Group "a.b" has a dot`},
		"pending": {SubscriberConfig{URL: url, Group: "g", MaxAckPending: -1}, "MaxAckPending -1"},
		"wait":    {SubscriberConfig{URL: url, Group: "g", AckWait: -1}, "AckWait -1ns"},
		"pause":   {SubscriberConfig{URL: url, Group: "g", NackPause: -1}, "NackPause -1ns"},
		"close":   {SubscriberConfig{URL: url, Group: "g", CloseTimeout: -1}, "CloseTimeout -1ns"},
		"connect": {SubscriberConfig{URL: url, Group: "g", ConnectTimeout: -1}, "ConnectTimeout -1ns"},
		"options": {SubscriberConfig{URL: url, Group: "g", Options: []nats.Option{nats.NoReconnect()}}, "NoReconnect"},
	} {
		_, err := NewSubscriber(tc.cfg)
		if err == nil || !strings.Contains(err.Error(), tc.names) {
			t.Errorf("%s: %v, want it to name %s", name, err, tc.names)
		}
		if name == "options" && !errors.Is(err, errUnsafeConfig) {
			t.Errorf("%v is not ErrUnsafeConfig", err)
		}
	}
	if err := func() error {
		s, err := NewSubscriber(SubscriberConfig{URL: url, Group: "g"})
		if err != nil {
			return err
		}
		return errors.Join(s.Close(), s.Close()) // nothing is connected
	}(); err != nil {
		t.Error(err)
	}
}
