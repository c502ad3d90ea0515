package debezium_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// Debezium relays the outbox of a real PostgreSQL to a real Kafka, configured by the files that the
// documentation shows.
func TestDebezium(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	w := newWorld(t)
	t.Run("message", func(t *testing.T) { w.in(t).message() })
	t.Run("other rows", func(t *testing.T) { w.in(t).otherRows() })
	t.Run("replay", func(t *testing.T) { w.in(t).replay() })
	t.Run("inbox", func(t *testing.T) { w.in(t).inbox() })
	t.Run("moved", func(t *testing.T) { w.in(t).moved() })
	t.Run("killed", func(t *testing.T) { w.in(t).killed() })
	t.Run("refused", func(t *testing.T) { w.in(t).refused() })
}

// in returns the world for a subtest.
func (w *world) in(t *testing.T) *world {
	part := *w
	part.T = t
	return &part
}

// events returns the events whose messages are compared.
func events(topic string) map[string]core.Event {
	allBytes := make([]byte, 256)
	for i := range allBytes {
		allBytes[i] = byte(i)
	}
	many := map[string]string{}
	for i := range 64 {
		many[fmt.Sprintf("x-header-%02d", i)] = strings.Repeat("v", 200)
	}
	all := map[string]core.Event{
		"everything": {
			AggregateType: "order", AggregateID: "7", AggregateVersion: 3, TenantID: "acme", SchemaVersion: 2,
			ContentType: "application/json; charset=utf-8", Payload: []byte(`{"a": [1, 2.50, "ü"],  "b":null}`),
			Headers: map[string]string{
				"traceparent": traceparent, "tracestate": "a=b,c=d", "baggage": "user=1", "number": "007",
				"bool": "true", "empty": "", "null": "null",
				"quotes": `" ' \ {"json":"<&>"}`, "unicode": "grüße 世界 🌍", "id": "mine",
			},
		},
		"nothing":        {Payload: []byte("p")},
		"empty payload":  {Payload: []byte{}, Key: "k"},
		"all bytes":      {Payload: allBytes, Key: "k", ContentType: "application/octet-stream"},
		"a number":       {Payload: []byte("1"), Key: "k"},
		"large":          {Payload: bytes.Repeat([]byte{0, 0xff, 'x', '\n'}, 800<<8), Key: "k"},
		"many headers":   {Payload: []byte("p"), Headers: many},
		"a ULID":         {ID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Payload: []byte("p")},
		"unordered":      {Key: "ключ/🔑", Unordered: true, Payload: []byte("p")},
		"the first year": {Payload: []byte("p"), OccurredAt: time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC)},
	}
	for name, e := range all {
		if e.ID == "" {
			e.ID = core.NewEventID()
		}
		if e.OccurredAt.IsZero() {
			e.OccurredAt = time.Date(2026, 2, 28, 23, 59, 59, 120000000, time.UTC)
		}
		e.Type, e.Topic = "order.placed", topic
		all[name] = e
	}
	return all
}

