package core_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

func TestConfigZeroValue(t *testing.T) {
	if err := (core.Config{Repository: outboxtest.NewRepository()}).Validate(); err != nil {
		t.Errorf("the defaults are not valid: %v", err)
	}
	err := core.Config{}.Validate()
	if err == nil || err.Error() != "outbox: config: Repository is missing" {
		t.Errorf("an empty Config: %v", err)
	}
	if ob, err := core.New(core.Config{}); ob != nil || err == nil {
		t.Errorf("New of an empty Config: %v, %v", ob, err)
	}
}

func TestConfigEachProblem(t *testing.T) {
	const s = time.Second
	for want, change := range map[string]func(*core.Config){
		"MaxPayload is negative":               func(c *core.Config) { c.MaxPayload = -1 },
		"Workers is negative":                  func(c *core.Config) { c.Workers = -1 },
		"InFlight is negative":                 func(c *core.Config) { c.InFlight = -1 },
		"InFlightBytes is negative":            func(c *core.Config) { c.InFlightBytes = -1 },
		"HotEvents is negative":                func(c *core.Config) { c.HotEvents = -1 },
		"HotBytes is negative":                 func(c *core.Config) { c.HotBytes = -1 },
		"ColdEvents is negative":               func(c *core.Config) { c.ColdEvents = -1 },
		"ColdBytes is negative":                func(c *core.Config) { c.ColdBytes = -1 },
		"ClaimBatch is negative":               func(c *core.Config) { c.ClaimBatch = -1 },
		"KeyRun is negative":                   func(c *core.Config) { c.KeyRun = -1 },
		"MarkBatch is negative":                func(c *core.Config) { c.MarkBatch = -1 },
		"MarkDelay is negative":                func(c *core.Config) { c.MarkDelay = -1 },
		"MaxUnmarked is negative":              func(c *core.Config) { c.MaxUnmarked = -1 },
		"Retry.MaxAttempts is negative":        func(c *core.Config) { c.Retry.MaxAttempts = -1 },
		"Retry.BaseDelay is negative":          func(c *core.Config) { c.Retry.BaseDelay = -1 },
		"Retry.MaxDelay is negative":           func(c *core.Config) { c.Retry.MaxDelay = -1 },
		"Breaker.Failures is negative":         func(c *core.Config) { c.Breaker.Failures = -1 },
		"Breaker.ProbeInterval is negative":    func(c *core.Config) { c.Breaker.ProbeInterval = -1 },
		"Breaker.MaxProbeInterval is negative": func(c *core.Config) { c.Breaker.MaxProbeInterval = -1 },
		"MaxCrashes is negative":               func(c *core.Config) { c.MaxCrashes = -1 },
		"Retention.Keep is negative":           func(c *core.Config) { c.Retention.Keep = -1 },
		"BacklogLimit.Rows is negative":        func(c *core.Config) { c.BacklogLimit.Rows = -1 },
		"BacklogLimit.Age is negative":         func(c *core.Config) { c.BacklogLimit.Age = -1 },
		"Retention.KeepDiscarded is negative":  func(c *core.Config) { c.Retention.KeepDiscarded = -1 },
		"Retention.Archive would not see published rows": func(c *core.Config) {
			c.Retention = core.Retention{DeleteOnSuccess: true, Archive: archiveNothing}
		},
		"need a Repository that is a Cleaner": func(c *core.Config) {
			c.Repository = outboxtest.NewFaultyRepository(c.Repository)
			c.Retention.Archive = archiveNothing
		},
		"Retention.KeepDiscarded need a Repository": func(c *core.Config) {
			c.Repository = outboxtest.NewFaultyRepository(c.Repository)
			c.Retention.KeepDiscarded = time.Hour
		},
		"Retention.CleanupInterval is negative": func(c *core.Config) { c.Retention.CleanupInterval = -1 },
		"Retention.CleanupBatch is negative":    func(c *core.Config) { c.Retention.CleanupBatch = -1 },
		"PublishTimeout is negative":            func(c *core.Config) { c.PublishTimeout = -1 },
		"HotLease is negative":                  func(c *core.Config) { c.HotLease = -1 },
		"ClaimLease is negative":                func(c *core.Config) { c.ClaimLease = -1 },
		"LeaseMargin is negative":               func(c *core.Config) { c.LeaseMargin = -1 },
		"MaxLease is negative":                  func(c *core.Config) { c.MaxLease = -1 },
		"PollInterval is negative":              func(c *core.Config) { c.PollInterval = -1 },
		"MaxPollInterval is negative":           func(c *core.Config) { c.MaxPollInterval = -1 },
		"ShutdownTimeout is negative":           func(c *core.Config) { c.ShutdownTimeout = -1 },
		"HotLease 6s must be longer":            func(c *core.Config) { c.HotLease = 6 * s },
		"ClaimLease 6s must be longer":          func(c *core.Config) { c.ClaimLease = 6 * s },
		"MaxLease 29s is shorter":               func(c *core.Config) { c.MaxLease = 29 * s },
		"MaxPollInterval 1s is shorter":         func(c *core.Config) { c.PollInterval, c.MaxPollInterval = 2*s, s },
		"Retry.MaxDelay 1s is shorter":          func(c *core.Config) { c.Retry.BaseDelay, c.Retry.MaxDelay = 2*s, s },
		`RetryByType["t"].MaxDelay 1s is shorter`: func(c *core.Config) {
			c.RetryByType = map[string]core.RetryPolicy{"t": {BaseDelay: 2 * s, MaxDelay: s}}
		},
		`RetryByType["t"].MaxAttempts is negative`: func(c *core.Config) {
			c.RetryByType = map[string]core.RetryPolicy{"t": {MaxAttempts: -1}}
		},
		"RetryByType has an empty event type": func(c *core.Config) {
			c.RetryByType = map[string]core.RetryPolicy{"": {}}
		},
		"Breaker.MaxProbeInterval 1s is shorter": func(c *core.Config) {
			c.Breaker.ProbeInterval, c.Breaker.MaxProbeInterval = 2*s, s
		},
		"DeadPolicy 2 is unknown":    func(c *core.Config) { c.DeadPolicy = 2 },
		"Node has 129 bytes":         func(c *core.Config) { c.Node = strings.Repeat("n", 129) },
		`Routes["t"] names no topic`: func(c *core.Config) { c.Routes = map[string][]string{"t": nil} },
		`Routes["t"] names topic "a" twice`: func(c *core.Config) {
			c.Routes = map[string][]string{"t": {"a", "b", "a"}}
		},
		`Routes["t"]: topic is empty`: func(c *core.Config) { c.Routes = map[string][]string{"t": {""}} },
		`Routes["t"]: topic has 250 bytes`: func(c *core.Config) {
			c.Routes = map[string][]string{"t": {strings.Repeat("x", 250)}}
		},
		`Routes["t"]: topic has a control`: func(c *core.Config) { c.Routes = map[string][]string{"t": {"a\n"}} },
		"Publisher serves no topic":        func(c *core.Config) { c.Publisher = core.NewRouter() },
	} {
		c := core.Config{Repository: outboxtest.NewRepository()}
		change(&c)
		err := c.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want that it says %q", err, want)
			continue
		}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if !strings.HasPrefix(line, "outbox: config: ") {
				t.Errorf("%q does not say where it comes from", line)
			}
		}
	}
}

func TestConfigReportsAllAtOnce(t *testing.T) {
	err := core.Config{
		Workers: -1, HotLease: time.Second, DeadPolicy: 7,
		Routes: map[string][]string{"t": {}},
	}.Validate()
	for _, want := range []string{
		"Repository is missing", "Workers is negative", "HotLease 1s", "DeadPolicy 7",
		`Routes["t"]`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

func TestConfigDefaultsFollowWhatIsSet(t *testing.T) {
	c := core.Config{Repository: outboxtest.NewRepository(), PollInterval: time.Minute}
	c.Breaker.ProbeInterval = time.Hour
	if err := c.Validate(); err != nil {
		t.Errorf("a long interval is not valid beside the default of its maximum: %v", err)
	}
}
