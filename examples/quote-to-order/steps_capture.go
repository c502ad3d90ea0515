package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/orders"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/quotes"
)

// Queries that several steps show.
const (
	showQuotes = `SELECT id, status, '…' || right(order_id, 6) AS order FROM quote ORDER BY id`
	showOutbox = `SELECT event_type AS event, aggregate_id AS quote, '…' || right(event_id, 6) AS event_id,
  CASE status WHEN 1 THEN 'DONE' WHEN 0 THEN 'NEW' ELSE 'status ' || status END AS status,
  replace(receipt, topic || '/', '') AS place, CASE WHEN replay_of IS NOT NULL THEN 'yes' END AS replay
  FROM outbox_event ORDER BY created_at, id`
	showOrders = `SELECT '…' || right(o.id, 6) AS order, source_quote_id AS quote, o.status, open_lines,
  (SELECT count(*) FROM order_line WHERE order_id = o.id) AS lines FROM customer_order o ORDER BY captured_at`
	showInbox = `SELECT handler, '…' || right(event_id, 6) AS event_id, attempts, processed_at IS NOT NULL AS processed,
  regexp_replace(source, '^.*/([0-9]+)/([0-9]+)$', '\1@\2') AS place
  FROM inbox_seen JOIN inbox_handler USING (handler_id) ORDER BY processed_at`
	showKeys = `SELECT scope, tenant, regexp_replace(id, '^(.*:).*(.{6})$', '\1…\2') AS key,
  convert_from(result, 'UTF8') AS result FROM idempotency_key ORDER BY created_at`
)

// quoteAccepted: step 1.
func (s *story) quoteAccepted(ctx context.Context) (err error) {
	if s.quotes, err = s.start(ctx, "quotes"); err != nil {
		return err
	}
	if err := s.draft(ctx, "Q-1", chairs); err != nil {
		return err
	}
	grand := []contract.Line{{Line: 1, SKU: "grand piano", Quantity: 1, Cents: 9_900_000}}
	if err := s.draft(ctx, "Q-2", grand); err != nil {
		return err
	}
	first, err := s.accept(ctx, "Q-1", "key-1")
	if err != nil {
		return err
	}
	again, err := s.accept(ctx, "Q-1", "key-1")
	if err != nil {
		return err
	}
	refused, err := s.accept(ctx, "Q-2", "key-2")
	if err != nil {
		return err
	}
	if err := s.rows(ctx, s.quotesDB, 1, "the event is published",
		"SELECT count(*) FROM outbox_event WHERE status = 1"); err != nil {
		return err
	}
	s.tell(`Ada accepts quote Q-1: POST /quotes/Q-1/accept answers %s. Her client sees no answer and sends the request
		again with the same Idempotency-Key: %s. Then she accepts Q-2, a grand piano. The quote is saved and its
		event is written, and then her credit is not enough: %s, and both are rolled back.`, first, again, refused)
	s.tell(`The outbox has one event, in the transaction of the quote. The relay has published it, and the row says
		where Kafka has it. Nobody consumes the topic yet.`)
	if err := s.table(ctx, s.quotesDB, quotesSchema+".quote", showQuotes); err != nil {
		return err
	}
	if err := s.table(ctx, s.quotesDB, quotesSchema+".outbox_event", showOutbox); err != nil {
		return err
	}
	return s.topic(ctx, contract.QuoteEvents, "")
}

// inbox: step 2.
func (s *story) inbox(ctx context.Context) (err error) {
	if s.orders, err = s.start(ctx, "orders"); err != nil {
		return err
	}
	r, _, err := s.acceptedEvent(ctx, "Q-1")
	if err != nil {
		return err
	}
	for range 2 {
		if err := s.cluster.send(contract.QuoteEvents, r.key, r.value, r.headers); err != nil {
			return err
		}
	}
	if err := s.quoteEventsConsumed(ctx); err != nil {
		return err
	}
	duplicates, err := s.duplicates(ctx)
	if err != nil {
		return err
	}
	s.tell(`The order service starts, and the event of Q-1 comes three times: the broker delivers at least once. The
		inbox writes the id of the event and the order in one transaction. It acknowledges the two copies without
		the handler (metric: %v duplicates). The handler captured one order with two lines.`, duplicates)
	if err := s.table(ctx, s.ordersDB, ordersSchema+".inbox_seen", showInbox); err != nil {
		return err
	}
	if err := s.table(ctx, s.ordersDB, ordersSchema+".customer_order", showOrders); err != nil {
		return err
	}
	return s.topic(ctx, contract.QuoteEvents, "")
}

