package natsbridge

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

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
