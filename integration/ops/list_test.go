package ops_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Every filter selects the same rows as a comparison with every row, on pages of every size and in
// both directions. No row comes twice.
func TestListSelects(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		policies := []core.DeadPolicy{core.BlockKey, core.SkipDead}
		if testing.Short() {
			policies = policies[:1]
		}
		for _, policy := range policies {
			w := newWorld(t, db.Another(t), core.Config{DeadPolicy: policy})
			filled := fill(w)
			all := walk(w, ops.ListQuery{Limit: 1000})
			fixture.Must(t, len(all) == filled && len(all) >= 100, "%d of %d events are listed", len(all), filled)
			statuses := map[ops.Status]int{}
			for _, e := range all {
				statuses[e.Status]++
			}
			fixture.Must(t, len(statuses) == 5, "statuses %v, want all five", statuses)
			for _, f := range filters(all) {
				for _, newest := range []bool{false, true} {
					q := ops.ListQuery{Filter: f, Limit: 17, Newest: newest}
					compare(t, all, q, walk(w, q))
				}
				n, err := w.api.Count(t.Context(), f)
				if want := len(matching(all, f)); err != nil || n.N != want || n.More {
					t.Errorf("%+v counts %s, want %d: %v", f, n, want, err)
				}
			}
		}
	})
}

// fill commits events of every status, with and without keys, and returns how many rows there are.
func fill(w *world) int {
	n := 0
	publish := func(events ...core.Event) []string {
		n += len(events)
		return w.Publish(events...)
	}
	for i := range 6 {
		for _, typ := range []string{"paid", "dead.paid", "retry.paid"} {
			for _, tenant := range []string{"", "acme"} {
				topic := fmt.Sprint("orders-", i%3)
				publish(
					core.Event{Type: typ, Topic: topic, TenantID: tenant},
					core.Event{
						Type:      typ,
						Topic:     topic,
						TenantID:  tenant,
						Key:       fmt.Sprint("k", i%2),
						Unordered: i == 5,
					},
					core.Event{
						Type:          typ,
						Topic:         topic,
						TenantID:      tenant,
						AggregateType: "order",
						AggregateID:   fmt.Sprint(i),
						Headers:       map[string]string{core.HeaderCausationID: fmt.Sprint("c", i%2)},
					},
				)
			}
		}
	}
	publish(core.Event{Type: "random", Topic: "orders-0", ID: "F47AC10B-58CC-4372-A567-0E02B2C3D479"},
		core.Event{Type: "random", Topic: "orders-0", ID: "01arz3ndektsv4rrffq69g5fav"})
	w.drain()
	ids := publish(core.Event{Type: "open"}, core.Event{Type: "open", Key: "k0", Topic: "orders-0"},
		core.Event{Type: "open", Delay: time.Hour}, core.Event{Type: "open"})
	_, err := w.Outbox.Discard(w.T.Context(), core.AdminRequest{
		IDs: []core.RowID{w.one(ids[3]).ID}, Actor: "ada", Reason: "a test",
	})
	fixture.NoError(w.T, err)
	return n
}

