package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/orders"
)

const showEffects = `SELECT channel, CASE status WHEN 2 THEN 'completed' WHEN 4 THEN 'DEAD' ELSE 'waits' END AS status,
  count(*) AS effects, sum(attempts) AS failed_attempts, count(external_ref) AS with_reference
  FROM side_effect_command GROUP BY 1, 2 ORDER BY 1, 2`

// effects: step 10.
func (s *story) effects(ctx context.Context) error {
	if err := s.table(ctx, s.ordersDB, ordersSchema+".side_effect_command, before", showEffects); err != nil {
		return err
	}
	var all int
	if err := s.ordersDB.QueryRowContext(ctx, "SELECT count(*) FROM customer_order").Scan(&all); err != nil {
		return err
	}
	s.outside.open.Store(true)
	if err := errors.Join(
		s.rows(ctx, s.ordersDB, 0, "every effect is completed",
			"SELECT count(*) FROM side_effect_command WHERE status <> 2"),
		s.rows(ctx, s.ordersDB, all, "every order is completed",
			"SELECT count(*) FROM customer_order WHERE status = 'completed'"),
		s.consumed(ctx, orders.Consumer+"."+orders.HandlerFulfilment, contract.FulfilmentEvents),
	); err != nil {
		return err
	}
	calls, lines := s.outside.counts("/fulfilment")
	_, mails := s.outside.counts("/mail")
	sent, err := s.cluster.read(ctx, contract.FulfilmentEvents)
	if err != nil {
		return err
	}
	s.say("\n")
	s.tell(`Until now the fulfilment system and the mail server were down (503). The effects waited, and that cost no
		attempts. Now both are up. The answer to the first request for a line is lost. It is sent again with the
		same key, so %d calls fulfil %d lines. %d mails are sent. The fulfilment system has no outbox, and says
		everything twice under new ids: %d messages complete %d lines, because a line changes from requested to
		completed once. The last line of an order completes it, and writes its invoice and OrderCompleted.`,
		calls, lines, mails, len(sent), lines)
	if err := s.table(ctx, s.ordersDB, ordersSchema+".side_effect_command, after", showEffects); err != nil {
		return err
	}
	return s.table(ctx, s.ordersDB, ordersSchema+".customer_order",
		`SELECT '…' || right(o.id, 6) AS order, source_quote_id AS quote, o.status, open_lines, i.cents AS invoice
  FROM customer_order o LEFT JOIN invoice i ON i.order_id = o.id ORDER BY captured_at`)
}

// violations are what a repair script could do by mistake, and the constraint that refuses it.
var violations = []struct{ what, constraint, statement string }{
	{
		"a second order of a quote", "uq_order_source_quote",
		`INSERT INTO customer_order (id, tenant_id, source_quote_id, customer, status, open_lines,
  quote_accepted_at, captured_at)
SELECT 'again', tenant_id, source_quote_id, customer, 'captured', 1, now(), now() FROM customer_order LIMIT 1`,
	},
	{
		"the same line twice", "uq_order_line",
		`INSERT INTO order_line (order_id, line_no, sku, quantity, cents, status, requested_at)
SELECT order_id, line_no, sku, quantity, cents, 'requested', now() FROM order_line LIMIT 1`,
	},
	{
		"a line completed once too often", "ck_order_open_lines",
		`UPDATE customer_order SET open_lines = -1, status = 'captured', completed_at = NULL`,
	},
	{
		"an order completed before its lines", "ck_order_completed",
		`UPDATE customer_order SET status = 'completed', completed_at = now(), open_lines = 1`,
	},
	{
		"a second invoice of an order", "invoice_order_id_key",
		`INSERT INTO invoice (order_id, cents) SELECT order_id, cents FROM invoice LIMIT 1`,
	},
	{
		"a second mail about an order", "side_effect_command_key",
		`INSERT INTO side_effect_command (id, tenant_id, channel, idempotency_key, payload, available_at,
  created_at, updated_at)
SELECT 'again', tenant_id, channel, idempotency_key, payload, now(), now(), now() FROM side_effect_command
 WHERE channel = 'mail' LIMIT 1`,
	},
	{
		"the same event handled twice", "inbox_seen_pkey",
		`INSERT INTO inbox_seen SELECT * FROM inbox_seen LIMIT 1`,
	},
}

// invariants: step 11.
func (s *story) invariants(ctx context.Context) error {
	lines := [][]string{{"somebody tries", "PostgreSQL refuses it by"}}
	for _, v := range violations {
		_, err := s.ordersDB.ExecContext(ctx, v.statement)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.ConstraintName != v.constraint {
			return fmt.Errorf("%s: %w, want the constraint %s", v.what, err, v.constraint)
		}
		lines = append(lines, []string{v.what, refused.ConstraintName + " (" + refused.Code + ")"})
	}
	again, events, err := s.acceptAtOnce(ctx, "Q-6")
	if err != nil {
		return err
	}
	s.tell(`The handlers above are right. Then somebody repairs data by hand at three in the morning, or writes the
		next handler. So every invariant is a constraint of a table:`)
	s.lines("schema "+ordersSchema, lines)
	s.say("\n")
	s.tell(`A change of state that has happened is no error, and no second event. Ten requests, each with an
		Idempotency-Key of its own, read the draft Q-6 and accept it at once. One of them changes the row (UPDATE
		... WHERE status = 'draft'), and its event is written with it. All ten get 200. Ada accepts Q-6 once more
		when it is ordered: %s. Its outbox has %d event.`, again, events)
	return s.table(ctx, s.quotesDB, quotesSchema+".quote", showQuotes)
}

