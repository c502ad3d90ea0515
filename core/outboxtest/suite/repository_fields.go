package suite

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// optionalFields set the fields that an event may lack. The number makes the values of each event
// its own, so that no field can come from another event, or from another column.
var optionalFields = []struct {
	name string
	set  func(e *core.Event, n int)
}{
	{"schema version", func(e *core.Event, n int) { e.SchemaVersion = 1000 + n }},
	{"aggregate type", func(e *core.Event, n int) { e.AggregateType = fmt.Sprint("type-", n) }},
	{"aggregate id", func(e *core.Event, n int) { e.AggregateID = fmt.Sprint("aggregate-", n) }},
	{"aggregate version", func(e *core.Event, n int) { e.AggregateVersion = int64(2000 + n) }},
	{"tenant id", func(e *core.Event, n int) { e.TenantID = fmt.Sprint("tenant-", n) }},
	{"key", func(e *core.Event, n int) { e.Key = fmt.Sprint("key-", n) }},
	{"key, unordered", func(e *core.Event, n int) { e.Key, e.Unordered = fmt.Sprint("partition-", n), true }},
	{"content type", func(e *core.Event, n int) { e.ContentType = fmt.Sprint("application/", n) }},
	{"headers", func(e *core.Event, n int) { e.Headers = map[string]string{"n": fmt.Sprint("header-", n)} }},
	{"delay", func(e *core.Event, _ int) { e.Delay = time.Hour }},
}

// fieldSets returns sets of optional fields, as bits: none, all, each alone, all but each, and
// random ones.
func fieldSets(random int) []int {
	all := 1<<len(optionalFields) - 1
	sets := []int{0, all}
	for i := range optionalFields {
		sets = append(sets, 1<<i, all&^(1<<i))
	}
	for range random {
		sets = append(sets, rand.IntN(all+1))
	}
	return sets
}

// rowWith returns a row with the fields of a set, and their names.
func rowWith(set, n int) (row core.NewRow, fields string) {
	e := core.Event{
		ID: core.NewEventID(), Type: fmt.Sprint("event-", n), Topic: fmt.Sprint("topic-", n%3),
		OccurredAt: time.UnixMicro(1_700_000_000_000_000 + int64(n)).UTC(), Payload: []byte(fmt.Sprint("payload-", n)),
	}
	var names []string
	for i, f := range optionalFields {
		if set&(1<<i) != 0 {
			f.set(&e, n)
			names = append(names, f.name)
		}
	}
	return rowOf(e), fmt.Sprintf("event %d with [%s]", n, strings.Join(names, ", "))
}

// insertFields inserts events that lack some of their optional fields, hot and cold, one by one and
// in one call, and compares the claimed events with the published ones.
func insertFields(f *fixture) {
	var rows []core.NewRow
	names := map[core.RowID]string{}
	add := func(call string) {
		for _, set := range fieldSets(12) {
			for _, hot := range []bool{false, true} {
				row, name := rowWith(set, len(rows))
				row.Hot = hot
				rows = append(rows, row)
				names[row.ID] = fmt.Sprintf("%s: %s, hot %t", call, name, hot)
			}
		}
	}
	add("alone")
	places := make([]core.Inserted, 0, 2*len(rows))
	for _, row := range rows {
		places = append(places, f.commit(row)...)
	}
	alone := len(rows)
	add("in one call")
	places = append(places, f.commit(rows[alone:]...)...)

	want, at := map[core.RowID]core.NewRow{}, map[core.RowID]core.Inserted{}
	var held []core.ClaimRef
	var dead []core.Failure
	var cold []core.NewRow
	for i, row := range rows {
		want[row.ID], at[row.ID] = row, places[i]
		f.must((places[i].KeySeq > 0) == !row.KeyID.IsZero() && places[i].Opened == !row.KeyID.IsZero(),
			"%s: placed at %+v", names[row.ID], places[i])
		switch {
		case !row.Hot && row.Event.Delay == 0:
			cold = append(cold, row)
		case row.Hot && row.Event.Delay == 0:
			held = append(held, hotRef(row))
		case row.Hot: // no claim returns a delayed row, but the list of dead ones does
			dead = append(dead, core.Failure{ClaimRef: hotRef(row), Kind: core.FailDead, Code: "c"})
		}
	}
	compare := func(what string, id core.RowID, got core.Event, seq int64) {
		f.Helper()
		if diff := diffEvent(got, want[id].Event); diff != "" {
			f.Errorf("%s: %s with %s", names[id], what, diff)
		}
		if seq != at[id].KeySeq {
			f.Errorf("%s: %s at %d, want %d", names[id], what, seq, at[id].KeySeq)
		}
	}
	req := request(nodeB)
	check := func(what string, want []core.RowID) {
		f.Helper()
		got := f.claimAny(req)
		for _, c := range got {
			if !slices.Contains(want, c.ID) {
				f.Fatalf("%s: %s was claimed", names[c.ID], what)
			}
			compare("claimed", c.ID, c.Event, c.KeySeq)
		}
		f.must(len(got) == len(want), "%s: claimed %d rows, want %d", what, len(got), len(want))
	}
	check("what is neither hot nor delayed is free", newIDs(cold))
	f.must(!slices.Contains(f.renew(nodeA, longLease, held...), false), "the writer does not hold all its hot rows")
	f.must(f.release(nodeA, held...) == len(held), "not all hot rows were released")
	free := make([]core.RowID, len(held))
	for i := range held {
		free[i] = held[i].ID
	}
	check("what was hot and is not delayed is free", free)
	f.must(!slices.Contains(f.fail(nodeA, dead...), false), "the writer does not hold all its hot and delayed rows")
	listed := f.dead()
	f.must(len(listed) == len(dead), "%d dead rows are listed, want %d", len(listed), len(dead))
	for _, d := range listed {
		compare("listed", d.ID, d.Event, d.KeySeq)
	}
}

// redriveFields appends copies of events that lack some of their optional fields.
func redriveFields(f *fixture) {
	var rows []core.NewRow
	var dead []core.Failure
	names := map[string]string{}
	for _, set := range fieldSets(12) {
		row, name := rowWith(set, len(rows))
		if row.Event.Delay = 0; row.KeyID.IsZero() {
			continue
		}
		rows = append(rows, row)
		names[row.Event.ID] = name
		dead = append(dead, core.Failure{ClaimRef: hotRef(row), Kind: core.FailDead, Code: "c"})
	}
	want, at := map[string]core.Event{}, map[string]core.Inserted{}
	for i, place := range f.commit(hot(rows...)...) {
		e := rows[i].Event
		headers := map[string]string{core.HeaderFirstKeySeq: strconv.FormatInt(place.KeySeq, 10)}
		maps.Copy(headers, e.Headers)
		e.Headers = headers
		want[e.ID], at[e.ID] = e, place
	}
	f.fail(nodeA, dead...)
	req := adminOf(newIDs(rows)...)
	req.SkipDead = true
	f.must(f.redrive(req) == len(rows), "not all redriven")
	claim := request(nodeB)
	claim.SkipDead = true
	got := f.heads(claim)
	f.must(len(got) == len(rows), "claimed %d copies of %d events", len(got), len(rows))
	for _, c := range got {
		if diff := diffEvent(c.Event, want[c.Event.ID]); diff != "" {
			f.Errorf("%s: copied with %s", names[c.Event.ID], diff)
		}
		if c.KeySeq != at[c.Event.ID].KeySeq+1 {
			f.Errorf("%s: copied to %d, behind %d", names[c.Event.ID], c.KeySeq, at[c.Event.ID].KeySeq)
		}
	}
}
