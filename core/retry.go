package core

import (
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// delay returns the pause after refusal number n (from 1): full jitter below min(MaxDelay, BaseDelay*2^(n-1)), so that what
// failed together does not come back together. random is in [0, 1).
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

const maxErrorBytes = 2 << 10

var (
	urlPassword = regexp.MustCompile(`://[^/\s@]*@`)
	keyPassword = regexp.MustCompile(`(?i)\b(password|passwd|pwd|secret|token|sasl\.password|api[_-]?key)(\s*[=:]\s*)\S+`)
)

// errorText is what of an error is stored and logged: without credentials, valid UTF-8, at most 2 KB.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	s := strings.ToValidUTF8(err.Error(), "?")
	s = strings.ReplaceAll(s, "\x00", "?")
	if len(s) > 4*maxErrorBytes {
		s = s[:4*maxErrorBytes]
	}
	s = urlPassword.ReplaceAllString(s, "://***@")
	s = keyPassword.ReplaceAllString(s, "$1$2***")
	if len(s) > maxErrorBytes {
		n := maxErrorBytes
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "?")
}
