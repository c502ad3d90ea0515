package relay

import (
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestRefusals(t *testing.T) {
	limits := refusalLimits{failures: 3, attempts: 5, quiet: 2 * time.Second}
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	id := func(n int) core.RowID { return core.RowID{byte(n), byte(n >> 8)} }
	type step struct {
		ack      bool
		id       int
		attempts int
		marked   bool
		second   int
		want     refusalVerdict
	}
	refused := func(id, attempts, second int, want refusalVerdict) step {
		return step{id: id, attempts: attempts, second: second, want: want}
	}
	acked := step{ack: true, id: 99}
	marked := func(s step) step { s.marked = true; return s }
	for name, steps := range map[string][]step{
		"different events, for the first time": {
			refused(1, 0, 0, refusalCounts), refused(2, 0, 0, refusalCounts), refused(3, 0, 0, refusalOutage),
		},
		"an acknowledgement between": {
			refused(1, 0, 0, refusalCounts), refused(2, 0, 0, refusalCounts), acked, refused(3, 0, 0, refusalCounts),
			refused(4, 0, 0, refusalCounts), refused(5, 0, 0, refusalOutage),
		},
		"one event alone": {
			refused(1, 0, 0, refusalCounts), refused(1, 1, 0, refusalCounts), refused(1, 2, 1, refusalSpares),
			refused(1, 2, 2, refusalOutage),
		},
		"one event, and the destination works": {
			refused(1, 0, 0, refusalCounts), acked, refused(1, 1, 1, refusalCounts), refused(1, 2, 2, refusalCounts),
			refused(1, 3, 3, refusalCounts), refused(1, 4, 4, refusalCounts),
		},
		"one event alone, and it is its fault": {
			marked(refused(1, 0, 0, refusalCounts)), marked(refused(1, 1, 1, refusalCounts)),
			marked(refused(1, 2, 2, refusalCounts)), marked(refused(1, 4, 3, refusalCounts)),
		},
		"refused in other processes": {
			refused(1, 4, 0, refusalSpares), refused(1, 4, 1, refusalSpares), acked, refused(1, 4, 2, refusalCounts),
		},
		"events that were refused before, at once": {
			refused(1, 0, 0, refusalCounts), refused(2, 0, 0, refusalCounts), acked, refused(3, 0, 0, refusalCounts),
			acked, refused(1, 1, 1, refusalCounts), refused(2, 1, 1, refusalCounts), refused(3, 1, 1, refusalSpares),
			refused(4, 0, 1, refusalSpares), acked, refused(1, 1, 9, refusalCounts),
		},
		"events that were refused before, and a while without an acknowledgement": {
			refused(1, 0, 0, refusalCounts), refused(2, 0, 0, refusalCounts), acked, refused(3, 0, 0, refusalCounts),
			acked, refused(1, 1, 1, refusalCounts), refused(2, 1, 1, refusalCounts), refused(3, 1, 3, refusalOutage),
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s refusals
			for i, st := range steps {
				if st.ack {
					s.onAck(id(st.id))
					continue
				}
				if got := s.refused(id(st.id), st.attempts, st.marked, at(st.second), limits); got != st.want {
					t.Fatalf("step %d: verdict %d, want %d", i, got, st.want)
				}
			}
		})
	}
}

// An event was refused before it was claimed. If another event is acknowledged between the claim
// and the next refusal, the refusal counts.
func TestRefusalsOfClaimedEvent(t *testing.T) {
	var s refusals
	limits := refusalLimits{failures: 5, attempts: 10, quiet: time.Second}
	s.claimed(core.RowID{1}, 9)
	s.claimed(core.RowID{2}, 0)
	s.onAck(core.RowID{3})
	if v := s.refused(core.RowID{1}, 9, false, time.Unix(0, 0), limits); v != refusalCounts {
		t.Errorf("refused before its claim, then another one was acknowledged: verdict %d", v)
	}
	if !s.knows(core.RowID{1}) || s.knows(core.RowID{2}) {
		t.Error("it knows events that were not refused, or not those that were")
	}
	s.onAck(core.RowID{1})
	if s.knows(core.RowID{1}) {
		t.Error("an acknowledged event is still known")
	}
}

func TestRefusalsForget(t *testing.T) {
	s := refusals{limit: 100}
	limits := refusalLimits{failures: 1 << 30, attempts: 10, quiet: time.Hour}
	for i := range 1000 {
		s.refused(core.RowID{byte(i), byte(i >> 8)}, 0, false, time.Unix(0, 0), limits)
	}
	if n := len(s.young) + len(s.old); n > 200 {
		t.Errorf("%d events are remembered, want at most 200", n)
	}
	last := core.RowID{byte(999 & 255), byte(999 >> 8)}
	if !s.knows(last) {
		t.Error("the latest event is forgotten")
	}
}
