package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// span is a flag whose value is a duration, which may be in whole days, as 7d.
type span time.Duration

func (s *span) Set(text string) error {
	d, err := parseSpan(text)
	if err == nil {
		*s = span(d)
	}
	return err
}

// String is empty for 0, so that the help shows no default.
func (s *span) String() string {
	if *s == 0 {
		return ""
	}
	return time.Duration(*s).String()
}

func (s *span) Type() string { return "duration" }

// parseSpan reads a duration of Go, or whole days.
func parseSpan(text string) (time.Duration, error) {
	const day, most = 24 * time.Hour, 100 * 365
	if number, found := strings.CutSuffix(text, "d"); found {
		if n, err := strconv.Atoi(number); err == nil && n >= -most && n <= most {
			return time.Duration(n) * day, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration, such as 90s, 2h30m or 7d", text)
	}
	return d, nil
}
