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
		var err error
		told := 0
		look := func(ctx context.Context) {
			s.look(ctx, func(context.Context) ([]int, error) { return list, err },
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

		list, err = []int{2}, nil
		look(t.Context())
		if s.failures != 0 || !slices.Equal(s.list, []int{2}) {
			t.Errorf("%d failures and %v after a success", s.failures, s.list)
		}
	})
}

func TestPauses(t *testing.T) {
	var zero pauses
	if zero.hold("a") || zero.holdEvent("a", "t") || zero.has(Pause{All: true}) || zero.has(Pause{Topic: "a"}) ||
		zero.has(Pause{Tenant: "t"}) {
		t.Fatal("something is paused without a pause")
	}
	p := pausesOf([]Pause{{Topic: "a"}, {Tenant: "t"}})
	for _, c := range []struct {
		topic, tenant   string
		hold, holdEvent bool
	}{
		{"a", "", true, true},
		{"a", "u", true, true},
		{"b", "", false, false},
		{"b", "t", false, true},
		{"t", "a", false, false},
	} {
		if h, e := p.hold(c.topic), p.holdEvent(c.topic, c.tenant); h != c.hold || e != c.holdEvent {
			t.Errorf("topic %q is held: %t; its events of tenant %q: %t", c.topic, h, c.tenant, e)
		}
	}
	if !p.has(Pause{Topic: "a"}) || !p.has(Pause{Tenant: "t"}) || p.has(Pause{Topic: "t"}) || p.has(Pause{All: true}) {
		t.Error("the pauses are not those that they were made of")
	}
	p = pausesOf([]Pause{{All: true}})
	if !p.hold("a") || !p.holdEvent("b", "t") || !p.has(Pause{All: true}) || p.has(Pause{Topic: "a"}) {
		t.Error("a pause of all holds not all, or is taken for one of a topic")
	}
}
