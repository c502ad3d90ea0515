package relay

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

const (
	historyEvery  = time.Minute
	historyLater  = 10 * time.Minute // after an error: the table or the right may be missing
	historyTopics = 20               // topics that are counted apart
	historyIdle   = time.Hour        // a topic without events leaves its place to another one
	historyLook   = 10_000           // rows of a kind that the count of the backlog looks at
)

// tally counts results since the history was last written. The zero value is empty.
type tally struct {
	topics map[string]*topicTally
	others core.HistoryCounts // of topics without a place in the map
}

// topicTally are the counts of one topic.
type topicTally struct {
	core.HistoryCounts
	since time.Time // when it was last found to have events
}

// add counts the result of a publish, except for an outage. It allocates nothing but for a new
// topic.
func (t *tally) add(topic string, result core.PublishResult) {
	if result == core.PublishUnavailable {
		return
	}
	counts := &t.others
	if of, ok := t.topics[topic]; ok {
		counts = &of.HistoryCounts
	} else if len(t.topics) < historyTopics {
		counts = &t.place(topic).HistoryCounts
	}
	switch result {
	case core.PublishDone:
		counts.Published++
	case core.PublishRetry:
		counts.Refused++
	case core.PublishDead:
		counts.Died++
	case core.PublishUnavailable:
	}
}

// place gives a topic a place in the map.
func (t *tally) place(topic string) *topicTally {
	if t.topics == nil {
		t.topics = map[string]*topicTally{}
	}
	of := &topicTally{HistoryCounts: core.HistoryCounts{Topic: topic}}
	t.topics[topic] = of
	return of
}

// take removes and returns the counts that are not zero.
func (t *tally) take(now time.Time) (counts []core.HistoryCounts) {
	for topic, of := range t.topics {
		switch {
		case of.HistoryCounts != core.HistoryCounts{Topic: topic}:
			counts = append(counts, of.HistoryCounts)
			of.HistoryCounts, of.since = core.HistoryCounts{Topic: topic}, now
		case now.Sub(of.since) > historyIdle:
			delete(t.topics, topic)
		}
	}
	if (t.others != core.HistoryCounts{}) {
		counts = append(counts, t.others)
		t.others = core.HistoryCounts{}
	}
	slices.SortFunc(counts, func(a, b core.HistoryCounts) int { return cmp.Compare(a.Topic, b.Topic) })
	return counts
}

// putBack adds counts that could not be written.
func (t *tally) putBack(counts []core.HistoryCounts) {
	for _, c := range counts {
		to := &t.others
		if of, ok := t.topics[c.Topic]; ok {
			to = &of.HistoryCounts
		}
		to.Published, to.Refused, to.Died = to.Published+c.Published, to.Refused+c.Refused, to.Died+c.Died
	}
}

// record writes the history until ctx ends. It has a goroutine of its own: a table that is locked
// must not delay heartbeats.
func (r *engine) record(ctx context.Context) {
	h, ok := r.repo().(core.Historian)
	if !ok {
		return
	}
	told := false
	// Relays that began together must not write together: they may share a server.
	for wait := pace.Jittered(historyEvery, r.random()); pace.Sleep(ctx, wait); {
		wait = historyEvery
		if err := r.recordNow(ctx, h, dbTimeout); err != nil && ctx.Err() == nil {
			wait = historyLater
			if !told {
				r.ob.Logger.Warn("outbox: the history of this relay cannot be written, and is tried again every "+
					historyLater.String(), "error", errtext.Of(err))
			}
			told = true
		} else if err == nil {
			told = false
		}
	}
}

// recordNow adds the counts to the history. The relay that opened its slot also counts the backlog.
func (r *engine) recordNow(ctx context.Context, h core.Historian, timeout time.Duration) error {
	counts := ask(r, func(s *state) []core.HistoryCounts { return s.tally.take(time.Now()) })
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	opened, err := h.AddHistory(ctx, counts)
	if err != nil {
		r.do(func(s *state) { s.tally.putBack(counts) })
		r.life.unrecorded.Store(true)
		return err
	}
	r.life.unrecorded.Store(false)
	if !opened {
		return nil
	}
	backlog, err := r.repo().Backlog(ctx, historyLook)
	if err != nil {
		return err
	}
	return h.SetHistory(ctx, backlog)
}

// endHistory writes the counts of the last minute when the relay ends, unless the last try failed.
func (r *engine) endHistory(ctx context.Context) {
	h, ok := r.repo().(core.Historian)
	if !ok || r.life.unrecorded.Load() {
		return
	}
	counts := ask(r, func(s *state) []core.HistoryCounts { return s.tally.take(time.Now()) })
	if len(counts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(heartbeatEnd, r.cfg.ShutdownTimeout))
	defer cancel()
	_, _ = h.AddHistory(ctx, counts)
}
