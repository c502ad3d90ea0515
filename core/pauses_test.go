package core

import "testing"

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