func filters(all []ops.Event) []ops.Filter {
	var fs []ops.Filter
	sets := [][]ops.Status{
		nil,
		{ops.StatusDead},
		{ops.StatusNew, ops.StatusRetry},
		{ops.StatusRetry},
		{ops.StatusDone},
		{ops.StatusNew, ops.StatusRetry, ops.StatusDead},
		{ops.StatusDead, ops.StatusDiscarded},
	}
	middle := all[len(all)/2].CreatedAt
	var failed ops.Event
	for _, e := range all {
		if e.Status == ops.StatusDead {
			failed = e
		}
	}
	for _, s := range sets {
		fs = append(fs, ops.Filter{Statuses: s},
			ops.Filter{Statuses: s, Topic: "orders-1"},
			ops.Filter{Statuses: s, Topic: "orders-1", TenantID: "acme"},
			ops.Filter{Statuses: s, Type: "dead.paid"},
			ops.Filter{Statuses: s, Topic: "orders-0", Key: "k0"},
			ops.Filter{Statuses: s, Topic: "orders-2", Key: "k1", TenantID: "acme"},
			ops.Filter{Statuses: s, AggregateType: "order", AggregateID: "3"},
			ops.Filter{Statuses: s, CreatedFrom: middle},
			ops.Filter{Statuses: s, CreatedBefore: middle},
			ops.Filter{Statuses: s, CreatedFrom: middle, CreatedBefore: middle.Add(time.Microsecond)},
			ops.Filter{Statuses: s, CreatedBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)},
			ops.Filter{Statuses: s, ErrorCode: "permanent"},
			ops.Filter{Statuses: s, Fingerprint: failed.Fingerprint()},
			ops.Filter{Statuses: s, Type: "nothing"},
			ops.Filter{Statuses: s, Cause: "c1"},
			ops.Filter{Statuses: s, Cause: "c0", Topic: "orders-1", Type: "dead.paid"},
			ops.Filter{Statuses: s, Cause: "C0"},
			ops.Filter{Statuses: s, EventID: failed.EventID})
	}
	return append(fs, ops.Filter{EventID: "f47ac10b-58cc-4372-a567-0e02b2c3d479"},
		ops.Filter{EventID: "01ARZ3NDEKTSV4RRFFQ69G5FAV"})
}

func walk(w *world, q ops.ListQuery) (events []ops.Event) {
	w.T.Helper()
	for {
		page, err := w.api.List(w.T.Context(), q)
		fixture.NoError(w.T, err)
		fixture.Must(w.T, !page.Truncated && len(page.Events) <= q.Limit,
			"%+v has a page of %d, truncated %t", q, len(page.Events), page.Truncated)
		events = append(events, page.Events...)
		if q.After = page.Next; q.After == "" {
			return events
		}
	}
}

func matching(all []ops.Event, f ops.Filter) (ids []string) {
	for i := range all {
		if f.Match(&all[i]) {
			ids = append(ids, all[i].ID.String())
		}
	}
	return ids
}

func compare(t *testing.T, all []ops.Event, q ops.ListQuery, got []ops.Event) {
	t.Helper()
	var ids []string
	for _, e := range got {
		ids = append(ids, e.ID.String())
	}
	slices.Sort(ids)
	if want := matching(all, q.Filter); !slices.Equal(ids, want) {
		t.Errorf("%+v: %d rows, want %d", q, len(ids), len(want))
	}
	last := map[core.KeyID]int64{}
	for _, e := range got { // where the index of keys gives the order, a key is in its order
		if q.Has(ops.StatusDone) || e.KeyID.IsZero() || len(q.Statuses) == 1 {
			continue
		}
		if seq := last[e.KeyID]; seq != 0 && (e.KeySeq < seq) != q.Newest {
			t.Errorf("%+v: number %d of a key comes after %d", q, e.KeySeq, seq)
		}
		last[e.KeyID] = e.KeySeq
	}
}

