package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

func TestConfigEachProblem(t *testing.T) {
	const s = time.Second
	for want, change := range map[string]func(*relay.Config){
		"Workers is negative":                  func(c *relay.Config) { c.Workers = -1 },
		"InFlight is negative":                 func(c *relay.Config) { c.InFlight = -1 },
		"InFlightBytes is negative":            func(c *relay.Config) { c.InFlightBytes = -1 },
		"HotEvents is negative":                func(c *relay.Config) { c.HotEvents = -1 },
		"HotBytes is negative":                 func(c *relay.Config) { c.HotBytes = -1 },
		"ColdEvents is negative":               func(c *relay.Config) { c.ColdEvents = -1 },
		"ColdBytes is negative":                func(c *relay.Config) { c.ColdBytes = -1 },
		"ClaimBatch is negative":               func(c *relay.Config) { c.ClaimBatch = -1 },
		"KeyRun is negative":                   func(c *relay.Config) { c.KeyRun = -1 },
		"MarkBatch is negative":                func(c *relay.Config) { c.MarkBatch = -1 },
		"MarkDelay is negative":                func(c *relay.Config) { c.MarkDelay = -1 },
		"MaxUnmarked is negative":              func(c *relay.Config) { c.MaxUnmarked = -1 },
		"Retry.MaxAttempts is negative":        func(c *relay.Config) { c.Retry.MaxAttempts = -1 },
		"Retry.BaseDelay is negative":          func(c *relay.Config) { c.Retry.BaseDelay = -1 },
		"Retry.MaxDelay is negative":           func(c *relay.Config) { c.Retry.MaxDelay = -1 },
		"Breaker.Failures is negative":         func(c *relay.Config) { c.Breaker.Failures = -1 },
		"Breaker.ProbeInterval is negative":    func(c *relay.Config) { c.Breaker.ProbeInterval = -1 },
		"Breaker.MaxProbeInterval is negative": func(c *relay.Config) { c.Breaker.MaxProbeInterval = -1 },
		"MaxCrashes is negative":               func(c *relay.Config) { c.MaxCrashes = -1 },
		"Retention.Keep is negative":           func(c *relay.Config) { c.Retention.Keep = -1 },
		"Retention.KeepDiscarded is negative":  func(c *relay.Config) { c.Retention.KeepDiscarded = -1 },
		"Retention.Archive would not see published rows": func(c *relay.Config) {
			c.Retention = relay.Retention{DeleteOnSuccess: true, Archive: archiveNothing}
		},
		"Retention.CleanupInterval is negative": func(c *relay.Config) { c.Retention.CleanupInterval = -1 },
		"Retention.CleanupBatch is negative":    func(c *relay.Config) { c.Retention.CleanupBatch = -1 },
		"PublishTimeout is negative":            func(c *relay.Config) { c.PublishTimeout = -1 },
		"HotLease is negative":                  func(c *relay.Config) { c.HotLease = -1 },
		"ClaimLease is negative":                func(c *relay.Config) { c.ClaimLease = -1 },
		"LeaseMargin is negative":               func(c *relay.Config) { c.LeaseMargin = -1 },
		"MaxLease is negative":                  func(c *relay.Config) { c.MaxLease = -1 },
		"PollInterval is negative":              func(c *relay.Config) { c.PollInterval = -1 },
		"MaxPollInterval is negative":           func(c *relay.Config) { c.MaxPollInterval = -1 },
		"ShutdownTimeout is negative":           func(c *relay.Config) { c.ShutdownTimeout = -1 },
		"HotLease 6s must be longer":            func(c *relay.Config) { c.HotLease = 6 * s },
		"ClaimLease 6s must be longer":          func(c *relay.Config) { c.ClaimLease = 6 * s },
		"MaxLease 29s is shorter":               func(c *relay.Config) { c.MaxLease = 29 * s },
		"MaxPollInterval 1s is shorter":         func(c *relay.Config) { c.PollInterval, c.MaxPollInterval = 2*s, s },
		"Retry.MaxDelay 1s is shorter":          func(c *relay.Config) { c.Retry.BaseDelay, c.Retry.MaxDelay = 2*s, s },
		`RetryByType["t"].MaxDelay 1s is shorter`: func(c *relay.Config) {
			c.RetryByType = map[string]relay.RetryPolicy{"t": {BaseDelay: 2 * s, MaxDelay: s}}
		},
		`RetryByType["t"].MaxAttempts is negative`: func(c *relay.Config) {
			c.RetryByType = map[string]relay.RetryPolicy{"t": {MaxAttempts: -1}}
		},
		"RetryByType has an empty event type": func(c *relay.Config) {
			c.RetryByType = map[string]relay.RetryPolicy{"": {}}
		},
		"Breaker.MaxProbeInterval 1s is shorter": func(c *relay.Config) {
			c.Breaker.ProbeInterval, c.Breaker.MaxProbeInterval = 2*s, s
		},
	} {
		c := relay.Config{}
		change(&c)
		err := core.Config{Repository: outboxtest.NewRepository(), Relay: c}.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), "outbox: config: Relay.") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want that it says %q", err, want)
		}
	}
}

func TestConfigDefaultsFollowWhatIsSet(t *testing.T) {
	c := relay.Config{PollInterval: time.Minute}
	c.Breaker.ProbeInterval = time.Hour
	if err := (core.Config{Repository: outboxtest.NewRepository(), Relay: c}).Validate(); err != nil {
		t.Errorf("a long interval is not valid beside the default of its maximum: %v", err)
	}
}
