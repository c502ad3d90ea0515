package sqloutbox

import (
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// A new partition gets only ids that no other partition has. The others may have another
// PartitionEvery, may be made by a person, or may be the table that was there before.
func TestUncovered(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	at := func(hours int) time.Time { return noon.Add(time.Duration(hours) * time.Hour) }
	part := func(low, high int) partition { return partition{low: idOf(at(low)), high: idOf(at(high))} }
	before := partition{high: idOf(at(2))}
	behind := partition{low: idOf(at(20)), endless: true}
	for _, c := range []struct {
		name      string
		all       []partition
		low, high int // hours, 0 to 10 is wanted
	}{
		{"nothing", nil, 0, 10},
		{"the default one", []partition{{fallback: true}}, 0, 10},
		{"a detached one", []partition{{detached: true}}, 0, 10},
		{"the same", []partition{part(0, 10)}, 10, 10},
		{"neighbours", []partition{part(-10, 0), part(10, 20)}, 0, 10},
		{"its beginning", []partition{part(-5, 3)}, 3, 10},
		{"its end", []partition{part(7, 12)}, 0, 7},
		{"its middle", []partition{part(4, 5)}, 0, 4},
		{"two at the beginning", []partition{part(-1, 2), part(2, 6)}, 6, 10},
		{"both ends", []partition{part(-1, 2), part(6, 20)}, 2, 6},
		{"everything", []partition{part(-100, 100)}, 100, 10},
		{"the table of before", []partition{before, behind}, 2, 10},
		{"all that comes", []partition{{low: idOf(at(-1)), endless: true}}, 10, 10},
	} {
		sortPartitions(c.all)
		low, high := uncovered(c.all, at(0), at(10))
		if !low.Equal(at(c.low)) || !high.Equal(at(c.high)) {
			t.Errorf("%s: from %s to %s, want %s to %s", c.name, low, high, at(c.low), at(c.high))
		}
	}
}

// Bounds are read as PostgreSQL prints them.
func TestPartitionBound(t *testing.T) {
	t.Parallel()
	const a, b = "0193a1b2-0000-0000-0000-000000000000", "0193a1b3-0000-0000-0000-000000000000"
	low, _ := core.ParseRowID(a)
	high, _ := core.ParseRowID(b)
	for text, want := range map[string]partition{
		"":        {detached: true},
		"DEFAULT": {fallback: true},
		"FOR VALUES FROM ('" + a + "') TO ('" + b + "')": {low: low, high: high},
		"FOR VALUES FROM (MINVALUE) TO ('" + b + "')":    {high: high},
		"FOR VALUES FROM ('" + a + "') TO (MAXVALUE)":    {low: low, endless: true},
	} {
		var got partition
		if err := got.setBound(text); err != nil || got != want {
			t.Errorf("%q is %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"FOR VALUES IN ('" + a + "')", "FOR VALUES FROM ('2026-01-01') TO ('2026-01-02')",
		"FOR VALUES WITH (modulus 2, remainder 0)",
	} {
		if err := new(partition).setBound(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// A partition is over when its last id is older than the retention.
func TestPartitionEnded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	old := partition{ours: true, high: idOf(now.Add(-2 * time.Hour))}
	for name, c := range map[string]struct {
		p    partition
		keep time.Duration
		want bool
	}{
		"old":                 {old, time.Hour, true},
		"young":               {old, 3 * time.Hour, false},
		"in another schema":   {partition{high: old.high}, time.Hour, false},
		"the default one":     {partition{ours: true, fallback: true}, time.Hour, false},
		"without an end":      {partition{ours: true, endless: true}, time.Hour, false},
		"detached":            {partition{ours: true, detached: true}, time.Hour, false},
		"of the years before": {partition{ours: true, high: idOf(time.Unix(1, 0))}, time.Hour, true},
	} {
		if got := c.p.ended(now, c.keep); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
