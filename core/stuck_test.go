package core

import "testing"

func TestCrew(t *testing.T) {
	c := crew{size: 2, alive: 2}
	for i, want := range []struct {
		replace      bool
		alive, stuck int
	}{{true, 2, 1}, {true, 2, 2}, {false, 1, 3}, {false, 0, 4}} {
		if got := c.lose(); got != want.replace || c.alive != want.alive || c.stuck != want.stuck {
			t.Fatalf("loss %d: replaced %t, %+v; want %+v", i+1, got, c, want)
		}
	}
	for i, want := range []struct {
		needed       bool
		alive, stuck int
	}{{true, 1, 3}, {true, 2, 2}, {false, 2, 1}, {false, 2, 0}} {
		if got := c.back(); got != want.needed || c.alive != want.alive || c.stuck != want.stuck {
			t.Fatalf("return %d: needed %t, %+v; want %+v", i+1, got, c, want)
		}
	}
}
