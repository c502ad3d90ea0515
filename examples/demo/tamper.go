package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
)

// tamper names a table from which a row is removed, to see that the demonstration notices: a proof that cannot fail proves nothing.
type tamper string

const (
	tamperNothing tamper = ""
	tamperOutbox  tamper = "outbox" // an event that was committed and not yet delivered, while the shop is down
	tamperOrders  tamper = "orders" // an order, at the end
	tamperLedger  tamper = "ledger" // what the consumer saw of one event, at the end
)

func (t tamper) valid() error {
	switch t {
	case tamperNothing, tamperOutbox, tamperOrders, tamperLedger:
		return nil
	}
	return fmt.Errorf("cannot tamper with %q: outbox, orders and ledger are there", string(t))
}

// afterwards removes a row when the shop has ended.
func (t tamper) afterwards(ctx context.Context, dir string) error {
	var removed bool
	var err error
	switch t {
	case tamperOrders:
		removed, err = remove(ctx, filepath.Join(dir, ordersFile), `DELETE FROM orders WHERE id = (SELECT min(id) FROM orders)`)
	case tamperLedger:
		removed, err = remove(ctx, filepath.Join(dir, ledgerFile),
			`DELETE FROM ledger WHERE event_id = (SELECT min(event_id) FROM ledger)`)
	default:
		return nil
	}
	if err == nil && !removed {
		err = errors.New("there is no row to remove")
	}
	return err
}

// removeFromOutbox removes an event that nobody has seen, if there is one.
func removeFromOutbox(ctx context.Context, dir string) (bool, error) {
	return remove(ctx, filepath.Join(dir, ordersFile), `DELETE FROM outbox_event WHERE id =
		(SELECT min(id) FROM outbox_event WHERE status IN (0, 2) AND event_id NOT IN (SELECT event_id FROM book.ledger))`,
		sql.Named("book", filepath.Join(dir, ledgerFile)))
}

// remove runs one statement, beside a database that is attached under the name of the argument.
func remove(ctx context.Context, file, query string, attached ...sql.NamedArg) (bool, error) {
	db, err := sql.Open("sqlite", file+pragmas)
	if err != nil {
		return false, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, a := range attached {
		if _, err := db.ExecContext(ctx, `ATTACH DATABASE ? AS `+a.Name, a.Value); err != nil {
			return false, err
		}
	}
	res, err := db.ExecContext(ctx, query)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}
