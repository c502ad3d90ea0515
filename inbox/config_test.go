package inbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core/inbox/inboxtest"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/inbox"
)

func TestConfigNamesEveryProblemAtOnce(t *testing.T) {
	_, err := inbox.New(inbox.Config{Store: (*sqlinbox.Store)(nil), OnlyNewer: []string{""}, OnDead: 7, Retention: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{
		"Consumer is empty", "Config.Transactor: the Transactor is nil", "Store is nil",
		"OnlyNewer", "OnDead is 7", "Retention -1ns is negative",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// An id must be remembered for longer than its message can come again.
func TestConfigRefusesAShortRetention(t *testing.T) {
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		retention, broker, replay time.Duration
		says                      string // empty: accepted
	}{
		"for ever":                       {0, 0, 0, ""},
		"for ever, with a broker":        {0, 7 * day, 0, ""},
		"longer than both":               {31 * day, 7 * day, 30 * day, ""},
		"broker not declared":            {31 * day, 0, 0, "BrokerRetention is needed"},
		"shorter than the broker's":      {6 * day, 7 * day, 0, "not longer than BrokerRetention 168h0m0s"},
		"as long as the broker's":        {7 * day, 7 * day, 0, "not longer than"},
		"shorter than the replay window": {8 * day, 7 * day, 30 * day, "ReplayWindow 720h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := inbox.New(inbox.Config{
				Consumer: "c", Transactor: outboxtest.NewRepository().Transactor(), Store: inboxtest.NewStore(),
				Retention: tt.retention, BrokerRetention: tt.broker, ReplayWindow: tt.replay,
			})
			if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("%v, want %q", err, tt.says)
			}
		})
	}
}