// message compares what Debezium sends with what kafkabridge would send.
func (w *world) message() {
	topic, other := w.topic(), topics.Kafka(w.T, "", partitions, nil)
	all := events(topic)
	var ids []string
	for _, e := range all {
		ids = append(ids, w.service.Publish(e)...)
	}
	bridge := topics.KafkaPublisher(w, kafkabridge.Config{})
	got := w.await(topic, ids...)
	fixture.Check(w, len(got) == len(all), "%d records, want %d", len(got), len(all))
	place := map[string]int32{}
	for _, m := range got {
		for name, e := range all {
			if header(m, core.HeaderEventID) != e.ID {
				continue
			}
			place[name] = m.Partition
			if e.Key == "" && e.AggregateID != "" {
				e.Key = e.AggregateType + "/" + e.AggregateID
			}
			all[name] = e
			w.wantRecord(m, w.delivery(e))
			w.wantRead(m, w.delivery(e))
		}
	}
	for name, e := range all { // compares the partition
		d := w.delivery(e)
		d.Topic = other
		receipt, err := bridge.PublishWithReceipt(w.Context(), d)
		fixture.NoError(w.T, err)
		if want := fmt.Sprintf("%s/%d@", other, place[name]); d.Key != "" && !strings.HasPrefix(receipt, want) {
			w.Errorf("%s: Debezium sends to partition %d, kafkabridge to %s", name, place[name], receipt)
		}
	}

	for _, m := range w.await(w.stock+topic, ids...) { // these messages did not pass our transformation
		for _, e := range all {
			if header(m, core.HeaderEventID) == e.ID {
				w.wantRead(m, w.delivery(e))
			}
		}
		e := all["everything"]
		if header(m, core.HeaderEventID) != e.ID {
			continue
		}
		h, rest := w.headers(m), map[string]string{}
		fixture.NoError(w.T, json.Unmarshal([]byte(h["headers"]), &rest))
		if h["traceparent"] != traceparent || h["tracestate"] != "a=b,c=d" || !maps.Equal(rest, e.Headers) ||
			h[core.HeaderTenantID] != "acme" || !bytes.Equal(m.Value, e.Payload) {
			w.Errorf("without ExpandHeaders: %v", h)
		}
	}
}

// otherRows changes and deletes rows, rolls back, and inserts rows that are not for Debezium. Only
// the events that come after them arrive.
func (w *world) otherRows() {
	topic := w.topic()
	event := func() core.Event {
		return core.Event{ID: core.NewEventID(), Type: "order.placed", Topic: topic, Key: "k", Payload: []byte("p")}
	}
	first := w.service.Publish(event())
	fixture.MustExec(w.T, w.service.Pool, `BEGIN; INSERT INTO outbox_event (id, event_id, event_type, topic,
		payload, status, claimed_by, available_at, occurred_at, created_at, done_at) SELECT gen_random_uuid(), event_id,
		event_type, topic, payload, status, claimed_by, available_at, occurred_at, created_at, done_at
		FROM outbox_event e WHERE topic = '`+topic+`'; ROLLBACK`)
	fixture.MustExec(w.T, w.service.Pool, "UPDATE outbox_event SET receipt = 'x' WHERE topic = '"+topic+"'")
	relayed := w.relay.Publish(event())
	fixture.MustExec(w.T, w.service.Pool, "UPDATE outbox_event SET status = 1, claimed_by = 'log', done_at = now() "+
		"WHERE topic = '"+topic+"' AND status = 0")
	fixture.MustExec(w.T, w.service.Pool, "DELETE FROM outbox_event WHERE topic = '"+topic+"'")
	damaged := map[string]string{} // headers that another program has written
	for _, headers := range []string{`[1]`, `{"a": 1}`, `"text"`, `null`} {
		id := core.NewEventID()
		damaged[id] = headers
		fixture.MustExec(w.T, w.service.Pool, `INSERT INTO outbox_event (id, event_id, event_type, topic, payload,
			headers, status, claimed_by, available_at, occurred_at, created_at, done_at) VALUES (gen_random_uuid(),
			'`+id+`', 't', '`+topic+`', 'p', '`+headers+`', 1, 'log', now(), now(), now(), now())`)
	}
	last := w.service.Publish(event())
	got := w.await(topic, slices.Concat(first, last, slices.Collect(maps.Keys(damaged)))...)
	fixture.Check(w, len(got) == 2+len(damaged), "%d records, want %d", len(got), 2+len(damaged))
	for _, m := range got {
		if headers, is := damaged[header(m, core.HeaderEventID)]; is && header(m, "headers") != headers {
			w.Errorf("headers %s arrive as %q", headers, header(m, "headers"))
		}
		fixture.Check(w, header(m, core.HeaderEventID) != relayed[0], "Debezium has sent an event of a relay")
	}
}

