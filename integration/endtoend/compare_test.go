package endtoend_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// outcome has the figures of a comparison, for the log.
type outcome struct{ events, copies, redeliveries, duplicates int }

// compare compares the record of the business with the table, and both with the arrived messages.
// restarts is how often the broker was killed. Without a kill there is no second copy, and no
// consumer gets a message twice.
func (c *e2eCell) compare(restarts int) {
	c.t.Helper()
	told := c.told()
	rows := c.compareTable(told)
	if c.t.Failed() {
		return
	}
	var found outcome
	found.events = len(told)
	copies := c.copies(&found)
	c.compareArrivals(told, rows, copies, restarts, &found)
	c.compareOrder(rows, copies)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	c.t.Logf("%d events in %d transactions (%d rolled back, %d savepoints undone, %d repeated for a deadlock); %d "+
		"copies, %d duplicates, %d deliveries repeated by the broker; "+
		"%d publishes failed: %v", found.events, c.total.committed, c.total.rolledBack, c.total.savepoints,
		c.total.repeated, found.copies, found.duplicates, found.redeliveries, c.ledger.refused, c.ledger.first)
	fixture.Check(c.t, c.total.rolledBack != 0 && c.total.savepoints != 0 && found.events >= 100,
		"too little happened, so the test proves nothing")
}

// compareTable returns the rows by row id.
func (c *e2eCell) compareTable(told map[string]e2eTold) map[core.RowID]outboxRow {
	c.t.Helper()
	rows := map[core.RowID]outboxRow{}
	lanes := map[core.KeyID][]outboxRow{}
	for _, r := range c.outbox() {
		id, err := core.NewRowID(r.told.EventID, r.topic)
		fixture.NoError(c.t, err)
		rows[id] = r
		want, ok := told[r.told.EventID]
		switch {
		case !ok:
			c.t.Errorf("row of event %s: no transaction wrote it", r.told.EventID)
		case !sameTold(want, r.told) || !maps.Equal(headersOf(c.t, want.Headers), headersOf(c.t, r.told.Headers)):
			c.t.Errorf("row of event %s: %+v, want %+v", r.told.EventID, r.told, want)
		case r.status != fixture.StatusDone || r.attempts != 0 || r.topic != c.topic:
			c.t.Errorf("row of event %s: status %d, attempts %d, error %q", r.told.EventID, r.status, r.attempts,
				r.errorText)
		}
		if r.keySeq != 0 {
			lane := core.NewKeyID(r.told.Tenant, r.topic, r.told.Key)
			lanes[lane] = append(lanes[lane], r)
		}
	}
	fixture.Check(c.t, len(rows) == len(told), "%d rows of %d events", len(rows), len(told))
	for _, lane := range lanes { // numbers are dense and follow the order in which the business committed
		slices.SortFunc(lane, func(a, b outboxRow) int { return cmp.Compare(a.keySeq, b.keySeq) })
		for i, r := range lane {
			if r.keySeq != lane[0].keySeq+int64(i) || r.told.Version != int64(i+1) {
				c.t.Errorf("key %q of %q: number %d after %d, version %d at place %d", r.told.Key, r.told.Tenant,
					r.keySeq, lane[max(i-1, 0)].keySeq, r.told.Version, i+1)
			}
		}
	}
	return rows
}

func sameTold(a, b e2eTold) bool {
	return a.Type == b.Type && a.Tenant == b.Tenant && a.Key == b.Key && a.Ordered == b.Ordered &&
		a.Version == b.Version && bytes.Equal(a.Payload, b.Payload)
}

// copies returns the messages of the broker, in its order. For Kafka that is each offset once, and
// for RabbitMQ each delivery.
func (c *e2eCell) copies(found *outcome) []arrival {
	c.t.Helper()
	c.consumer.mu.Lock()
	defer c.consumer.mu.Unlock()
	for _, err := range c.consumer.strange {
		c.t.Errorf("a message that is none of ours: %v", err)
	}
	arrivals := slices.Clone(c.consumer.arrivals)
	if _, ok := c.broker.(kafkaBroker); ok {
		slices.SortStableFunc(arrivals, func(a, b arrival) int {
			return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
		})
		arrivals = slices.CompactFunc(arrivals,
			func(a, b arrival) bool { return a.partition == b.partition && a.offset == b.offset })
	}
	found.copies, found.redeliveries = len(arrivals), len(c.consumer.arrivals)-len(arrivals)
	return arrivals
}

