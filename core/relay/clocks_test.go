package relay

import (
	"math"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// A heartbeat shows that a clock is at least so much ahead, because the heartbeat may be as old as the
// last look. Leases last longer by the most that the clock can be ahead.
func TestLeasesLastLongerWhereAClockIsAhead(t *testing.T) {
	t.Parallel()
	const lease, longest = 10 * time.Second, 2 * time.Minute
	now := time.Now()
	other := func(seen, ahead time.Duration) []core.RelayStatus {
		return []core.RelayStatus{{Node: "other", SeenAt: now.Add(seen), Ahead: ahead}}
	}
	var c clocks
	for _, look := range []struct {
		what        string
		at          time.Duration
		seen, ahead time.Duration
		told        time.Duration
		lease       time.Duration
	}{
		{"clocks agree", 0, 0, 0, 0, lease},
		{"a heartbeat of this moment", 10 * time.Second, 10 * time.Second, 500 * time.Millisecond, 0, lease},
		{"ahead", 20 * time.Second, 35 * time.Second, 15 * time.Second, 15 * time.Second, lease + 25*time.Second},
		{"the same heartbeat", 25 * time.Second, 35 * time.Second, 10 * time.Second, 0, lease + 25*time.Second},
		{"still ahead", 30 * time.Second, 45 * time.Second, 15 * time.Second, 0, lease + 20*time.Second},
		{"far ahead", 40 * time.Second, 2 * time.Hour, time.Hour, 0, lease + (longest-lease)/2},
		{"not seen", 50 * time.Second, 50 * time.Second, 0, 0, lease + (longest-lease)/2},
		{"not seen for a minute", 101 * time.Second, 100 * time.Second, 0, 0, lease},
		{"again", 110 * time.Second, 130 * time.Second, 20 * time.Second, 20 * time.Second, lease + 29*time.Second},
	} {
		told, of := c.look(now.Add(look.at), other(look.seen, look.ahead))
		if told != look.told || (of != "") != (told > 0) || c.lease(lease, longest) != look.lease {
			t.Errorf(
				"%s: told %s of %q, lease %s; want %s and %s",
				look.what,
				told,
				of,
				c.lease(lease, longest),
				look.told,
				look.lease,
			)
		}
	}
}

// Each relay's clock counts by itself, for a minute after a heartbeat that shows it. The difference
// may be absurd.
func TestLeasesLastLongerByTheClockThatIsMostAhead(t *testing.T) {
	t.Parallel()
	const lease, longest = 10 * time.Second, 10 * time.Minute
	now := time.Now()
	far := core.RelayStatus{Node: "far", SeenAt: now.Add(time.Minute), Ahead: time.Minute}
	var c clocks
	for _, look := range []struct {
		what   string
		at     time.Duration
		relays []core.RelayStatus
		lease  time.Duration
	}{
		{"one is far ahead", 0, []core.RelayStatus{far}, lease + time.Minute},
		{"another is a little ahead", 10 * time.Second, []core.RelayStatus{
			far, {Node: "near", SeenAt: now.Add(12 * time.Second), Ahead: 2 * time.Second},
		}, lease + time.Minute},
		{"the first has ended", 20 * time.Second, nil, lease + time.Minute},
		{"only the other is known", 65 * time.Second, nil, lease + 12*time.Second},
		{"none is known", 75 * time.Second, nil, lease},
		{"the year 2300", 75 * time.Second, []core.RelayStatus{
			{Node: "absurd", SeenAt: now.AddDate(300, 0, 0), Ahead: math.MaxInt64},
		}, lease + (longest-lease)/2},
	} {
		c.look(now.Add(look.at), look.relays)
		if got := c.lease(lease, longest); got != look.lease {
			t.Errorf("%s: lease %s, want %s", look.what, got, look.lease)
		}
	}
}
