package core

import "testing"

type used bool

func (u *used) inUse() bool { return bool(*u) }

// A value in use is remembered, however many others are added. The others are forgotten in the end.
func TestGenerations(t *testing.T) {
	g := generations[int, *used]{limit: 10}
	if _, ok := g.find(0); ok {
		t.Fatal("found in an empty one")
	}
	busy, asked := used(true), used(false)
	g.put(0, &busy)
	g.put(1, &asked)
	most := 0
	for i := range 1000 {
		g.put(2+i, new(used))
		if v, ok := g.find(1); !ok || v != &asked {
			t.Fatal("a value that is asked for again and again was forgotten")
		}
		most = max(most, len(g.young)+len(g.old))
	}
	if v, ok := g.find(0); !ok || v != &busy {
		t.Error("a value in use was forgotten")
	}
	if most > 20 {
		t.Errorf("%d remembered, want at most two generations of 10", most)
	}
	if _, ok := g.find(2); ok {
		t.Error("nothing was forgotten")
	}
}