// duplicates are the messages of quotes that the running order service has recognised.
func (s *story) duplicates(ctx context.Context) (float64, error) {
	return s.metric(ctx, "inbox_messages_total", fmt.Sprintf("handler=%q", orders.HandlerQuotes), `outcome="duplicate"`)
}

// command: step 3.
func (s *story) command(ctx context.Context) error {
	r, quote, err := s.acceptedEvent(ctx, "Q-1")
	if err != nil {
		return err
	}
	capture := func() (answer, error) {
		return post(ctx, s.orders.url+"/commands/capture-order", "", map[string]any{
			"event_id": r.headers[core.HeaderEventID], "quote": quote,
		})
	}
	again, err := capture()
	if err != nil {
		return err
	}
	quote.Customer = "eve@example.com"
	forged, err := capture()
	if err != nil {
		return err
	}
	var result orders.Captured
	if err := json.Unmarshal([]byte(again.body), &result); err != nil {
		return fmt.Errorf("%s %s: %w", again, again.body, err)
	}
	if !again.replayed || forged.status != http.StatusUnprocessableEntity {
		return fmt.Errorf("the command again: %s, forged: %s", again, forged)
	}
	s.tell(`A nightly job sends the command of Q-1 again, beside the inbox: POST /commands/capture-order. The key of
		the command comes from the event, so the job gets the stored result, order %s (%s). The same key with
		another customer is refused: %s.`, tail(result.OrderID), again, forged)
	return s.table(ctx, s.ordersDB, ordersSchema+".idempotency_key", showKeys)
}

// uniqueQuote: step 4.
func (s *story) uniqueQuote(ctx context.Context) error {
	r, _, err := s.acceptedEvent(ctx, "Q-1")
	if err != nil {
		return err
	}
	headers := maps.Clone(r.headers)
	headers[core.HeaderEventID] = core.NewEventID()
	if err := s.cluster.send(contract.QuoteEvents, r.key, r.value, headers); err != nil {
		return err
	}
	if err := s.quoteEventsConsumed(ctx); err != nil {
		return err
	}
	s.tell(`A migration job of the quote service sends QuoteAccepted of Q-1 under a new event id. The inbox and the
		command do not know that id, so the handler runs and inserts an order. The constraint
		uq_order_source_quote refuses it. The insert is in a savepoint: the handler looks the first order up, and
		that is the answer. The event is processed, and there is one order.`)
	if err := s.table(ctx, s.ordersDB, ordersSchema+".inbox_seen", showInbox); err != nil {
		return err
	}
	if err := s.table(ctx, s.ordersDB, ordersSchema+".idempotency_key", showKeys); err != nil {
		return err
	}
	return s.table(ctx, s.ordersDB, ordersSchema+".customer_order", showOrders)
}

// orderCaptured: step 5.
func (s *story) orderCaptured(ctx context.Context) error {
	if err := s.ordered(ctx, "Q-1"); err != nil {
		return err
	}
	s.tell(`The order service is a producer too. OrderCaptured was written in the transaction of the inbox, with the
		order, and left by its own outbox. The quote service has an inbox as well, and notes which order the quote
		became.`)
	if err := s.topic(ctx, contract.OrderEvents, ""); err != nil {
		return err
	}
	if err := s.table(ctx, s.quotesDB, quotesSchema+".inbox_seen", showInbox); err != nil {
		return err
	}
	return s.table(ctx, s.quotesDB, quotesSchema+".quote", showQuotes)
}

// ordered waits until a quote knows its order.
func (s *story) ordered(ctx context.Context, quote string) error {
	return errors.Join(
		s.rows(ctx, s.quotesDB, 1, quote+" is ordered", "SELECT count(*) FROM quote WHERE id = $1 "+
			"AND status = $2", quote,
			quotes.StatusOrdered),
		s.consumed(ctx, quotes.Consumer, contract.OrderEvents))
}
