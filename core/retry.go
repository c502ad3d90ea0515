package core

import (
	"cmp"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// or returns p with the fields of q where p has none.
func (p RetryPolicy) or(q RetryPolicy) RetryPolicy {
	p.BaseDelay = cmp.Or(p.BaseDelay, q.BaseDelay)
	p.MaxDelay = cmp.Or(p.MaxDelay, max(q.MaxDelay, p.BaseDelay))
	p.MaxAttempts = cmp.Or(p.MaxAttempts, q.MaxAttempts)
	return p
}

// validate reports what is wrong with p, which has its defaults.
func (p RetryPolicy) validate(name string, bad func(format string, args ...any)) {
	switch {
	case p.MaxAttempts < 0:
		bad("%s.MaxAttempts is negative", name)
	case p.BaseDelay < 0:
		bad("%s.BaseDelay is negative", name)
	case p.MaxDelay < 0:
		bad("%s.MaxDelay is negative", name)
	case p.MaxDelay < p.BaseDelay:
		bad("%s.MaxDelay %s is shorter than %s.BaseDelay %s", name, p.MaxDelay, name, p.BaseDelay)
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
	return jittered(backoff(p.BaseDelay, p.MaxDelay, n), random)
}

// backoff returns min(limit, base*2^(n-1)) without overflow.
func backoff(base, limit time.Duration, n int) time.Duration {
	d := base
	for i := 1; i < n && d < limit; i++ {
		d *= 2
		if d <= 0 {
			return limit
		}
	}
	return min(d, limit)
}

func jittered(d time.Duration, random float64) time.Duration {
	return max(time.Duration(random*float64(d)), time.Millisecond)
}

// spread returns d changed by up to 20 % either way.
func spread(d time.Duration, random float64) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*random))
}

// ErrorText is the text of err as the outbox stores and logs it: without credentials, at most 2
// KiB of valid UTF-8, "" for nil. It is for authors of observers and tracers, who get errors as
// they are.
func ErrorText(err error) string { return errorText(err) }

// errorText is the text of an error that is saved and logged.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return errtext.Redact(err.Error())
}