// compareArrivals checks each copy, field by field, and how many copies of each row there are.
func (c *e2eCell) compareArrivals(told map[string]e2eTold, rows map[core.RowID]outboxRow, copies []arrival,
	restarts int, found *outcome,
) {
	c.t.Helper()
	count := map[core.RowID]int{}
	receipts := map[core.RowID][]string{}
	_, isKafka := c.broker.(kafkaBroker)
	for _, a := range copies {
		d := a.delivery
		r, ok := rows[d.RowID]
		if !ok {
			c.t.Errorf("ghost: event %s, row %s arrived and never committed", d.ID, d.RowID)
			continue
		}
		count[d.RowID]++
		if isKafka {
			a.place = fmt.Sprintf("%s/%d@%d", c.topic, a.partition, a.offset)
		}
		if a.place != "" {
			receipts[d.RowID] = append(receipts[d.RowID], a.place)
		}
		want := told[r.told.EventID]
		got := e2eTold{
			Type: d.Type, Tenant: d.TenantID, Key: d.Key, Ordered: d.KeySeq != 0,
			Version: d.AggregateVersion, Payload: d.Payload,
		}
		headers := maps.Clone(d.Headers)
		if d.ID != r.told.EventID || !sameTold(want, got) || d.KeySeq != r.keySeq ||
			!maps.Equal(headers, headersOf(c.t, want.Headers)) || d.Attempt != 1 {
			c.t.Errorf("arrived %+v\nwith headers %v\nwant %+v, number %d", d, headers, want, r.keySeq)
		}
		fixture.Check(c.t, !isKafka || a.key == want.Key, "Kafka's key %q, want %q", a.key, want.Key)
	}
	for id, r := range rows {
		t := c.ledger.of(id)
		n := count[id]
		most := t.calls // each call can leave a copy
		switch c.broker.(type) {
		case kafkaBroker, redisBroker, webhookBroker:
		case natsBroker:
			most = 1 // this broker recognises copies
		default:
			most += restarts // unacknowledged messages are delivered again
		}
		switch {
		case n == 0:
			c.t.Errorf("lost: event %s (%d calls, %d acknowledged)", r.told.EventID, t.calls, t.acks)
		case n < t.acks || n > most || t.acks != 1:
			c.t.Errorf("event %s: %d copies after %d calls of which %d were acknowledged", r.told.EventID, n, t.calls,
				t.acks)
		case receipts[id] != nil && (r.receipt != t.receipt || !slices.Contains(receipts[id], r.receipt)):
			c.t.Errorf("event %s: receipt %q, acknowledged %q, found at %v", r.told.EventID, r.receipt, t.receipt,
				receipts[id])
		}
		found.duplicates += max(n-1, 0)
	}
	fixture.Check(c.t, restarts != 0 || found.duplicates+found.redeliveries == 0,
		"%d duplicates and %d redeliveries although nothing failed", found.duplicates, found.redeliveries)
}

// compareOrder checks the first copies of each key, and that a key has one partition.
func (c *e2eCell) compareOrder(rows map[core.RowID]outboxRow, copies []arrival) {
	c.t.Helper()
	last := map[core.KeyID]int64{}
	partition := map[string]int32{}
	seen := map[core.RowID]bool{}
	for _, a := range copies {
		d := a.delivery
		if p, ok := partition[d.Key]; d.Key != "" && ok && p != a.partition {
			c.t.Errorf("key %q is on partitions %d and %d", d.Key, p, a.partition)
		}
		partition[d.Key] = a.partition
		if d.KeySeq == 0 || seen[d.RowID] {
			continue
		}
		seen[d.RowID] = true
		lane := core.NewKeyID(d.TenantID, c.topic, d.Key)
		if want := last[lane] + 1; last[lane] != 0 && d.KeySeq != want {
			c.t.Errorf("key %q of %q: first copy of number %d where %d was due", d.Key, d.TenantID, d.KeySeq, want)
		}
		last[lane] = d.KeySeq
	}
	fixture.Check(c.t, len(last) >= e2eOrders/2, "only %d keys of %d rows", len(last), len(rows))
}
