package natsbridge

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

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
		if name == "options" && !errors.Is(err, ErrUnsafeConfig) {
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
