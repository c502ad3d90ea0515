package walrelay_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// Committed events arrive once each, in the order of their keys, and again after a restart only the
// new ones do. Nothing is written to their rows.
func TestStream(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		stop := w.run(w.config())
		var want []string
		for i := range 20 {
			want = append(want, w.service.Publish(event("a", i), event("b", i), event("", i))...)
		}
		w.await(len(want))
		stop()
		want = append(want, w.publish("a", 20, 29)...)
		w.run(w.config())
		w.await(len(want))
		got := []string{}
		for _, d := range w.pub.Accepted() {
			got = append(got, d.ID)
		}
		fixture.Must(t, slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))),
			"%d copies of %d events", len(got), len(want))
		for i, text := range w.copies("a") {
			if text != fmt.Sprint(i) {
				t.Fatalf("key a: %v", w.copies("a"))
			}
		}
		for _, row := range w.service.Rows() {
			fixture.Must(t, row.Status == fixture.StatusDone && row.Holder == core.LogReader,
				"a row was changed: %+v", row)
		}
	})
}

// A publisher gets the same from the log as from the table.
func TestSameDelivery(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		all := deliveries()
		for _, e := range all {
			w.service.Publish(e)
		}
		stop := w.run(w.config())
		w.await(len(all))
		stop()
		byLog := map[string]core.Delivery{}
		for _, d := range w.pub.Accepted() {
			byLog[d.ID] = d
		}
		// A relay of the table gets the same rows.
		fixture.MustExec(t, w.service.Pool, "UPDATE outbox_event SET status = 0, claimed_by = NULL, done_at = NULL")
		table := fixture.JoinProcess(t, w.db, w.pub, core.Config{Relay: relay.Config{DisableJanitor: true}})
		table.Run()
		w.await(2 * len(all))
		for _, d := range w.pub.Accepted()[len(all):] {
			if got := byLog[d.ID]; !reflect.DeepEqual(got, d) {
				t.Errorf("from the log\n%+v, from the table\n%+v", got, d)
			}
		}
	})
}

// A refused event waits in the table, and the later ones of its key behind it. The others go on.
// When it is redriven, they follow in their order, and the key is read from the log again.
func TestSpill(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		w.refuse("a", 3)
		relay := w.relay(w.config())
		stop := fixture.RunRelay(w, relay)
		w.publish("a", 1, 5)
		w.publish("b", 1, 5)
		fixture.Await(t, "three events of a key are in the table", func() bool {
			s := w.service.Statuses()
			return s[fixture.StatusDead] == 1 && s[fixture.StatusNew] == 2
		})
		w.await(2 + 5)
		fixture.Check(t, fixture.Count(t, w.service.Pool, "SELECT count(*) FROM outbox_event WHERE "+
			"causation_id = 'cause of a' AND status IN (0, 3)") == 3, "spilled events have lost their cause")
		stop() // the spilled events stay in the table
		relay = w.relay(w.config())
		fixture.RunRelay(w, relay)
		w.publish("a", 6, 6)
		fixture.Await(t, "a later event is in the table", func() bool {
			return w.service.Statuses()[fixture.StatusNew] == 3
		})
		w.pub.FailFor(nil)
		dead, err := relay.Outbox().ListDead(t.Context(), core.DeadQuery{})
		fixture.NoError(t, err)
		fixture.Must(t, len(dead) == 1 && dead[0].Attempts == 1 && dead[0].Error != "", "dead: %+v", dead)
		n, err := relay.Outbox().Redrive(t.Context(), core.AdminRequest{
			IDs: []core.RowID{dead[0].ID}, Actor: "ann", Reason: "repaired",
		})
		if err != nil || n != 1 {
			t.Fatal(n, err)
		}
		w.await(5 + 6)
		w.publish("a", 7, 7)
		w.await(5 + 7)
		if got := w.copies("a"); !slices.Equal(got, []string{"1", "2", "3", "4", "5", "6", "7"}) {
			t.Errorf("key a: %v", got)
		}
	})
}

func deliveries() []core.Event {
	big := make([]byte, 300_000)
	for i := range big {
		big[i] = byte(i * 7)
	}
	all := []core.Event{
		{
			AggregateType: "order", AggregateID: "7", AggregateVersion: 3, TenantID: "acme", SchemaVersion: 2,
			ContentType: "application/json; charset=utf-8", Payload: []byte(`{"a": [1, 2.50, "ü"],  "b":null}`),
			Headers: map[string]string{
				"traceparent": "00-0af7", core.HeaderCausationID: "c", "empty": "",
				"quotes": `" ' \ {"json":"<&>"}`, "u": "世界",
			},
		},
		{Payload: []byte("p")},
		{Payload: []byte{}, Key: "k"},
		{Payload: big, Key: "k"}, // PostgreSQL stores this payload outside of the row
		{ID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Payload: []byte("p")},
		{Key: "ключ/🔑", Unordered: true, Payload: []byte("p")},
	}
	for i := range all {
		all[i].Type, all[i].Topic = "order.placed", "orders"
	}
	return all
}
