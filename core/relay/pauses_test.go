package relay

import (
	"errors"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// A relay knows what operators have set after a look that began after the last doubt and succeeded.
func TestOperators(t *testing.T) {
	s := newOperators(newSignal())
	equal(t, s.known(), false, "known before the first look")
	s.ended(s.doubts, nil)
	equal(t, s.known(), true, "known after a look")
	began := s.doubts
	s.doubt()
	equal(t, s.known(), false, "known after a failure")
	s.ended(began, nil)
	equal(t, s.known(), false, "known after a look that began before the failure")
	s.ended(s.doubts, errors.New("away"))
	equal(t, s.known(), false, "known after a look that failed")
	s.ended(s.doubts, nil)
	equal(t, s.known(), true, "known after another look")
}

func TestPauses(t *testing.T) {
	var zero pauses
	if zero.hold("a") || zero.holdEvent("a", "t") || zero.has(core.Pause{All: true}) ||
		zero.has(core.Pause{Topic: "a"}) ||
		zero.has(core.Pause{Tenant: "t"}) {
		t.Fatal("something is paused without a pause")
	}
	p := pausesOf([]core.Pause{{Topic: "a"}, {Tenant: "t"}})
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
	if !p.has(core.Pause{Topic: "a"}) || !p.has(core.Pause{Tenant: "t"}) || p.has(core.Pause{Topic: "t"}) ||
		p.has(core.Pause{All: true}) {
		t.Error("the pauses are not those that they were made of")
	}
	p = pausesOf([]core.Pause{{All: true}})
	if !p.hold("a") || !p.holdEvent("b", "t") || !p.has(core.Pause{All: true}) || p.has(core.Pause{Topic: "a"}) {
		t.Error("a pause of all holds not all, or is taken for one of a topic")
	}
}
