package sqloutbox_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// idAt returns a row id with the time of a UUIDv7 or a ULID. All its other bits are the same.
func idAt(at time.Time, other byte) core.RowID {
	id := core.RowID(bytes.Repeat([]byte{other}, 16))
	binary.BigEndian.PutUint64(id[:], uint64(at.UnixMilli())<<16|binary.BigEndian.Uint64(id[:])&0xffff)
	return id
}

func TestSweepNext(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	now := time.Date(2026, 3, 4, 5, 6, 7, 8_900_000, time.UTC)
	young := idAt(now.Add(time.Hour), 0) // behind all ids with a time within the retention
	for _, c := range []struct {
		name string
		last core.RowID
		keep time.Duration
		want core.RowID
	}{
		{"nothing seen", core.RowID{}, 7 * day, core.RowID{}},
		{"long ago", idAt(now.Add(-30*day), 0xff), 7 * day, idAt(now.Add(-30*day), 0xff)},
		{"as old as the retention", idAt(now.Add(-7*day), 0xff), 7 * day, idAt(now.Add(-7*day), 0xff)},
		{"a little younger than the retention", idAt(now.Add(time.Millisecond-7*day), 0), 7 * day, young},
		{"now", idAt(now, 0x80), 7 * day, young},
		{"a clock that is ahead a little", idAt(now.Add(time.Hour-time.Millisecond), 0xff), 7 * day, young},
		{"the first id behind the young ones", young, 7 * day, young},
		{
			"the millisecond where the young ones end", idAt(now.Add(time.Hour), 0xff), 7 * day,
			idAt(now.Add(time.Hour), 0xff),
		},
		{"a clock that is ahead by a day", idAt(now.Add(day), 0), 7 * day, idAt(now.Add(day), 0)},
		{
			"a random id", core.RowID(bytes.Repeat([]byte{0xf4}, 16)), 7 * day,
			core.RowID(bytes.Repeat([]byte{0xf4}, 16)),
		},
		{
			"the largest id", core.RowID(bytes.Repeat([]byte{0xff}, 16)), 7 * day,
			core.RowID(bytes.Repeat([]byte{0xff}, 16)),
		},
		{"a short retention", idAt(now, 0x80), time.Minute, young},
		{"no retention", idAt(now, 0x80), 0, idAt(now, 0x80)},
	} {
		if got := sqloutbox.SweepNext(c.last, now, c.keep); got != c.want {
			t.Errorf("%s: after %s the cleanup goes on behind %s, want %s", c.name, c.last, got, c.want)
		}
	}
}

// The walk never goes back, and a jump passes over no id that is as old as the retention.
func TestSweepNextLeavesNothingOld(t *testing.T) {
	t.Parallel()
	now := time.Now()
	jumps := 0
	for range 100_000 {
		keep := time.Duration(rand.Int64N(int64(30 * 24 * time.Hour)))
		last := idAt(now.Add(time.Hour-time.Duration(rand.Int64N(int64(2*keep+time.Hour)))), byte(rand.Uint32()))
		next := sqloutbox.SweepNext(last, now, keep)
		if next == last {
			continue
		}
		jumps++
		// Ids begin with their time, so the young ones lie between these two.
		first, end := idAt(now.Add(-keep), 0xff), idAt(now.Add(time.Hour), 0)
		if bytes.Compare(next[:], last[:]) < 0 || bytes.Compare(last[:], first[:]) < 0 ||
			bytes.Compare(next[:], end[:]) > 0 {
			t.Fatalf("keep %s: from %s to %s, but only ids from %s to %s are young", keep, last, next, first, end)
		}
	}
	if jumps == 0 {
		t.Error("no jump was tried")
	}
}
