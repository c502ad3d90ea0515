package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// handBatch is how many rows the hand-written loop claims at once.
const handBatch = 500

// handRelay is the loop that a good engineer would write for the outbox's table, with pgx: it
// claims a batch with a lease, publishes it outside of any transaction, and marks it. It has no
// retries, no renewal of leases, no dead events and no metrics.
type handRelay struct {
	pool    *pgxpool.Pool
	table   string
	ordered bool
}

// handRow is the part of a row that a publisher needs.
type handRow struct {
	id       [16]byte
	eventID  string
	typ      string
	topic    string
	key      *string
	payload  []byte
	headers  []byte
	attempts int32
	lane     []byte
	keySeq   *int64
}

// sortRows sorts what RETURNING returned, which promises no order.
func sortRows(rows []handRow) {
	slices.SortFunc(rows, func(a, b handRow) int {
		return cmp.Or(bytes.Compare(a.lane, b.lane), cmp.Compare(*a.keySeq, *b.keySeq))
	})
}

func (h *handRelay) claim(ctx context.Context, rows []handRow) ([]handRow, error) {
	lane, order := "lane IS NULL AND topic = '"+benchTopic+"'", "available_at, id"
	if h.ordered {
		lane, order = "lane IS NOT NULL", "lane, key_seq"
	}
	res, err := h.pool.Query(ctx, `UPDATE `+h.table+
		` SET claim_no = claim_no + 1, claimed_by = $1, lease_until = now() + interval '30 seconds'
WHERE id IN (SELECT id FROM `+h.table+` WHERE status IN (0, 2) AND `+lane+
		` AND available_at <= now() AND (lease_until IS NULL OR lease_until <= now())
  ORDER BY `+order+` LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING id, event_id, event_type, topic, partition_key, payload, headers, attempts, lane, key_seq`, "hand", handBatch)
	if err != nil {
		return nil, err
	}
	rows = rows[:0]
	for res.Next() {
		var r handRow
		if err := res.Scan(&r.id, &r.eventID, &r.typ, &r.topic, &r.key, &r.payload, &r.headers, &r.attempts, &r.lane,
			&r.keySeq); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	if err := res.Err(); err != nil {
		return nil, err
	}
	if h.ordered {
		sortRows(rows)
	}
	return rows, nil
}

func (h *handRelay) mark(ctx context.Context, rows []handRow) error {
	ids := make([][16]byte, len(rows))
	for i := range rows {
		ids[i] = rows[i].id
	}
	tag, err := h.pool.Exec(ctx, "UPDATE "+h.table+" SET status = 1, done_at = now(), lease_until = NULL WHERE id = "+
		"ANY ($1) AND status IN (0, 2)", ids)
	if err == nil && tag.RowsAffected() != int64(len(rows)) {
		err = fmt.Errorf("marked %d of %d rows", tag.RowsAffected(), len(rows))
	}
	return err
}

func publishAll(l *ledger, rows []handRow) {
	for i := range rows {
		l.see(payloadNumber(rows[i].payload))
	}
}

// drain claims, publishes and marks in turn.
func (h *handRelay) drain(ctx context.Context, l *ledger, limit time.Duration) (int, time.Duration, error) {
	return drainInTurn(ctx, l, limit, h.claim, h.mark)
}

// drainInTurn claims, publishes and marks until nothing is left, or limit is over.
func drainInTurn(ctx context.Context, l *ledger, limit time.Duration,
	claim func(context.Context, []handRow) ([]handRow, error), mark func(context.Context, []handRow) error,
) (finished int, took time.Duration, err error) {
	start := time.Now()
	var rows []handRow
	for time.Since(start) < limit {
		if rows, err = claim(ctx, rows); err != nil {
			return 0, 0, err
		}
		if len(rows) == 0 {
			break
		}
		publishAll(l, rows)
		if err := mark(ctx, rows); err != nil {
			return 0, 0, err
		}
		finished += len(rows)
	}
	return finished, time.Since(start), nil
}

// drainPiped claims the next batch while it marks the one before.
func (h *handRelay) drainPiped(ctx context.Context, l *ledger,
	limit time.Duration,
) (finished int, took time.Duration, err error) {
	start := time.Now()
	batches := make(chan []handRow, 1)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(batches)
		for time.Since(start) < limit {
			rows, err := h.claim(ctx, nil)
			if err != nil || len(rows) == 0 {
				return err
			}
			select {
			case batches <- rows:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	g.Go(func() error {
		for rows := range batches {
			publishAll(l, rows)
			if err := h.mark(ctx, rows); err != nil {
				return err
			}
			finished += len(rows)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return 0, 0, err
	}
	return finished, time.Since(start), nil
}
