package cli

import (
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"7d": 7 * 24 * time.Hour, "0d": 0, "-2d": -48 * time.Hour, "90s": 90 * time.Second, "2h30m": 150 * time.Minute,
		"0": 0,
	} {
		var s span
		if err := s.Set(text); err != nil || time.Duration(s) != want {
			t.Errorf("%s: %s, %v, want %s", text, time.Duration(s), err, want)
		}
	}
	for _, text := range []string{"", "d", "7", "1.5d", "99999999d", "7d2h", "a week"} {
		var s span
		if err := s.Set(text); err == nil {
			t.Errorf("%q is taken as %s", text, time.Duration(s))
		}
	}
}