// The columns of a listed event are those of its row.
func TestListShowsTheRow(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db, core.Config{})
		occurred := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
		ids := w.Publish(
			core.Event{Type: "paid", Topic: "orders", Key: "k", Payload: []byte("one")},
			core.Event{
				Type: "dead.paid", Topic: "orders", TenantID: "", Key: "k", AggregateType: "order", AggregateID: "7",
				AggregateVersion: 9, SchemaVersion: 2, OccurredAt: occurred, Payload: []byte("two"),
				ContentType: "text/plain", Headers: map[string]string{"a": "b"},
			},
			core.Event{Type: "paid", Topic: "orders", Key: "k"})
		before := time.Now()
		w.drain()
		found, err := w.api.Show(t.Context(), ids[1])
		fixture.Must(t, err == nil && len(found) == 1, "%d events: %v", len(found), err)
		d := found[0]
		if near := d.ReadAt.Sub(
			d.CreatedAt,
		); near < 0 || near > time.Minute ||
			d.CreatedAt.Sub(before).Abs() > time.Minute ||
			d.AvailableAt.Sub(d.CreatedAt).Abs() > time.Second {
			t.Errorf("created %s, due %s, read %s", d.CreatedAt, d.AvailableAt, d.ReadAt)
		}
		row := w.Row(ids[1])
		want := ops.Event{
			ID:               d.ID,
			EventID:          ids[1],
			Type:             "dead.paid",
			SchemaVersion:    2,
			Topic:            "orders",
			Key:              "k",
			KeySeq:           d.KeySeq,
			AggregateType:    "order",
			AggregateID:      "7",
			AggregateVersion: 9,
			KeyID:            core.NewKeyID("", "orders", "k"),
			Status:           ops.StatusDead,
			Attempts:         1,
			ClaimedBy:        w.Outbox.Node(),
			Path:             core.PathCold,
			AvailableAt:      d.AvailableAt,
			OccurredAt:       occurred,
			CreatedAt:        d.CreatedAt,
			ErrorCode:        "permanent",
			Error:            `field "k" of event ` + ids[1] + ` is missing in version 3`,
			ErrorGroup:       "ed9de8428304c226",
			ReadAt:           d.ReadAt,
		}
		fixture.Check(t, d.Event == want && row.Status == fixture.StatusDead, "got  %+v\nwant %+v", d.Event, want)
		if c := d.Content; string(c.Payload) != "two" || c.ContentType != "text/plain" || c.Headers["a"] != "b" ||
			c.Damage != "" {
			t.Errorf("content %+v", c)
		}
		if len(d.Ahead) != 0 || len(d.Behind) != 1 || d.Behind[0].EventID != ids[2] { // ids[0] has ended
			t.Errorf("ahead %v, behind %v", d.Ahead, d.Behind)
		}
		if found, err = w.api.Show(t.Context(), w.one(ids[2]).ID.String()); err != nil || len(found) != 1 ||
			len(found[0].Ahead) != 1 || found[0].Ahead[0].EventID != ids[1] || len(found[0].Behind) != 0 {
			t.Errorf("by row id: %+v %v", found, err)
		}
		if found, err = w.api.Show(t.Context(), ids[0]); err != nil || found[0].Receipt != "orders/3@1042" ||
			found[0].DoneAt.IsZero() {
			t.Errorf("the place at the broker: %+v %v", found, err)
		}
		_, err = w.api.Show(t.Context(), core.NewEventID())
		fixture.WantError(t, err, ops.ErrNotFound)
		_, err = w.api.Show(t.Context(), "") // it is not every event
		fixture.WantError(t, err, core.ErrInvalidRequest)
		_, err = w.api.Explain(t.Context(), "")
		fixture.WantError(t, err, core.ErrInvalidRequest)
	})
}

// Calls that make no sense are refused.
func TestListRefuses(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db, core.Config{})
		w.Publish(core.Event{Type: "a"}, core.Event{Type: "a"}, core.Event{Type: "a"})
		page, err := w.api.List(t.Context(), ops.ListQuery{Limit: 1})
		fixture.Must(t, err == nil && page.Next != "", "%+v %v", page, err)
		at := time.Unix(9, 0)
		for name, q := range map[string]ops.ListQuery{
			"a cursor of another filter":    {Filter: ops.Filter{Type: "a"}, After: page.Next},
			"a cursor of another direction": {Newest: true, After: page.Next},
			"a cursor that is none":         {After: "x"},
			"a key without a topic":         {Filter: ops.Filter{Key: "k"}},
			"an id that is none":            {Filter: ops.Filter{EventID: "7"}},
			"a status that is none":         {Filter: ops.Filter{Statuses: []ops.Status{9}}},
			"a time that is empty":          {Filter: ops.Filter{CreatedFrom: at, CreatedBefore: at}},
		} {
			if _, err := w.api.List(t.Context(), q); !errors.Is(err, core.ErrInvalidRequest) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
