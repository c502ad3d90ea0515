package suite

import (
	"strings"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func historyCases() []repositoryCase {
	return []repositoryCase{
		{"counts are added up", historyAdded},
		{"a slot is opened once", historyOpened},
		{"the backlog is that of all topics", historyBacklog},
		{"topics that are hard to store", historyTopics},
	}
}

// historian returns the history of the Repository, if it has one.
func (f *fixture) historian() (h core.Historian, ok bool) {
	h, ok = f.Repository.(core.Historian)
	return h, ok
}

// history returns the slots of the last hour.
func (f *fixture) history(topic string) []core.HistoryEntry {
	f.Helper()
	h, _ := f.historian()
	all, err := h.History(f.Context(), time.Hour, topic)
	f.check(err)
	for i, e := range all {
		f.must(e.At.Equal(e.At.Truncate(core.HistorySlot)) && e.At.Location() == time.UTC && e.Topic == topic,
			"slot %d is %+v", i, e)
		f.must(i == 0 || e.At.After(all[i-1].At), "slot %d is not after the one before", i)
	}
	return all
}

// historySum adds up the slots of the last hour. The test may have begun in one slot and end in the next.
func (f *fixture) historySum(topic string) (sum core.HistoryCounts) {
	f.Helper()
	for _, e := range f.history(topic) {
		sum.Published, sum.Refused, sum.Died = sum.Published+e.Published, sum.Refused+e.Refused, sum.Died+e.Died
	}
	return sum
}

func historyAdded(f *fixture) {
	h, ok := f.historian()
	if !ok {
		return
	}
	add := func(counts ...core.HistoryCounts) {
		f.Helper()
		_, err := h.AddHistory(f.Context(), counts)
		f.check(err)
	}
	f.must(len(f.history("")) == 0, "a new table has a history")
	add()
	f.must(f.historySum("") == core.HistoryCounts{} && len(f.history("")) > 0, "an idle slot is %+v", f.history(""))
	add(core.HistoryCounts{Topic: "orders", Published: 1 << 40, Refused: 2, Died: 3}, core.HistoryCounts{Published: 5},
		core.HistoryCounts{Topic: "mails", Refused: 1})
	add(core.HistoryCounts{Topic: "mails", Published: 10}, core.HistoryCounts{Topic: "orders", Died: 1})
	for topic, want := range map[string]core.HistoryCounts{
		"orders": {Published: 1 << 40, Refused: 2, Died: 4}, "mails": {Published: 10, Refused: 1}, "none": {},
		"": {Published: 1<<40 + 15, Refused: 3, Died: 4},
	} {
		f.must(f.historySum(topic) == want, "the history of %q is %+v, want %+v", topic, f.history(topic), want)
	}
	f.must(len(f.history("none")) == 0, "a topic without events has slots")
	many := make([]core.HistoryCounts, 30)
	for i := range many {
		many[i] = core.HistoryCounts{Topic: "many" + strings.Repeat("y", i), Published: 1}
	}
	add(many...)
	f.must(f.historySum("many").Published == 1 && f.historySum("").Published == 1<<40+45, "many topics are %+v",
		f.historySum(""))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				if _, err := h.AddHistory(f.Context(), []core.HistoryCounts{
					{Topic: "mails", Died: 1}, {Topic: "orders", Died: 1}, {Died: 1},
				}); err != nil {
					f.Errorf("add history: %v", err)
				}
			}
		})
	}
	wg.Wait()
	f.must(f.historySum("mails").Died == 40 && f.historySum("").Died == 4+120, "of several relays %+v is kept",
		f.historySum(""))
}

func historyOpened(f *fixture) {
	h, ok := f.historian()
	if !ok {
		return
	}
	opened := 0
	for range 5 {
		first, err := h.AddHistory(f.Context(), []core.HistoryCounts{{Topic: "orders", Published: 1}})
		f.check(err)
		if first {
			opened++
		}
	}
	f.must(opened == len(f.history("")), "%d calls opened a slot of %d", opened, len(f.history("")))
}

func historyBacklog(f *fixture) {
	h, ok := f.historian()
	if !ok {
		return
	}
	b := core.Backlog{Pending: 12, Dead: 3, BlockedKeys: 2, OldestAge: 90 * time.Second, More: true}
	f.check(h.SetHistory(f.Context(), b))                  // there is no slot yet
	f.eventually("the backlog is in a slot", func() bool { // again, if a new slot has begun in between
		_, err := h.AddHistory(f.Context(), []core.HistoryCounts{{Topic: "orders", Published: 1}})
		f.check(err)
		f.check(h.SetHistory(f.Context(), b))
		all := f.history("")
		last := all[len(all)-1]
		return last.Counted && last.Backlog == b
	})
	for _, e := range f.history("orders") {
		f.must(!e.Counted && e.Backlog == core.Backlog{}, "a topic has the backlog %+v", e)
	}
}

func historyTopics(f *fixture) {
	h, ok := f.historian()
	if !ok {
		return
	}
	topics := []string{"größe 📨", "a:b", "A:b", "a'b\"\\", strings.Repeat("ö", 124), "{x}"}
	for i, topic := range topics {
		_, err := h.AddHistory(f.Context(), []core.HistoryCounts{{Topic: topic, Refused: int64(i + 1)}})
		f.check(err)
	}
	for i, topic := range topics {
		f.must(f.historySum(topic).Refused == int64(i+1), "the history of %q is %+v", topic, f.history(topic))
	}
}
