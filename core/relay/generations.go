package relay

import (
	"cmp"
)

// generations remembers values in two generations of limited size. A value that was not asked for
// during a whole generation is forgotten. A value in use is never forgotten, because a second value
// for its key would be wrong. The zero value is empty, with generations of 32768.
type generations[K comparable, V interface{ inUse() bool }] struct {
	young, old map[K]V
	limit      int // the size of a generation; 0: 32768
	kept       int // values in use that the young generation began with
}

// find returns the value of a key and moves it to the young generation.
func (g *generations[K, V]) find(key K) (v V, ok bool) {
	if v, ok = g.young[key]; ok {
		return v, true
	}
	if v, ok = g.old[key]; ok {
		g.put(key, v)
	}
	return v, ok
}

// put remembers a value.
func (g *generations[K, V]) put(key K, v V) {
	limit := g.limit
	limit = cmp.Or(limit, 32<<10)
	if len(g.young) >= max(limit, 2*g.kept) { // twice: moving them costs little for each put
		old := g.old
		g.old, g.young = g.young, make(map[K]V, limit/4)
		for k, o := range old {
			if _, again := g.old[k]; !again && o.inUse() {
				g.young[k] = o
			}
		}
		g.kept = len(g.young)
	}
	if g.young == nil {
		g.young = map[K]V{}
	}
	g.young[key] = v
}
