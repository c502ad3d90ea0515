package docs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// quoteAccepted: the accepted quote has one event, which is in the topic as it is in the table. The
// quote that was rolled back has none.
func (r *storyReader) quoteAccepted() {
	r.want(r.quotes, "SELECT id, status, accepted_at IS NOT NULL FROM quote ORDER BY id", "Q-1 accepted true",
		"Q-2 draft false")
	r.want(r.quotes, "SELECT event_type, aggregate_id, tenant_id, schema_version, status FROM outbox_event",
		"QuoteAccepted Q-1 acme 1 1")
	if copies := r.copies(quoteEvents); len(copies) != 1 {
		r.Fatalf("copies %v, want one event", copies)
	}
	messages := r.topic(quoteEvents)
	m := messages[len(messages)-1] // there is a second copy only if the first was not acknowledged in time
	r.want(r.quotes, "SELECT event_id, receipt, partition_key, convert_from(payload, 'UTF8') FROM outbox_event",
		strings.Join([]string{m.headers[core.HeaderEventID], m.place, m.key, m.value}, " "))
	if m.headers[core.HeaderEventType] != "QuoteAccepted" || m.headers[core.HeaderTenantID] != "acme" {
		r.Errorf("headers %v", m.headers)
	}
	r.want(r.quotes, "SELECT id FROM idempotency_key WHERE scope LIKE '%accept%' ORDER BY id", "key-1", "key-2")
	r.want(r.orders, "SELECT to_regclass('customer_order') IS NULL", "true") // the order service has never run
}

// inbox: the event came three times, and was processed once.
func (r *storyReader) inbox() {
	if got := r.copies(quoteEvents); len(got) != 1 || got[r.event("Q-1")] < 3 {
		r.Errorf("copies %v, want 3 of one event", got)
	}
	r.allRead(quoteGroup, quoteEvents)
	r.want(r.orders, "SELECT consumer, handler, tenant_id, event_id, attempts, processed_at IS NOT NULL "+
		"FROM inbox_seen "+
		"JOIN inbox_handler USING (handler_id)", "order-service quote-events acme "+r.event("Q-1")+" 1 true")
	source := r.one(r.orders, "SELECT source FROM inbox_seen")
	if m := r.topic(quoteEvents)[0]; source != strings.ReplaceAll(m.place, "@", "/") {
		r.Errorf("source %s, want the first copy, %s", source, m.place)
	}
	r.captured("Q-1")
	r.want(r.orders, "SELECT source_quote_id, status, open_lines, customer FROM customer_order",
		"Q-1 captured 2 ada@example.com")
}

// command: the second call changed nothing.
func (r *storyReader) command() {
	r.want(r.orders, "SELECT scope, tenant, id, status, convert_from(result, 'UTF8') FROM idempotency_key",
		`command/CAPTURE_ORDER acme QuoteAccepted:`+r.event("Q-1")+` 2 {"order_id":"`+r.orderOf("Q-1")+`"}`)
	r.inbox()
}

// uniqueQuote: another event about the same quote was processed, and there is one order.
func (r *storyReader) uniqueQuote() {
	copies := r.copies(quoteEvents)
	if len(copies) != 2 {
		r.Errorf("copies %v, want two events", copies)
	}
	for id := range copies {
		r.want(r.orders, "SELECT processed_at IS NOT NULL FROM inbox_seen WHERE event_id = '"+id+"'", "true")
		r.want(r.orders, "SELECT convert_from(result, 'UTF8') FROM idempotency_key WHERE id = 'QuoteAccepted:"+id+"'",
			`{"order_id":"`+r.orderOf("Q-1")+`"}`)
	}
	r.want(r.orders, "SELECT count(*) FROM customer_order", "1")
	r.captured("Q-1")
	r.want(r.orders, "SELECT count(*) FROM inbox_failure", "0")
}

// orderCaptured: the quote knows its order.
func (r *storyReader) orderCaptured() {
	r.want(r.quotes, "SELECT status, order_id FROM quote WHERE id = 'Q-1'", "ordered "+r.orderOf("Q-1"))
	event := r.one(r.orders, "SELECT event_id FROM outbox_event WHERE event_type = 'OrderCaptured'")
	if got := r.copies(orderEvents); len(got) != 1 || got[event] == 0 {
		r.Errorf("copies %v, want %s alone", got, event)
	}
	r.want(r.quotes, "SELECT consumer, handler, event_id, processed_at IS NOT NULL FROM inbox_seen JOIN inbox_handler "+
		"USING (handler_id)", "quote-service order-events "+event+" true")
}

