package core

import (
	"testing"
	"time"
)

func TestSweep(t *testing.T) {
	now, zero, lane := time.Now(), KeyID{}, KeyID{1}
	var s sweep
	if s.page(zero, zero, 0, now, time.Minute) || s.resting(now) {
		t.Error("a sweep of one page that found nothing is followed by another, or by a rest")
	}
	if s.page(zero, zero, 500, now, time.Minute) || s.resting(now) {
		t.Error("a sweep of one page is followed by another, or by a rest")
	}
	for _, c := range []struct {
		rows int
		most time.Duration
		more bool
		rest time.Duration
	}{
		{0, time.Minute, false, 3 * sweepRest},
		{1, time.Minute, true, 3 * sweepRest},
		{100, time.Minute, true, 0},
		{0, 2 * sweepRest, false, 2 * sweepRest},
	} {
		s = sweep{}
		if !s.page(zero, lane, 0, now, c.most) || !s.page(lane, lane, c.rows, now, c.most) {
			t.Fatal("a sweep ends in the middle")
		}
		equal(t, s.page(lane, zero, 0, now, c.most), c.more, "%d rows: another sweep at once", c.rows)
		if !s.resting(now.Add(c.rest-1)) && c.rest > 0 || s.resting(now.Add(c.rest)) {
			t.Errorf("%d rows: rests until %s, want %s", c.rows, s.restUntil.Sub(now), c.rest)
		}
	}
}
