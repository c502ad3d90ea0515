package suite

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func insertCases() []repositoryCase {
	return []repositoryCase{
		{"every field comes back", insertRoundTrip},
		{"fields that an event lacks stay away", insertFields},
		{"texts that differ only in case, blanks or accents stay apart", insertDistinctTexts},
		{"nothing to insert", insertNothing},
		{"a rollback leaves nothing", insertRollback},
		{"a row is invisible until its commit", insertInvisible},
		{"a cold row is claimable at once", insertCold},
		{"a hot row is leased to its writer", insertHot},
		{"a hot row is free when its lease ends", insertHotExpires},
		{"a delayed row waits", insertDelay},
		{"many rows in one call", insertMany},
		{"rows with large payloads in one call", insertLarge},
		{"rows with payloads of a few bytes in one call", insertShort},
	}
}

// roundTripEvents are events at the limits of the values that core accepts.
func roundTripEvents() map[string]core.Event {
	allBytes := make([]byte, 256)
	for i := range allBytes {
		allBytes[i] = byte(i)
	}
	fill := func(n int) string { return strings.Repeat("x", n) }
	full := core.Event{
		AggregateType: "order", AggregateID: "ord-42", AggregateVersion: 7, TenantID: "acme", SchemaVersion: 3,
		Key: "order/ord-42", ContentType: "application/json; charset=utf-8", Payload: []byte(`{"a":[1,2,3]}`),
		Headers: map[string]string{
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Empty": "",
			"AZaz09!#$%&'*+-.^_`|~": `quotes " ' and \ backslash, {"json":"<&>"}, %s %d ?`, "unicode": "grüße 世界 🌍",
		},
	}
	return map[string]core.Event{
		"full":          full,
		"minimal":       {},
		"empty payload": {Payload: []byte{}, Key: "k"},
		"all bytes":     {Payload: allBytes},
		"not UTF-8":     {Payload: []byte{0xff, 0xfe, 0x00, 0xc3, 0x28}, ContentType: "application/octet-stream"},
		"one MiB":       {Payload: bytes.Repeat([]byte{0x00, 0x27, 0x5c, 0xff}, 1<<18)},
		"a ULID":        {ID: "01ARZ3NDEKTSV4RRFFQ69G5FAV"},
		"a random UUID": {ID: "f47ac10b-58cc-4372-a567-0e02b2c3d479"},
		"smallest UUID": {ID: "00000000-0000-0000-0000-000000000000"},
		"largest UUID":  {ID: "ffffffff-ffff-ffff-ffff-ffffffffffff"},
		"unicode": {
			Type: "größe.geändert🌍", AggregateType: "größe", AggregateID: "世界", TenantID: "Ää",
			Topic: "тема.🌍", Key: "ключ/🔑",
		},
		"hostile": {
			Type: `'; DROP TABLE x; --`, Topic: "a`b\"c'd\\e%_?$1:x", Key: `'"\%_`, TenantID: `\`,
			AggregateID: "{}[]",
		},
		"surrounding": {Topic: " topic ", Key: " key ", TenantID: " t ", AggregateID: " id "},
		"limits": {
			Type: fill(128), AggregateType: fill(64), AggregateID: fill(128), TenantID: fill(64),
			Topic: fill(249), Key: fill(255), ContentType: fill(127), AggregateVersion: math.MaxInt64,
			SchemaVersion: math.MaxInt32,
		},
		"unicode limits": {
			Type: strings.Repeat("é", 64), Topic: strings.Repeat("🌍", 62),
			Key: strings.Repeat("世", 85),
		},
		"microseconds":     {OccurredAt: time.Date(2024, 2, 29, 23, 59, 59, 999999000, time.UTC)},
		"summer time":      {OccurredAt: time.Date(2024, 3, 31, 2, 30, 0, 1000, time.UTC)},
		"before the epoch": {OccurredAt: time.Date(1969, 12, 31, 23, 59, 59, 123456000, time.UTC)},
		"first year":       {OccurredAt: time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC)},
		"last year":        {OccurredAt: time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)},
		"keyed, unordered": {Key: "partition", Unordered: true},
		"many headers":     {Headers: manyHeaders()},
	}
}

// manyHeaders returns as many headers as an event may have, with nearly the largest allowed size.
func manyHeaders() map[string]string {
	h := map[string]string{}
	for i := range 64 {
		h[fmt.Sprintf("x-header-%02d", i)] = strings.Repeat("v", 240)
	}
	return h
}

func insertRoundTrip(f *fixture) {
	want := map[core.RowID]core.NewRow{}
	names := map[core.RowID]string{}
	for name, e := range roundTripEvents() {
		if e.ID == "" {
			e.ID = core.NewEventID()
		}
		if e.Type == "" {
			e.Type = "t"
		}
		if e.Topic == "" {
			e.Topic = "topic"
		}
		if e.OccurredAt.IsZero() {
			e.OccurredAt = time.Now().UTC().Truncate(time.Microsecond)
		}
		if e.Payload == nil {
			e.Payload = []byte("p")
		}
		n := rowOf(e)
		want[n.ID], names[n.ID] = n, name
		place := f.commit(n)[0]
		f.must((place.KeySeq > 0) == !n.KeyID.IsZero(), "%s: key_seq %d", name, place.KeySeq)
	}
	claimed := f.claimAny(request(nodeA))
	f.must(len(claimed) == len(want), "claimed %d rows, want %d", len(claimed), len(want))
	var failures []core.Failure
	for _, c := range claimed {
		if diff := diffEvent(c.Event, want[c.ID].Event); diff != "" {
			f.Errorf("%s: claimed with %s", names[c.ID], diff)
		}
		if c.KeyID != want[c.ID].KeyID || !c.ReplayOf.IsZero() || c.Attempts != 0 || c.LostClaims != 0 {
			f.Errorf("%s: claimed as %+v", names[c.ID], c)
		}
		if c.Age < 0 || c.Age > time.Minute {
			f.Errorf("%s: age %s", names[c.ID], c.Age)
		}
		failures = append(failures, core.Failure{ClaimRef: ref(c), Kind: core.FailDead, Code: "c", Message: "m"})
	}
	f.fail(nodeA, failures...)
	for _, d := range f.dead() {
		if diff := diffEvent(d.Event, want[d.ID].Event); diff != "" {
			f.Errorf("%s: listed with %s", names[d.ID], diff)
		}
	}
}

func insertDistinctTexts(f *fixture) {
	texts := []string{"a", "A", "a ", " a", "ä", "a\u0308", "á", "ａ"}
	var rows []core.NewRow
	for _, s := range texts {
		rows = append(rows, newRow(s, s), newRow(s, ""))
	}
	for _, place := range f.commit(rows...) {
		f.must(place.KeySeq == 0 || place.Opened, "two keys share a key id: %+v", place)
	}
	for i, s := range texts {
		req := request(nodeA)
		req.Only = []string{s}
		f.wantSet(f.claimAny(req), rows[2*i], rows[2*i+1])
	}
}

func insertNothing(f *fixture) {
	tx := f.begin()
	places, err := f.Repository.Insert(f.Context(), tx,
		core.InsertRequest{Node: nodeA, ClaimNo: hotNo, Lease: longLease})
	f.check(err)
	f.must(len(places) == 0, "%d places", len(places))
	f.check(tx.Commit())
	f.none("empty table")
}

func insertRollback(f *fixture) {
	ordered, plain := newRow("topic", "k"), newRow("topic", "")
	tx := f.begin()
	f.insertIn(tx, ordered, plain)
	f.check(tx.Rollback())
	f.none("rolled back")
	b, err := f.Repository.Backlog(f.Context(), 10)
	f.check(err)
	f.must(b.Pending == 0, "backlog %+v", b)
	places := f.commit(ordered, plain) // their ids are not in use
	f.must(places[0].Opened && places[0].Prev.IsZero(), "the key of a rolled back row was not opened anew: %+v",
		places[0])
	f.wantSet(f.claimAny(request(nodeA)), ordered, plain)
}

func insertInvisible(f *fixture) {
	rows := []core.NewRow{newRow("topic", "k"), newRow("topic", "")}
	tx := f.begin()
	f.insertIn(tx, rows...)
	if !f.SingleWriter {
		f.none("not committed")
		b, err := f.Repository.Backlog(f.Context(), 10)
		f.check(err)
		f.must(b.Pending == 0, "backlog %+v", b)
		f.must(f.done(false, newIDs(rows)...) == 0, "marked a row that is not committed")
	}
	f.check(tx.Commit())
	f.wantSet(f.claimAny(request(nodeA)), rows...)
}

func insertCold(f *fixture) {
	row := newRow("topic", "")
	f.commit(row)
	c := f.one(nodeB)
	f.must(c.ID == row.ID && c.LostClaims == 0, "claimed %+v", c)
}

func insertHot(f *fixture) {
	rows := hot(newRow("topic", ""), newRow("topic", "k"), newRow("topic", ""), newRow("topic", "other"))
	f.commit(rows[:2]...)
	f.commit(rows[2]) // one row may have a statement of its own
	f.commit(rows[3])
	f.none("leased to their writer")
	for _, r := range rows {
		own := hotRef(r)
		f.must(f.renew(nodeA, longLease, own)[0], "the writer does not hold its hot row")
		f.must(!f.renew(nodeB, longLease, own)[0], "another node holds a hot row")
		f.must(!f.renew(nodeA, longLease, core.ClaimRef{ID: r.ID, ClaimNo: newClaimNo()})[0],
			"any number of the writer holds its hot row")
	}
}

func insertHotExpires(f *fixture) {
	row := hot(newRow("topic", ""))[0]
	start := time.Now()
	f.commitLeased(shortLease, row)
	var got []core.Claimed
	f.eventually("the lease ends", func() bool {
		got = f.claim(request(nodeB))
		return len(got) > 0
	})
	f.after(start, shortLease, "claimed")
	f.must(got[0].LostClaims == 1, "claimed %+v, want one lost claim", got[0])
}

func insertDelay(f *fixture) {
	row := newRow("topic", "")
	row.Event.Delay = 2 * shortLease
	far := newRow("topic", "")
	far.Event.Delay = 10 * 365 * 24 * time.Hour
	start := time.Now()
	f.commit(row, far)
	var got []core.Claimed
	f.eventually("the delay ends", func() bool {
		got = f.claim(request(nodeA))
		return len(got) > 0
	})
	f.after(start, row.Event.Delay, "claimed")
	f.wantIDs(got, row)
}

func insertMany(f *fixture) {
	const n = 1200 // more than one statement can take on some databases
	rows := newRows(n, "topic", "")
	for i := range 300 {
		rows = append(rows, newRow("topic", fmt.Sprint("key", i)))
	}
	places := f.commit(rows...)
	for i, p := range places {
		f.must(p.Opened == (i >= n), "place %d: %+v", i, p)
	}
	req := request(nodeA)
	req.Limit = 2000
	f.wantSet(f.claimAny(req), rows...)
}

// insertShort inserts pairs of payloads that begin a character of UTF-8 and do not end it. A server
// that counts characters finds none.
func insertShort(f *fixture) {
	want := map[core.RowID][]byte{}
	for _, rest := range [][]byte{nil, {'Y'}, {1, 2}} {
		for first := 0xbf; first <= 0xff; first++ {
			rows := newRows(2, "topic", "")
			for i := range rows {
				rows[i].Event.Payload = append([]byte{byte(first)}, rest...)
				want[rows[i].ID] = rows[i].Event.Payload
			}
			f.commit(rows...)
		}
	}
	req := request(nodeA)
	req.Limit = 2 * len(want)
	claimed := f.claimAny(req)
	f.must(len(claimed) == len(want), "claimed %d rows, want %d", len(claimed), len(want))
	for _, c := range claimed {
		if !bytes.Equal(c.Event.Payload, want[c.ID]) {
			f.Errorf("payload %x, want %x", c.Event.Payload, want[c.ID])
		}
	}
}

func insertLarge(f *fixture) {
	rows := newRows(6, "topic", "")
	for i := range rows {
		rows[i].Event.Payload = bytes.Repeat([]byte{byte(i)}, 1<<20)
	}
	f.within(func(ctx context.Context) error {
		tx := f.begin()
		if _, err := f.Repository.Insert(ctx, tx, core.InsertRequest{
			Node: nodeA, ClaimNo: hotNo, Lease: longLease,
			Rows: rows,
		}); err != nil {
			return err
		}
		return tx.Commit()
	})
	for _, c := range f.claim(request(nodeA)) {
		f.must(len(c.Event.Payload) == 1<<20, "payload of %d bytes", len(c.Event.Payload))
	}
}
