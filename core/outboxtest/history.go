package outboxtest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

var _ core.Historian = (*Repository)(nil)

// historySlot is one slot of the history.
type historySlot struct {
	topics  map[string]core.HistoryCounts
	backlog *core.Backlog // nil: not counted
}

// AddHistory implements core.Historian.
func (r *Repository) AddHistory(ctx context.Context, counts []core.HistoryCounts) (opened bool, err error) {
	if err := r.begin(ctx); err != nil {
		return false, err
	}
	defer r.mu.Unlock()
	if r.history == nil {
		r.history = map[time.Time]*historySlot{}
	}
	at := r.now().Truncate(core.HistorySlot)
	slot := r.history[at]
	if opened = slot == nil; opened {
		slot = &historySlot{topics: map[string]core.HistoryCounts{}}
		r.history[at] = slot
	}
	for _, c := range counts {
		sum := slot.topics[c.Topic]
		slot.topics[c.Topic] = core.HistoryCounts{
			Topic:     c.Topic,
			Published: sum.Published + c.Published,
			Refused:   sum.Refused + c.Refused,
			Died:      sum.Died + c.Died,
		}
	}
	return opened, nil
}

// SetHistory implements core.Historian.
func (r *Repository) SetHistory(ctx context.Context, b core.Backlog) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	now := r.now().Truncate(core.HistorySlot)
	if slot := r.history[now]; slot != nil {
		slot.backlog = &core.Backlog{
			Pending: b.Pending, Dead: b.Dead, BlockedKeys: b.BlockedKeys, OldestAge: b.OldestAge, More: b.More,
		}
	}
	slots := slices.SortedFunc(maps.Keys(r.history), time.Time.Compare)
	for _, at := range slots {
		if at.Before(now.Add(-core.HistoryKept)) && at.Before(slots[0].Add(time.Hour)) {
			delete(r.history, at)
		}
	}
	return nil
}

// History implements core.Historian.
func (r *Repository) History(ctx context.Context, since time.Duration, topic string,
) (all []core.HistoryEntry, err error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	first := r.now().Truncate(core.HistorySlot).Add(-min(since, core.HistoryKept).Truncate(core.HistorySlot))
	for _, at := range slices.SortedFunc(maps.Keys(r.history), time.Time.Compare) {
		if slot := r.history[at]; !at.Before(first) {
			if e, found := slot.entry(topic); found {
				e.At = at
				all = append(all, e)
			}
		}
	}
	return all, nil
}

// entry is what the slot has of a topic, or of all. found is false if it has nothing of the topic.
func (s *historySlot) entry(topic string) (e core.HistoryEntry, found bool) {
	if topic != "" {
		e.HistoryCounts, found = s.topics[topic]
		return e, found
	}
	for _, c := range s.topics {
		e.Published, e.Refused, e.Died = e.Published+c.Published, e.Refused+c.Refused, e.Died+c.Died
	}
	if s.backlog != nil {
		e.Counted, e.Backlog = true, *s.backlog
	}
	return e, true
}