// killed: the order is committed, and the offset of its message is not.
func (r *storyReader) killed() {
	if !strings.Contains(r.page, "signal: killed") {
		r.Error("the service was not killed with SIGKILL")
	}
	r.captured("Q-3")
	for _, m := range r.topic(quoteEvents) {
		if m.headers[core.HeaderEventID] == r.event("Q-3") {
			if n := r.unread(quoteGroup, quoteEvents, m.partition); n < 1 {
				r.Errorf("%d messages are unread, want that of Q-3", n)
			}
		}
	}
	r.want(r.orders, "SELECT processed_at IS NOT NULL FROM inbox_seen WHERE event_id = '"+r.event("Q-3")+"'", "true")
}

// noDuplicate: the message came again, and everything has happened once.
func (r *storyReader) noDuplicate() {
	r.allRead(quoteGroup, quoteEvents)
	r.captured("Q-3")
	r.want(r.orders, "SELECT attempts FROM inbox_seen WHERE event_id = '"+r.event("Q-3")+"'", "1")
	r.want(r.orders, "SELECT source_quote_id FROM customer_order ORDER BY 1", "Q-1", "Q-3")
	r.want(r.quotes, "SELECT id, order_id FROM quote WHERE status = 'ordered' ORDER BY 1", "Q-1 "+r.orderOf("Q-1"),
		"Q-3 "+r.orderOf("Q-3"))
	r.before = r.tables()
}

// tables returns the rows of the order service, without those that its workers change while they
// wait.
func (r *storyReader) tables() string {
	var all []string
	for _, query := range []string{
		"SELECT * FROM customer_order ORDER BY id", "SELECT * FROM order_line ORDER BY id", "SELECT * FROM invoice",
		"SELECT * FROM inbox_seen ORDER BY event_id", "SELECT * FROM idempotency_key ORDER BY id",
		"SELECT id, channel, idempotency_key FROM side_effect_command ORDER BY id",
		"SELECT event_id, topic, payload FROM outbox_event WHERE topic NOT LIKE 'effect.%' ORDER BY id",
	} {
		all = append(all, r.rows(r.orders, query)...)
	}
	return strings.Join(all, "\n")
}

// replay: the events are in the topic once more, and the tables are as before.
func (r *storyReader) replay() {
	var again []string
	for _, m := range r.topic(quoteEvents) {
		if of := m.headers[core.HeaderReplayOf]; of != "" {
			again = append(again, of+" "+m.headers[core.HeaderEventID])
		}
	}
	slices.Sort(again)
	r.want(r.quotes, "SELECT replay_of, event_id FROM outbox_event WHERE replay_of IS NOT NULL AND status = 1 "+
		"ORDER BY 1",
		again...)
	if len(again) != 2 {
		r.Errorf("%d replays, want those of Q-1 and Q-3", len(again))
	}
	r.want(r.quotes, "SELECT state FROM outbox_plan", "done")
	r.want(r.quotes, "SELECT DISTINCT actor FROM outbox_audit", "ada")
	r.allRead(quoteGroup, quoteEvents)
	if now := r.tables(); now != r.before {
		r.Errorf("before the replay:\n%s\nafter it:\n%s", r.before, now)
	}
}

// parked: the event that cannot be read waits for a person, and delays no other event.
func (r *storyReader) parked() {
	r.want(r.orders, "SELECT handler, event_id, event_version, status, attempts, last_error_code FROM inbox_failure",
		"quote-events "+r.event("Q-4")+" 2 4 1 permanent")
	r.want(r.orders, "SELECT count(*) FROM inbox_seen WHERE event_id = '"+r.event("Q-4")+
		"' AND processed_at IS NOT NULL", "0")
	r.want(r.orders, "SELECT source_quote_id FROM customer_order ORDER BY 1", "Q-1", "Q-3", "Q-5")
	r.captured("Q-5")
	r.allRead(quoteGroup, quoteEvents)
	r.poisoned()
}