// acceptAtOnce accepts a quote ten times at once, and once more when its order is complete. It
// returns the last answer, and the number of the quote's events. All ten requests have read a draft
// before the first of them can change it, because a lock holds them up until then.
func (s *story) acceptAtOnce(ctx context.Context, id string) (last answer, events int, err error) {
	if err := s.draft(ctx, id, chairs); err != nil {
		return last, 0, err
	}
	lock, err := s.quotesDB.BeginTx(ctx, nil)
	if err != nil {
		return last, 0, err
	}
	defer lock.Rollback()
	if _, err := lock.ExecContext(ctx, "SELECT FROM quote WHERE id = $1 FOR UPDATE", id); err != nil {
		return last, 0, err
	}
	group, of := errgroup.WithContext(ctx)
	for n := range 10 {
		group.Go(func() error {
			a, err := s.accept(of, id, fmt.Sprintf("%s, request %d", id, n))
			if err == nil && (a.status != http.StatusOK || a.replayed) {
				err = fmt.Errorf("accept %s: %s %s", id, a, a.body)
			}
			return err
		})
	}
	if err := s.rows(ctx, s.quotesDB, 10, "ten requests have read a draft", `SELECT count(*) FROM pg_stat_activity
  WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'UPDATE "quote" %'`); err != nil {
		return last, 0, err
	}
	if err := lock.Rollback(); err != nil {
		return last, 0, err
	}
	if err := errors.Join(group.Wait(), s.ordered(ctx, id), s.rows(ctx, s.ordersDB, 1, id+" is completed",
		"SELECT count(*) FROM customer_order WHERE source_quote_id = $1 AND status = 'completed'", id)); err != nil {
		return last, 0, err
	}
	if last, err = s.accept(ctx, id, "once more"); err != nil {
		return last, 0, err
	}
	events, err = count(ctx, s.quotesDB, "SELECT count(*) FROM outbox_event WHERE aggregate_id = $1", id)
	if err == nil && (last.status != http.StatusOK || events != 1) {
		err = fmt.Errorf("accept %s once more: %s, and it has %d events", id, last, events)
	}
	return last, events, err
}

// Orders of the last step, and the time between two of them.
const (
	rush  = 100
	pause = 20 * time.Millisecond
)

// showLatency is how long the customers of the last step waited.
const showLatency = `WITH waits AS (
  SELECT 1 AS n, 'order captured' AS until, captured_at - quote_accepted_at AS wait
    FROM customer_order WHERE source_quote_id LIKE 'R-%'
  UNION ALL
  SELECT 2, 'notification sent', e.done_at - o.quote_accepted_at
    FROM side_effect_command e
    JOIN customer_order o ON e.idempotency_key = 'OrderCaptured:' || o.id || ':' || o.customer
   WHERE e.channel = 'mail' AND o.source_quote_id LIKE 'R-%'
  UNION ALL
  SELECT 3, 'order completed', completed_at - quote_accepted_at
    FROM customer_order WHERE source_quote_id LIKE 'R-%')
SELECT 'quote accepted' AS from, until, count(*) AS orders,
       round(1000 * extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY wait)), 1) AS p50_ms,
       round(1000 * extract(epoch FROM percentile_cont(0.99) WITHIN GROUP (ORDER BY wait)), 1) AS p99_ms
  FROM waits GROUP BY n, until ORDER BY n`

// latency: step 12.
func (s *story) latency(ctx context.Context) error {
	began := time.Now()
	group, of := errgroup.WithContext(ctx)
	for n := range rush {
		group.Go(func() error { return s.order(of, fmt.Sprintf("R-%03d", n)) })
		time.Sleep(pause)
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := errors.Join(
		s.rows(ctx, s.ordersDB, rush, "all orders are completed",
			"SELECT count(*) FROM customer_order WHERE source_quote_id LIKE 'R-%' AND status = 'completed'"),
		s.rows(ctx, s.ordersDB, 0, "all mails are sent", "SELECT count(*) FROM side_effect_command WHERE status <> 2"),
		s.rows(ctx, s.quotesDB, rush, "all quotes are ordered",
			"SELECT count(*) FROM quote WHERE id LIKE 'R-%' AND status = 'ordered'"),
	); err != nil {
		return err
	}
	took := time.Since(began)
	captured, err := s.metric(ctx, "quote_accepted_to_order_captured_seconds_count")
	if err != nil {
		return err
	}
	s.tell(`%d quotes are accepted, %.0f a second. After %.1f s everything is done: captured, fulfilled, completed,
		notified. An order carries the time at which its quote was accepted, so one query says how long the
		customers waited. The order service has the same as histograms of Prometheus, and this process has
		measured %v captured orders.`, rush, 1/pause.Seconds(), took.Seconds(), captured)
	return s.table(ctx, s.ordersDB, ordersSchema, showLatency)
}
