package main

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
)

// result is the result of a demonstration: the contents of its files, and the course of its lives.
type result struct {
	OK         bool     `json:"ok"`
	Balanced   bool     `json:"balanced"`
	Asked      int      `json:"orders"`
	Kills      int      `json:"kills"`
	Seed       uint64   `json:"seed"`
	Seconds    float64  `json:"seconds"`
	Committed  int      `json:"committed"`
	Delivered  int      `json:"delivered"`
	Lost       int      `json:"lost"`
	Ghosts     int      `json:"ghosts"`
	OutOfOrder int      `json:"out_of_order"`
	Duplicates int      `json:"duplicates"`
	RolledBack int      `json:"rolled_back"`
	Hot        int      `json:"published_hot"`
	Cold       int      `json:"published_cold"`
	Problems   []string `json:"problems,omitempty"`
	Files      string   `json:"files,omitempty"`

	killsAsked int
	audited    bool // otherwise the numbers mean nothing
}

// audit reads the files of an ended shop and compares them.
func (r *result) audit(ctx context.Context, dir string) error {
	committed, err := readOrders(ctx, filepath.Join(dir, ordersFile))
	if err != nil {
		return fmt.Errorf("read orders: %w", err)
	}
	entries, err := readLedger(ctx, filepath.Join(dir, ledgerFile))
	if err != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	r.balance(committed, entries)
	return nil
}

// balance compares the orders that were committed with the entries of the ledger, which are in the
// order of delivery.
func (r *result) balance(committed []sale, entries []entry) {
	r.audited = true
	open := make(map[sale]bool, len(committed)) // not delivered yet
	for _, s := range committed {
		open[s] = true
	}
	events := make(map[string]sale, len(entries)) // delivered
	last := map[string]int{}                      // number, by customer
	r.Committed = len(committed)
	for _, e := range entries {
		if first, ok := events[e.EventID]; ok && first == e.sale {
			r.Duplicates++
			continue
		}
		events[e.EventID] = e.sale
		if !open[e.sale] { // no order, or a second event of an order, with another id
			r.Ghosts++
			r.problem("ghost: event %s of order %s was delivered and never committed", e.EventID, e.OrderID)
			continue
		}
		delete(open, e.sale)
		r.Delivered++
		if e.Number < last[e.Customer] {
			r.OutOfOrder++
			r.problem("out of order: %s got order %d after %d", e.Customer, e.Number, last[e.Customer])
		}
		last[e.Customer] = max(last[e.Customer], e.Number)
	}
	r.Lost = len(open)
	for _, s := range committed {
		if open[s] {
			r.problem("lost: order %s, number %d of %s, was committed and never delivered", s.OrderID, s.Number,
				s.Customer)
		}
	}
	if r.Committed != r.Asked {
		r.problem("%d orders are committed instead of %d", r.Committed, r.Asked)
	}
	r.Balanced = len(r.Problems) == 0
}

// problem keeps the first few problems. The numbers show the rest.
func (r *result) problem(format string, args ...any) {
	if len(r.Problems) < 10 {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

func readOrders(ctx context.Context, file string) ([]sale, error) {
	return readAll(ctx, file, `SELECT id, customer, number FROM orders ORDER BY customer, number`,
		func(rows *sql.Rows) (s sale, err error) {
			return s, rows.Scan(&s.OrderID, &s.Customer, &s.Number)
		})
}

func readLedger(ctx context.Context, file string) ([]entry, error) {
	return readAll(ctx, file, `SELECT event_id, order_id, customer, number FROM ledger ORDER BY entry`,
		func(rows *sql.Rows) (e entry, err error) {
			return e, rows.Scan(&e.EventID, &e.OrderID, &e.Customer, &e.Number)
		})
}

func readAll[T any](ctx context.Context, file, query string, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	db, err := sql.Open("sqlite", file+pragmas)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}
