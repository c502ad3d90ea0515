package core

import (
	"context"
	"time"
)

const (
	// HistorySlot is the time that one row of the history covers. Slots begin at full five minutes
	// of UTC, by the database's clock.
	HistorySlot = 5 * time.Minute
	// HistoryKept is how long the history goes back.
	HistoryKept = 7 * 24 * time.Hour
)

// Historian is an optional interface of a Repository that keeps a history: for each slot of
// HistorySlot the events that were published, refused or given up, by topic, and the backlog. Run
// writes it about once a minute, and once more at its end. No mark of an event waits for it, and an
// error of these methods never ends a relay.
type Historian interface {
	// AddHistory adds counts to the slot that lasts now, and creates the slot if it is the first. It
	// reports whether it did. counts has each topic once, at most 100. A call that is repeated because
	// its answer was lost may count twice.
	AddHistory(ctx context.Context, counts []HistoryCounts) (opened bool, err error)

	// SetHistory stores the backlog in the slot that lasts now, if there is one. It then deletes
	// slots that ended before HistoryKept, at most one hour of slots.
	SetHistory(ctx context.Context, b Backlog) error

	// History returns the slots that began at most since ago, the oldest first. An empty topic selects
	// the sums of all topics, with the backlog; a slot of one topic has none.
	History(ctx context.Context, since time.Duration, topic string) ([]HistoryEntry, error)
}

// HistoryCounts counts results of the events of one topic.
type HistoryCounts struct {
	Topic     string // empty: all topics that a relay does not count separately
	Published int64  // accepted by the destination
	Refused   int64  // refused, and tried again. Outages are not among them
	Died      int64  // refused, and given up
}

// HistoryEntry is one slot of the history.
type HistoryEntry struct {
	At time.Time // when the slot began
	HistoryCounts
	// Counted: a relay counted the backlog in this slot. Backlog then has Pending, Dead,
	// BlockedKeys, OldestAge and More.
	Counted bool
	Backlog Backlog
}
