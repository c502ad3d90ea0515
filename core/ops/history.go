package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// MaxHistoryPoints is how many points History returns at most: core.HistoryKept, and the slot that
// lasts now.
const MaxHistoryPoints = int(core.HistoryKept/core.HistorySlot) + 1

// HistoryQuery selects the part of the history that History returns.
type HistoryQuery struct {
	// Since is how far back it goes. Default: 3 hours. At most core.HistoryKept.
	Since time.Duration
	// Step is the time of one point: a multiple of core.HistorySlot, which is the default.
	Step time.Duration
	// Topic selects one destination. Empty: the sums of all.
	Topic string
}

// History has the results of relays and the backlog, in equal steps of time.
type History struct {
	Topic string        `json:"topic,omitempty"`
	Step  time.Duration `json:"step"` // in nanoseconds
	// Points has every step, the oldest first, even if nothing was recorded in it. The last one has
	// not ended yet.
	Points []HistoryPoint `json:"points"`
}

// HistoryPoint is one step of a History. Relays write about once a minute, so the newest counts are
// up to a minute late. What a process published in the seconds before it was killed is missing.
type HistoryPoint struct {
	At time.Time `json:"at"` // when it began; a multiple of the step since 1970
	// Kept: a relay wrote something in this step. If not, no relay ran, or its history could not be
	// written: the counts are not known.
	Kept      bool  `json:"kept"`
	Published int64 `json:"published"` // accepted by their destinations
	Refused   int64 `json:"refused"`   // refused, and tried again; outages are not among them
	Died      int64 `json:"died"`      // refused, and given up

	// Counted: a relay counted the backlog. The numbers are the largest of the step. They are never
	// known for a single topic.
	Counted     bool          `json:"counted"`
	Waiting     int64         `json:"waiting"`
	Dead        int64         `json:"dead"`
	BlockedKeys int64         `json:"blocked_keys"`
	Oldest      time.Duration `json:"oldest"`         // the age of the oldest event that waits
	More        bool          `json:"more,omitempty"` // the numbers are at least as large: a count ended early
}

// History returns the results of relays and the backlog, of up to seven days. It reads the rows
// that relays write every minute, and no event. A query that makes no sense is refused with an
// error wrapping core.ErrInvalidRequest. If the table has no history, because it was created by an
// earlier version or the Repository keeps none, the error wraps core.ErrNoTables.
func (a *API) History(ctx context.Context, q HistoryQuery) (History, error) {
	if q.Since == 0 {
		q.Since = 3 * time.Hour
	}
	if q.Step == 0 {
		q.Step = core.HistorySlot
	}
	switch {
	case q.Since < core.HistorySlot || q.Since > core.HistoryKept:
		return History{}, invalid("{Since} %s is not from %s to %s", q.Since, core.HistorySlot, core.HistoryKept)
	case q.Step < core.HistorySlot || q.Step > core.HistoryKept || q.Step%core.HistorySlot != 0:
		return History{}, invalid("{Step} %s is no multiple of %s, or longer than %s", q.Step, core.HistorySlot,
			core.HistoryKept)
	}
	h, ok := a.outbox.Repository().(core.Historian)
	if !ok {
		return History{}, fmt.Errorf("ops: %w: the Repository keeps no history", core.ErrNoTables)
	}
	entries, err := h.History(ctx, q.Since, q.Topic)
	if err != nil {
		return History{}, err
	}
	return q.points(entries, time.Now()), nil
}

// points puts the slots into steps.
func (q *HistoryQuery) points(entries []core.HistoryEntry, now time.Time) History {
	if n := len(entries); n > 0 && entries[n-1].At.After(now) { // the clock of the database is ahead
		now = entries[n-1].At
	}
	begin := func(at time.Time) time.Time {
		return time.Unix(at.Unix()-at.Unix()%int64(q.Step/time.Second), 0).UTC()
	}
	first, last := begin(now.Add(-q.Since)), begin(now)
	h := History{Topic: q.Topic, Step: q.Step, Points: make([]HistoryPoint, last.Sub(first)/q.Step+1)}
	for i := range h.Points {
		h.Points[i].At = first.Add(time.Duration(i) * q.Step)
	}
	for i := range entries {
		if e := &entries[i]; !e.At.Before(first) {
			h.Points[begin(e.At).Sub(first)/q.Step].add(e)
		}
	}
	return h
}

// add adds a slot to the step that it is in.
func (p *HistoryPoint) add(e *core.HistoryEntry) {
	p.Kept = true
	p.Published, p.Refused, p.Died = p.Published+e.Published, p.Refused+e.Refused, p.Died+e.Died
	if b := &e.Backlog; e.Counted {
		p.Counted, p.More = true, p.More || b.More
		p.Waiting, p.Dead = max(p.Waiting, b.Pending), max(p.Dead, b.Dead)
		p.BlockedKeys, p.Oldest = max(p.BlockedKeys, b.BlockedKeys), max(p.Oldest, b.OldestAge)
	}
}
