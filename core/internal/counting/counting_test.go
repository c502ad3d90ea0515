package counting_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/counting"
)

func TestRows(t *testing.T) {
	fault := errors.New("no")
	for _, c := range []struct {
		name   string
		rows   int
		each   time.Duration
		err    error
		limits []int
	}{
		{"few rows", 9_999, time.Second, nil, []int{10_000}},
		{"many rows, quickly read", 1_000_000, 10 * time.Microsecond, nil, []int{10_000, 100_000}},
		{"many rows, slowly read", 1_000_000, 11 * time.Microsecond, nil, []int{10_000}},
		{"a failure", 1_000_000, 0, fault, []int{10_000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var limits []int
				n, more, err := counting.Rows(func(limit int) (int, bool, error) {
					limits = append(limits, limit)
					n := min(c.rows, limit)
					time.Sleep(time.Duration(n) * c.each)
					return n, n == limit, c.err
				})
				last := c.limits[len(c.limits)-1]
				if !slices.Equal(limits, c.limits) || n != min(c.rows, last) || more != (c.rows >= last) ||
					!errors.Is(err, c.err) {
					t.Errorf("limits %d: %d rows, more %t, error %v", limits, n, more, err)
				}
			})
		})
	}
}
