package relay

import (
	"cmp"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

// or returns p with the fields of q where p has none.
func (p RetryPolicy) or(q RetryPolicy) RetryPolicy {
	p.BaseDelay = cmp.Or(p.BaseDelay, q.BaseDelay)
	p.MaxDelay = cmp.Or(p.MaxDelay, max(q.MaxDelay, p.BaseDelay))
	p.MaxAttempts = cmp.Or(p.MaxAttempts, q.MaxAttempts)
	return p
}

// validate reports the problems of p, which has its defaults.
func (p RetryPolicy) validate(name string, bad func(format string, args ...any)) {
	switch {
	case p.MaxAttempts < 0:
		bad("Relay.%s.MaxAttempts is negative", name)
	case p.BaseDelay < 0:
		bad("Relay.%s.BaseDelay is negative", name)
	case p.MaxDelay < 0:
		bad("Relay.%s.MaxDelay is negative", name)
	case p.MaxDelay < p.BaseDelay:
		bad("Relay.%s.MaxDelay %s is shorter than %s.BaseDelay %s", name, p.MaxDelay, name, p.BaseDelay)
	}
}

// retry returns the policy of an event type.
func (c *Config) retry(eventType string) RetryPolicy {
	if p, ok := c.RetryByType[eventType]; ok {
		return p
	}
	return c.Retry
}

// delay returns the pause after refusal number n (from 1): full jitter below min(MaxDelay,
// BaseDelay*2^(n-1)). Events that failed together do not come back together. random is in [0, 1).
func (p RetryPolicy) delay(n int, random float64) time.Duration {
	return pace.Jittered(pace.Backoff(p.BaseDelay, p.MaxDelay, n), random)
}
