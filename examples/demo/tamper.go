package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
)

// tamper names a table from which a row is removed, to show that the demonstration notices it. A
// proof that cannot fail proves nothing.
type tamper string

const (
	tamperNothing tamper = ""
	tamperOutbox  tamper = "outbox" // a committed event that was not delivered yet, while the shop is down
	tamperOrders  tamper = "orders" // an order, at the end
	tamperLedger  tamper = "ledger" // the consumer's entry of one event, at the end
)

func (t tamper) valid() error {
	switch t {
	case tamperNothing, tamperOutbox, tamperOrders, tamperLedger:
		return nil
	}
	return fmt.Errorf("cannot tamper with %q: outbox, orders and ledger are there", string(t))
}

// afterwards removes a row after the shop has ended.
func (t tamper) afterwards(ctx context.Context, dir string) error {
	switch t {
	case tamperOrders:
		return remove(ctx, filepath.Join(dir, ordersFile), `DELETE FROM orders WHERE id = (SELECT min(id) FROM orders)`)
	case tamperLedger:
		return remove(ctx, filepath.Join(dir, ledgerFile), `DELETE FROM ledger WHERE event_id = (SELECT `+
			`min(event_id) FROM ledger)`)
	default:
		return nil
	}
}

// lockLedger keeps the consumer from writing, and so from acknowledging, until unlock is called.
func lockLedger(ctx context.Context, dir string) (unlock func() error, err error) {
	book, err := openLedger(ctx, filepath.Join(dir, ledgerFile))
	if err != nil {
		return nil, err
	}
	tx, err := book.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, errors.Join(err, book.close())
	}
	return func() error { return errors.Join(tx.Rollback(), book.close()) }, nil
}

// removeFromOutbox removes an event that was not delivered.
func removeFromOutbox(ctx context.Context, dir string) error {
	return remove(ctx, filepath.Join(dir, ordersFile), `DELETE FROM outbox_event WHERE id = (SELECT min(id) FROM `+
		`outbox_event WHERE status IN (0, 2))`)
}

func remove(ctx context.Context, file, query string) error {
	db, err := sql.Open("sqlite", file+pragmas)
	if err != nil {
		return err
	}
	defer db.Close()
	res, err := db.ExecContext(ctx, query)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, errors.New("there is no row to remove"))
	}
	return nil
}
