package sqloutbox

import (
	"database/sql"
	"testing"
)

// A program may open more and more pools. home keeps a bounded number of them.
func TestNeighboursAreForgotten(t *testing.T) {
	var h home
	for range 10 * maxNeighbours {
		pool := new(sql.DB)
		h.met(pool, neighbour{same: true})
		if n, met := h.neighbour(pool); !met || !n.same {
			t.Fatal("the last pool is forgotten")
		}
	}
	if n := len(h.neighbours); n > maxNeighbours {
		t.Errorf("%d pools are kept, want at most %d", n, maxNeighbours)
	}
	pool := new(sql.DB)
	h.keep(place{database: "a"})
	h.met(pool, neighbour{same: true})
	h.keep(place{database: "a"})
	if _, met := h.neighbour(pool); !met {
		t.Error("the pools are forgotten although the database is the same")
	}
	h.keep(place{database: "b"})
	if _, met := h.neighbour(pool); met {
		t.Error("the pools are kept although the database is another one")
	}
}