// replay replays an event. Debezium relays the copy too, which says what row it replays.
func (w *world) replay() {
	topic := w.topic()
	e := core.Event{
		ID: core.NewEventID(), Type: "order.placed", Topic: topic, Key: "k", Payload: []byte("p"),
		OccurredAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Headers: map[string]string{"traceparent": traceparent},
	}
	w.service.Publish(e)
	first := w.delivery(e)
	api, err := sqlops.New(w.service.Outbox)
	fixture.NoError(w.T, err)
	plan, err := api.PlanReplay(w.Context(), ops.Filter{}, ops.ReplayOptions{
		DedupWindow: time.Hour, IDs: []core.RowID{first.RowID},
	})
	fixture.NoError(w.T, err)
	stored, err := api.StorePlan(w.Context(), plan, "alice", "a consumer has lost it")
	fixture.NoError(w.T, err)
	done, err := api.RunPlan(w.Context(), stored.ID, ops.RunOptions{Actor: "alice"})
	fixture.NoError(w.T, err)
	fixture.Check(w, done.Changed == 1 && done.Failed == 0, "plan %+v", done)
	var all []*sarama.ConsumerMessage
	fixture.AwaitIn(w, 3*time.Minute, "both copies", func() bool { all = w.read(topic); return len(all) == 2 })
	again := first
	again.RowID, again.ReplayOf = stored.ReplayID(first.RowID), first.RowID
	again.Headers = maps.Clone(e.Headers)
	again.Headers[core.HeaderFirstKeySeq] = fmt.Sprint(first.KeySeq)
	again.KeySeq = w.keySeq(again.RowID)
	w.wantRecord(all[0], first)
	w.wantRecord(all[1], again)
	x, err := api.Explain(w.Context(), first.RowID.String())
	fixture.Check(w, err == nil && strings.Contains(x[0].Text, "Its row does not say"), "explained as %+v, %v", x, err)
}

// inbox consumes one topic, with events that Debezium relays, events that a relay publishes, and
// copies. Each event has its effect once, and its handler gets the trace of its producer.
func (w *world) inbox() {
	topic := w.topic()
	const each, copies = 60, 20
	stop := w.relay.Run()
	defer stop()
	want := map[string]string{} // trace by event
	var twice []core.Event
	for n := range 2 * each {
		e := core.Event{
			ID: core.NewEventID(), Type: "order.placed", Topic: topic, Key: fmt.Sprint(n % 7), Payload: []byte("{}"),
			Headers: map[string]string{"traceparent": fmt.Sprintf("00-%032x-%016x-01", n+1, n+1)},
		}
		want[e.ID] = e.Headers["traceparent"]
		if n%2 == 0 {
			w.service.Publish(e)
			if len(twice) < copies {
				twice = append(twice, e)
			}
			continue
		}
		w.relay.Publish(e)
	}
	bridge := topics.KafkaPublisher(w, kafkabridge.Config{})
	for _, e := range twice { // copies, as kafkabridge sends them
		fixture.NoError(w.T, bridge.Publish(w.Context(), w.delivery(e)))
	}
	c := newConsumer(w)
	c.consume(topic)
	fixture.AwaitIn(w, 3*time.Minute, "each message is handled", func() bool {
		return c.heard() >= int64(len(want)+copies)
	})
	if got := c.effects(); !maps.Equal(got, want) {
		w.Errorf("%d effects, want %d: %v", len(got), len(want), got)
	}
	if c.duplicates.Load() < copies {
		w.Errorf("%d duplicates, want %d", c.duplicates.Load(), copies)
	}
}

