package natsbridge

import (
	"errors"
	"strings"
	"testing"

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
		"größe/1.a": "add GR__E_1 --subjects 'größe/1.>' ",
	} {
		if got := createCommand(topic); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q in it", topic, got, want)
		}
	}
}
