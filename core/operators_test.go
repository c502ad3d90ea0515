package core

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s reading[int]
		var list []int
		var missing bool
		var err error
		asked, told := 0, 0
		look := func(ctx context.Context) {
			s.look(ctx, func(context.Context) ([]int, bool, error) { asked++; return list, missing, err },
				func(context.Context, error) { told++ })
		}
		list = []int{1}
		look(t.Context())
		if !slices.Equal(s.list, []int{1}) || s.at != time.Now() {
			t.Fatalf("read %v at %s", s.list, s.at)
		}
		read := s.at
		time.Sleep(time.Second)

		// The last settings hold while they cannot be read, and the log says so once.
		list, err = nil, errors.New("away")
		for range 3 * operatorsFailed {
			look(t.Context())
		}
		if !slices.Equal(s.list, []int{1}) || s.at != read || told != 1 || s.failures != 3*operatorsFailed {
			t.Errorf("%v of %s, %d failures, told %d times", s.list, s.at, s.failures, told)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		look(ended)
		equal(t, s.failures, 3*operatorsFailed, "the end of the relay counts as a failure")

		// A table that is missing is looked for seldom.
		err, missing, asked = nil, true, 0
		look(t.Context())
		if s.failures != 0 || len(s.list) != 0 {
			t.Errorf("%d failures and %v after a success", s.failures, s.list)
		}
		for begun := time.Now(); time.Since(begun) < heartbeatAgain; time.Sleep(time.Second) {
			look(t.Context())
		}
		equal(t, asked, 1, "asked so often for a missing table")
		list, missing = []int{2}, false
		look(t.Context())
		if !slices.Equal(s.list, []int{2}) {
			t.Error("a table that was made later is not found")
		}
	})
}
