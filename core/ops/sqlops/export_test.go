package sqlops

import (
	"maps"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqltexts"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// Texts returns every statement for the tables by its name, for the golden files.
func Texts(t outboxsql.Tables) (map[string]string, error) {
	st := newStore(t)
	texts := map[string]string{}
	for what, statements := range map[string]any{
		"plan": st.plans, "replay": st.replays, "edit": st.edits,
		"erase": st.erases, "record": st.records, "group": st.groups,
		"window": st.windows, "destinations": st.destinations,
	} {
		of, err := sqltexts.Of(statements)
		if err != nil {
			return nil, err
		}
		for name, text := range maps.All(of) {
			texts[what+": "+name] = text
		}
	}
	addEventQueries(texts, st)
	return texts, nil
}

// addEventQueries adds the statements that list events: for each part of the table one with every
// filter, and one without a filter.
func addEventQueries(texts map[string]string, st *Store) {
	at := time.Unix(1, 0)
	all := ops.Scan{Filter: ops.Filter{
		Statuses: []ops.Status{ops.StatusNew, ops.StatusDone}, Type: "t", TenantID: "a", Key: "k", AggregateType: "a",
		AggregateID: "a", ErrorCode: "c", Fingerprint: "f", CreatedFrom: at, CreatedBefore: at,
	}, AfterSeq: 1, BeforeSeq: 9}
	for name, p := range map[string]part{
		"by id": {first: core.RowID{1}, last: core.RowID{2}}, "dead": {index: byDead, noLane: true},
		"open": {index: byTopic}, "open of a topic": {index: byTopic, topic: "t"}, "of keys": {index: byLane},
		"of a key": {index: byLane, lane: core.KeyID{1}},
	} {
		from := cursor{ID: core.RowID{1}}
		texts["list events "+name] = newEventQuery(st, all, &p).events(from, 9, 9)
		newest := ops.Scan{Newest: true}
		texts["list events "+name+", newest"] = newEventQuery(st, newest, &part{
			index: p.index, first: p.first, topic: p.topic,
			lane: p.lane,
		}).events(from, 9, 9)
	}
	texts["list events, last"] = newEventQuery(st, ops.Scan{}, &part{}).last(cursor{}, 9)
	q := &eventQuery{Store: st}
	texts["read content"] = st.tables.Expand(q.content(core.RowID{}))
	q = &eventQuery{Store: st}
	texts["read failures"] = st.tables.Expand(q.failures(core.RowID{}))
	q = &eventQuery{Store: st}
	texts["read audit"] = st.tables.Expand(q.audit(core.RowID{}))
}
