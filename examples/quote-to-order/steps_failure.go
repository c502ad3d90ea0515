package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/orders"
)

const showOfQuote = `SELECT
  (SELECT count(*) FROM customer_order WHERE source_quote_id = $1) AS orders,
  (SELECT count(*) FROM order_line l JOIN customer_order o ON o.id = l.order_id WHERE source_quote_id = $1) AS lines,
  (SELECT count(*) FROM side_effect_command e JOIN customer_order o ON idempotency_key LIKE '%' || o.id || '%'
    WHERE source_quote_id = $1) AS effects,
  (SELECT count(*) FROM outbox_event e JOIN customer_order o ON e.aggregate_id = o.id
    WHERE source_quote_id = $1 AND event_type = 'OrderCaptured') AS order_captured`

// killed: step 6.
func (s *story) killed(ctx context.Context) (err error) {
	if err := s.orders.stop(); err != nil {
		return err
	}
	if s.orders, err = s.start(ctx, "orders", holdVariable+"=yes"); err != nil {
		return err
	}
	if err := s.order(ctx, "Q-3"); err != nil {
		return err
	}
	select {
	case <-s.orders.held:
	case <-time.After(patience):
		return errors.New("the order service got no message")
	case <-ctx.Done():
		return ctx.Err()
	}
	// Events and effects that a process works on when it is killed wait for its lease, 10 s. To be
	// short, the story kills the process when its relay works on none.
	if err := s.rows(ctx, s.ordersDB, 2, "the relay of the order service has nothing to do", `SELECT count(*)
  FROM outbox_event WHERE event_type = 'OrderCaptured' AND status = 1
   AND NOT EXISTS (SELECT 1 FROM outbox_event WHERE lease_until > now() AND status <> 1)
   AND NOT EXISTS (SELECT 1 FROM side_effect_command WHERE lease_until > now())`); err != nil {
		return err
	}
	how, err := s.orders.kill()
	if err != nil {
		return err
	}
	r, _, err := s.acceptedEvent(ctx, "Q-3")
	if err != nil {
		return err
	}
	offset, err := s.cluster.committed(orders.Consumer+"."+orders.HandlerQuotes, contract.QuoteEvents, r.partition)
	if err != nil {
		return err
	}
	s.tell(`Ada accepts Q-3. The order service commits the order, and is killed before the offset is committed (%s).
		The order is there. The group will read partition %d from offset %d on, so the message at %s comes again.`,
		how, r.partition, offset, r.place())
	return s.table(ctx, s.ordersDB, ordersSchema+", of Q-3", showOfQuote, "Q-3")
}

// noDuplicate: step 7.
func (s *story) noDuplicate(ctx context.Context) (err error) {
	if s.orders, err = s.start(ctx, "orders"); err != nil {
		return err
	}
	if err := s.quoteEventsConsumed(ctx); err != nil {
		return err
	}
	duplicates, err := s.duplicates(ctx)
	if err != nil {
		return err
	}
	if err := s.ordered(ctx, "Q-3"); err != nil {
		return err
	}
	s.tell(`The order service starts again. The message comes again, and the inbox knows its id (metric: %v
		duplicate). The offset is committed now. There is one order with two lines, one mail, two requests for
		fulfilment, and one OrderCaptured, which has reached the quote.`, duplicates)
	if err := s.table(ctx, s.ordersDB, ordersSchema+", of Q-3", showOfQuote, "Q-3"); err != nil {
		return err
	}
	return s.table(ctx, s.quotesDB, quotesSchema+".quote", showQuotes)
}

// replay: step 8.
func (s *story) replay(ctx context.Context) error {
	before, err := s.digest(ctx)
	if err != nil {
		return err
	}
	plan, err := s.replayAll(ctx)
	if err != nil {
		return err
	}
	if err := s.quoteEventsConsumed(ctx); err != nil {
		return err
	}
	after, err := s.digest(ctx)
	if err != nil {
		return err
	}
	if before != after {
		return fmt.Errorf("the replay has changed the tables of orders:\nbefore %s\nafter  %s", before, after)
	}
	s.tell(`The person on call publishes all done events of the quote service again, with core/ops: %d of %d are
		published, under their old event ids. The order service knows all of them. Its tables are what they were:
		MD5 %s before, %s after.`, plan.Succeeded, plan.Events, before, after)
	if err := s.table(ctx, s.quotesDB, quotesSchema+".outbox_event", showOutbox); err != nil {
		return err
	}
	return s.topic(ctx, contract.QuoteEvents, "")
}