// poisoned: the poison topic has the message of Q-4 with its payload and the reason.
func (r *storyReader) poisoned() {
	messages := r.topic(orderPoison)
	if len(messages) != 1 {
		r.Fatalf("%d messages in the poison topic", len(messages))
	}
	m := messages[0]
	r.want(r.quotes, "SELECT event_id, convert_from(payload, 'UTF8') FROM outbox_event WHERE aggregate_id = 'Q-4'",
		m.headers[core.HeaderEventID]+" "+m.value)
	if !strings.Contains(m.value, `"quantity":"3 pcs"`) ||
		!strings.Contains(m.headers["reason_poisoned"], "schema_version 2") {
		r.Errorf("%s, headers %v", m.value, m.headers)
	}
}

// brokenSchema: after the repair the event was processed in the usual way.
func (r *storyReader) brokenSchema() {
	r.want(r.orders, "SELECT count(*) FROM inbox_failure", "0")
	r.want(r.orders, "SELECT processed_at IS NOT NULL FROM inbox_seen WHERE event_id = '"+r.event("Q-4")+"'", "true")
	r.captured("Q-4") // the quantities are numbers again
	if n := r.copies(quoteEvents)[r.event("Q-4")]; n < 2 {
		r.Errorf("%d copies of the event of Q-4, want the one that was parked and the one that was released", n)
	}
	r.poisoned()
	r.allRead(quoteGroup, quoteEvents)
	r.want(r.quotes, "SELECT id, order_id FROM quote WHERE id = 'Q-4'", "Q-4 "+r.orderOf("Q-4"))
}

// effects: every effect happened once, and the orders are complete.
func (r *storyReader) effects() {
	r.want(r.orders, "SELECT channel, status, count(*), count(DISTINCT external_ref), "+
		"max(split_part(external_ref, '-', 2)::int) FROM side_effect_command GROUP BY 1, 2 ORDER BY 1",
		"fulfilment 2 8 8 8", "mail 2 4 4 4") // the other side numbers its actions, so it did nothing twice
	r.want(r.orders, "SELECT max(attempts) FROM side_effect_command WHERE channel = 'mail'", "0") // despite the outage
	messages := r.copies(fulfilmentEvents)
	for id, n := range messages {
		if n != 1 {
			r.Errorf("event %s of the fulfilment system is there %d times", id, n)
		}
	}
	if len(messages) != 16 {
		r.Errorf("%d messages of the fulfilment system, want two for each of 8 lines", len(messages))
	}
	r.want(r.orders, "SELECT count(*) FROM inbox_seen JOIN inbox_handler USING (handler_id) WHERE handler = "+
		"'fulfilment-events' AND processed_at IS NOT NULL", "16")
	r.want(r.orders, "SELECT source_quote_id, o.status, open_lines, i.cents, completed_at IS NOT NULL, "+
		"(SELECT count(*) FROM order_line l WHERE l.order_id = o.id AND l.status = 'completed'), "+
		"(SELECT count(*) FROM outbox_event e WHERE e.aggregate_id = o.id AND event_type = 'OrderCompleted') "+
		"FROM customer_order o JOIN invoice i ON i.order_id = o.id ORDER BY 1",
		"Q-1 completed 0 34600 true 2 1", "Q-3 completed 0 34600 true 2 1", "Q-4 completed 0 34600 true 2 1",
		"Q-5 completed 0 34600 true 2 1")
}