// moved moves from Debezium to a relay, and back, as docs/migrating.md says. Each time events wait
// on the old way while the producers are replaced.
func (w *world) moved() {
	topic := w.topic()
	const keys = 5
	sent, n := 0, 0
	publish := func(p *fixture.Process, changes int) {
		for range changes {
			n++
			for key := range keys {
				p.Publish(core.Event{
					Type: "grown", Topic: topic, Key: fmt.Sprint(key), AggregateVersion: int64(n),
					Payload: []byte("{}"),
				})
				sent++
			}
		}
	}
	arrive := func() {
		fixture.AwaitIn(w, 3*time.Minute, "all events arrive", func() bool { return w.events(topic) == sent })
	}
	pause := func() {
		fixture.NoError(w.T, w.relay.Outbox.Pause(w.Context(), core.PauseRequest{
			Topic: topic, Actor: "ada", Reason: "moving",
		}))
	}
	resume := func() {
		_, err := w.relay.Outbox.Resume(w.Context(), core.ResumeRequest{Topic: topic, Actor: "ada", Reason: "moved"})
		fixture.NoError(w.T, err)
	}

	publish(w.service, 3)
	arrive()
	w.connect.kill()
	publish(w.service, 3)
	log := sent
	pause()
	stop := w.relay.Run()
	publish(w.relay, 3)
	var end string
	fixture.NoError(w.T, w.service.Pool.QueryRowContext(w.Context(),
		migrating(w.T, "SELECT pg_current_wal_lsn()", nil)).Scan(&end))
	w.connect.start()
	reached := migrating(w.T, "SELECT confirmed_flush_lsn >= ", map[string]string{
		"0/1A2B3C4": end, "'debezium'": "'outbox_debezium'",
	})
	fixture.AwaitIn(w, 3*time.Minute, "Debezium is at the end of the log", func() bool {
		var yes bool
		fixture.NoError(w.T, w.service.Pool.QueryRowContext(w.Context(), reached).Scan(&yes))
		return yes
	})
	if got := w.events(topic); got != log {
		w.Errorf("%d events have arrived, want %d", got, log)
	}
	resume()
	arrive()

	pause()
	publish(w.relay, 3)
	w.connect.kill()
	publish(w.service, 3)
	resume()
	fixture.Await(w, "the relay has sent its events", func() bool {
		b, err := w.relay.Outbox.Backlog(w.Context())
		fixture.NoError(w.T, err)
		return b.Pending == 0
	})
	stop()
	w.connect.start()
	arrive()
	w.wantVersions(topic, keys, n)
}

// migrating returns the statement of docs/migrating.md that begins with the given text, with values
// of this world.
func migrating(t *testing.T, begin string, values map[string]string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "migrating.md"))
	fixture.NoError(t, err)
	_, rest, found := strings.Cut(string(page), begin)
	fixture.Must(t, found, "docs/migrating.md has no %q", begin)
	rest, _, _ = strings.Cut(rest, ";")
	text := begin + rest
	for from, to := range values {
		fixture.Must(t, strings.Contains(text, from), "%s: no %q", text, from)
		text = strings.Replace(text, from, to, 1)
	}
	return text
}

// events counts the events in a topic, without copies.
func (w *world) events(topic string) int {
	w.Helper()
	ids := map[string]bool{}
	for _, m := range w.read(topic) {
		ids[header(m, core.HeaderEventID)] = true
	}
	return len(ids)
}

// wantVersions requires that each key has its versions 1 to n in one partition, in this order,
// not counting copies.
func (w *world) wantVersions(topic string, keys, n int) {
	w.Helper()
	next, place, seen := map[string]int{}, map[string]int32{}, map[string]bool{}
	for _, m := range w.read(topic) {
		id, key := header(m, core.HeaderEventID), string(m.Key)
		if seen[id] {
			continue
		}
		seen[id] = true
		next[key]++
		if got := header(m, core.HeaderAggregateVersion); got != fmt.Sprint(next[key]) {
			w.Errorf("key %s: version %s at place %d", key, got, next[key])
		}
		if p, known := place[key]; known && p != m.Partition {
			w.Errorf("key %s is in partitions %d and %d", key, p, m.Partition)
		}
		place[key] = m.Partition
	}
	for key := range keys {
		if next[fmt.Sprint(key)] != n {
			w.Errorf("key %d: %d versions, want %d", key, next[fmt.Sprint(key)], n)
		}
	}
}