// digest is a hash of everything that the order service has stored about orders.
func (s *story) digest(ctx context.Context) (sum string, err error) {
	err = s.ordersDB.QueryRowContext(ctx, `SELECT md5(string_agg(row, E'\n')) FROM (
    SELECT o::text AS row FROM customer_order o
    UNION ALL SELECT l::text FROM order_line l
    UNION ALL SELECT i::text FROM invoice i
    UNION ALL SELECT tenant_id || channel || idempotency_key FROM side_effect_command
    UNION ALL SELECT event_id || topic FROM outbox_event WHERE topic NOT LIKE 'effect.%'
    UNION ALL SELECT k.id || k.result::text FROM idempotency_key k
    ORDER BY 1) all_rows`).Scan(&sum)
	return sum, err
}

const showParked = `SELECT handler, '…' || right(event_id, 6) AS event_id, event_version AS version, attempts,
  CASE status WHEN 4 THEN 'DEAD' WHEN 0 THEN 'redriven' ELSE 'status ' || status END AS status, last_error_code AS code,
  source_partition || '@' || source_offset AS place, last_error AS error FROM inbox_failure`

// brokenSchema: step 9.
func (s *story) brokenSchema(ctx context.Context) (err error) {
	// A release of the quote service sends version 2, and is rolled back.
	if err := s.restart(ctx, &s.quotes, "SCHEMA_VERSION=2"); err != nil {
		return err
	}
	if err := s.order(ctx, "Q-4"); err != nil {
		return err
	}
	if err := s.rows(ctx, s.ordersDB, 1, "the event is parked",
		"SELECT count(*) FROM inbox_failure WHERE status = 4"); err != nil {
		return err
	}
	if err := s.restart(ctx, &s.quotes); err != nil {
		return err
	}
	if err := s.order(ctx, "Q-5"); err != nil {
		return err
	}
	if err := s.ordered(ctx, "Q-5"); err != nil {
		return err
	}
	if err := s.quoteEventsConsumed(ctx); err != nil {
		return err
	}
	s.tell(`A new release of the quote service sends QuoteAccepted in version 2: a quantity is text with a unit. The
		order service cannot read the event of Q-4, and no attempt can help. The inbox parks it: the row says why
		and where, the message goes to the poison topic, and the partition goes on. The release is rolled back,
		and Q-5 becomes an order.`)
	if err := s.table(ctx, s.ordersDB, ordersSchema+".inbox_failure", showParked); err != nil {
		return err
	}
	if err := s.topic(ctx, orders.Poison, ""); err != nil {
		return err
	}
	if err := s.table(ctx, s.ordersDB, ordersSchema+".customer_order", showOrders); err != nil {
		return err
	}

	if err := s.wait("step 9, before the repair"); err != nil {
		return err
	}

	// The repair: a release that understands both versions. Then the message is released.
	if err := s.restart(ctx, &s.orders, "SCHEMA_VERSION=2"); err != nil {
		return err
	}
	released, err := s.release(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(s.ordered(ctx, "Q-4"), s.quoteEventsConsumed(ctx)); err != nil {
		return err
	}
	s.say("\n")
	s.tell(`The repair: a release of the order service reads version 1 and 2. The person on call asks it to
		release what it has parked. %d message goes from the poison topic to its own topic again. Q-4 is captured
		by the normal path, and nothing is parked.`, released)
	if err := s.table(ctx, s.ordersDB, ordersSchema+".inbox_failure", showParked); err != nil {
		return err
	}
	if err := s.topic(ctx, contract.QuoteEvents, "Q-4"); err != nil {
		return err
	}
	return s.table(ctx, s.ordersDB, ordersSchema+".customer_order", showOrders)
}

// restart stops a service and starts it in another release.
func (s *story) restart(ctx context.Context, p **process, env ...string) error {
	if err := (*p).stop(); err != nil {
		return err
	}
	next, err := s.start(ctx, (*p).name, env...)
	if err == nil {
		*p = next
	}
	return err
}