// invariants: the tables have the constraints, and no row that these refused.
func (r *storyReader) invariants() {
	r.want(r.orders, "SELECT conname FROM pg_constraint WHERE conrelid IN ('customer_order'::regclass, "+
		"'order_line'::regclass, 'invoice'::regclass) AND contype = 'c' ORDER BY 1",
		"ck_invoice_cents", "ck_line_completed", "ck_line_quantity",
		"ck_line_status", "ck_order_completed", "ck_order_open_lines", "ck_order_status")
	r.want(r.orders, "SELECT indexrelid::regclass::text FROM pg_index WHERE indisunique AND NOT indisprimary AND "+
		"indrelid IN ('customer_order'::regclass, 'order_line'::regclass, 'invoice'::regclass) ORDER BY 1",
		"invoice_order_id_key", "uq_order_line", "uq_order_source_quote")
	r.want(r.quotes, "SELECT conname FROM pg_constraint WHERE conrelid = 'quote'::regclass AND contype = 'c' "+
		"ORDER BY 1",
		"ck_quote_accepted", "ck_quote_ordered", "ck_quote_status")
	for _, row := range []string{
		"uq_order_source_quote (23505)", "ck_order_completed (23514)", "invoice_order_id_key (23505)",
	} {
		if !strings.Contains(r.page, row) {
			r.Errorf("%s is not shown", row)
		}
	}
	r.want(r.orders, "SELECT source_quote_id, status, open_lines, (SELECT cents FROM invoice "+
		"WHERE order_id = o.id) FROM "+
		"customer_order o ORDER BY 1", "Q-1 completed 0 34600", "Q-3 completed 0 34600", "Q-4 completed 0 34600",
		"Q-5 completed 0 34600", "Q-6 completed 0 34600")
	// Eleven requests were carried out, and one of them changed the quote.
	r.want(r.quotes, "SELECT count(*) FROM idempotency_key WHERE id LIKE 'Q-6, request %' OR id = 'once more'", "11")
	r.want(r.quotes, "SELECT event_id FROM outbox_event WHERE aggregate_id = 'Q-6'", r.event("Q-6"))
	r.captured("Q-6")
	r.want(r.quotes, "SELECT status, order_id FROM quote WHERE id = 'Q-6'", "ordered "+r.orderOf("Q-6"))
}

// latency: every quote of the rush became an order, and the printed times are those of the tables.
func (r *storyReader) latency() {
	r.want(r.quotes, "SELECT status, count(*) FROM quote WHERE id LIKE 'R-%' GROUP BY 1", "ordered 100")
	r.want(r.orders, "SELECT status, count(*), count(DISTINCT source_quote_id), sum(open_lines) FROM customer_order "+
		"WHERE source_quote_id LIKE 'R-%' GROUP BY 1", "completed 100 100 0")
	r.want(r.orders, "SELECT count(*) FROM invoice", "105")
	r.want(r.orders, "SELECT channel, status, count(*) FROM side_effect_command GROUP BY 1, 2 ORDER BY 1",
		"fulfilment 2 210", "mail 2 105")
	r.want(r.orders, "SELECT event_type, count(*) FROM outbox_event WHERE topic NOT LIKE 'effect.%' GROUP BY 1 "+
		"ORDER BY 1",
		"OrderCaptured 105", "OrderCompleted 105")

	// This process has also captured.
	if !strings.Contains(strings.Join(strings.Fields(r.page), " "), "measured 102 captured orders") {
		r.Error("the histogram of the order service has not every order")
	}

	waits := map[string][]string{
		"order captured": r.rows(r.orders, "SELECT extract(epoch FROM captured_at - quote_accepted_at) "+
			"FROM customer_order "+
			"WHERE source_quote_id LIKE 'R-%'"),
		"order completed": r.rows(r.orders, "SELECT extract(epoch FROM completed_at - quote_accepted_at) FROM "+
			"customer_order WHERE source_quote_id LIKE 'R-%'"),
		"notification sent": r.rows(r.orders, "SELECT extract(epoch FROM e.done_at - o.quote_accepted_at) FROM "+
			"side_effect_command e "+
			"JOIN customer_order o ON idempotency_key = 'OrderCaptured:' || o.id || ':ada@example.com' "+
			"WHERE source_quote_id LIKE 'R-%'"),
	}
	for until, rows := range waits {
		var ms []float64
		for _, row := range rows {
			s, err := strconv.ParseFloat(row, 64)
			if err != nil || s <= 0 {
				r.Fatalf("%s after %q s: %v", until, row, err)
			}
			ms = append(ms, 1000*s)
		}
		slices.Sort(ms)
		// PostgreSQL interpolates between the two values around a percentile.
		p := func(q float64) float64 {
			at := q * float64(len(ms)-1)
			below := int(at)
			return ms[below] + (at-float64(below))*(ms[min(below+1, len(ms)-1)]-ms[below])
		}
		var n int
		var p50, p99 float64
		_, row, found := strings.Cut(r.page, "quote accepted  "+until)
		if _, err := fmt.Sscan(row, &n, &p50, &p99); err != nil || !found || n != 100 {
			r.Fatalf("%s is printed as %q: %v", until, row, err)
		}
		if difference := max(p50-p(.5), p(.5)-p50, p99-p(.99), p(.99)-p99); difference > 0.11 {
			r.Errorf("%s: printed %v and %v ms, the table has %v and %v", until, p50, p99, p(.5), p(.99))
		}
	}
}