// killed kills Connect while a service commits. No event is missing, and each key is in its order
// and in one partition. Then the rows are deleted, and Debezium sends nothing for that.
func (w *world) killed() {
	topic := w.topic()
	const keys, batches, kills = 12, 400, 1
	var ids []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range batches {
			events := []core.Event{{Type: "order.placed", Topic: topic, Payload: []byte("{}")}} // without a key
			for key := range keys {
				e := events[0]
				e.Key = fmt.Sprint(key)
				events = append(events, e)
			}
			ids = append(ids, w.service.Publish(events...)...)
			time.Sleep(10 * time.Millisecond) // the pace of the business
		}
	}()
	for range kills {
		before := w.size(topic)
		fixture.Await(w, "Debezium sends", func() bool { return w.size(topic) > before })
		w.connect.kill()
		w.connect.start()
	}
	<-done
	all := w.await(topic, ids...)
	last, place, copies := map[string]int64{}, map[string]int32{}, 0
	seen := map[string]bool{}
	for _, m := range all {
		id, key := header(m, core.HeaderEventID), string(m.Key)
		if seen[id] {
			copies++
			continue
		}
		seen[id] = true
		if key == "" {
			continue
		}
		seq, err := strconv.ParseInt(header(m, core.HeaderKeySeq), 10, 64)
		fixture.NoError(w.T, err)
		if last[key] != 0 && seq != last[key]+1 {
			w.Errorf("key %s: number %d follows %d", key, seq, last[key])
		}
		if p, known := place[key]; known && p != m.Partition {
			w.Errorf("key %s is in partitions %d and %d", key, p, m.Partition)
		}
		last[key], place[key] = seq, m.Partition
	}
	fixture.Check(w, len(seen) == len(ids), "the topic has %d events, the table %d", len(seen), len(ids))
	w.Logf("%d events, %d copies after %d kills", len(ids), copies, kills)
	w.cleanup(topic, ids)
}

// cleanup deletes rows by their age, as Run does. Debezium sends nothing for that, and goes on.
func (w *world) cleanup(topic string, ids []string) {
	if b, err := w.service.Outbox.Backlog(w.Context()); err != nil || b.Pending != 0 || !b.ByLog {
		w.Errorf("backlog %+v, %v", b, err)
	}
	size := w.size(topic)
	janitor := fixture.JoinProcess(w.T, w.db, nil, core.Config{
		RelayedByLog: true,
		Relay: relay.Config{
			Retention: relay.Retention{Keep: time.Millisecond, CleanupInterval: 10 * time.Millisecond},
		},
	})
	stop := janitor.Run()
	fixture.Await(w, "the table is empty", func() bool { return len(janitor.Rows()) == 0 })
	stop()
	ids = append(ids, w.service.Publish(core.Event{Type: "order.placed", Topic: topic, Key: "0"})...)
	w.await(topic, ids...)
	if got := w.size(topic); got != size+1 {
		w.Errorf("the topic has %d records, want %d", got, size+1)
	}
}

// refused publishes an event that is larger than the producer of Connect may send. The task fails,
// and no event is sent any more until the limit is raised.
func (w *world) refused() {
	size := "4194304"
	topic := topics.Kafka(w.T, "", partitions, map[string]*string{"max.message.bytes": &size})
	topics.Kafka(w.T, w.stock+topic, partitions, map[string]*string{"max.message.bytes": &size})
	careless := fixture.JoinProcess(w.T, w.db, nil, core.Config{RelayedByLog: true, MaxPayload: 2 << 20})
	large := core.Event{Type: "order.placed", Topic: topic, Key: "1", Payload: make([]byte, 1<<20)}
	err := w.service.Tx.RunInTx(w.Context(), func(ctx context.Context, tx core.Tx) error {
		_, err := w.service.Outbox.Publish(ctx, tx, large)
		return err
	})
	fixture.Check(w, errors.Is(err, core.ErrInvalidEvent), "a payload as large as the limit of Kafka: %v", err)
	ids := careless.Publish(large)
	small := core.Event{Type: "order.placed", Topic: topic, Key: "2", Payload: []byte("p")}
	ids = append(ids, w.service.Publish(small)...)
	fixture.Await(w, "the task fails", func() bool { return w.connect.state("outbox") == "FAILED" })
	if n := w.size(topic); n != 0 {
		w.Errorf("%d records were sent beside the one that was refused", n)
	}
	w.connect.kill()
	for name, settings := range w.settings {
		settings["producer.override.max.request.size"] = size
		w.connect.write(name+".properties", settings)
	}
	w.connect.start()
	w.await(topic, ids...)
}
