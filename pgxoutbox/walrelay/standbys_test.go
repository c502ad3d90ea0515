package walrelay

import "testing"

// Ids of transactions wrap around, and the log has their lower halves.
func TestSnapshotHas(t *testing.T) {
	const epoch = uint64(7) << 32
	runs := snapshot{xmin: epoch + 10, xmax: epoch + 20, running: []int64{int64(epoch) + 10}}
	old := snapshot{xmin: epoch - 3, xmax: epoch + 20, running: []int64{int64(epoch) - 3}}
	for _, c := range []struct {
		name string
		v    snapshot
		xid  uint32
		want bool
	}{
		{"nothing was asked yet", snapshot{}, 5, false},
		{"before all that run", snapshot{xmin: epoch + 10, xmax: epoch + 20}, 9, true},
		{"runs", runs, 10, false},
		{"between two that run", runs, 12, true},
		{"later than the snapshot", snapshot{xmin: epoch + 10, xmax: epoch + 20}, 20, false},
		{"before the wrap", snapshot{xmin: epoch + 10, xmax: epoch + 20}, 1<<32 - 3, true},
		{"before the wrap, and runs", old, 1<<32 - 3, false},
		{"after the wrap", snapshot{xmin: epoch - 10, xmax: epoch - 5}, 3, false},
	} {
		if got := c.v.has(c.xid); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}
