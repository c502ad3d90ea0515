package main

import (
	"context"
	"database/sql"
	"fmt"
)

// ledgerFile is a database of its own, so that no transaction of the shop changes it.
const ledgerFile = "ledger.db"

// sale has the fields that an order and its event have in common.
type sale struct {
	OrderID, Customer string
	Number            int
}

// entry is one message that the consumer received.
type entry struct {
	EventID string
	sale
}

// ledger is the consumer's append-only record of the messages it got, duplicates included.
type ledger struct {
	db     *sql.DB
	insert *sql.Stmt
}

func openLedger(ctx context.Context, file string) (*ledger, error) {
	db, err := sql.Open("sqlite", file+pragmas)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS ledger (
		entry    INTEGER PRIMARY KEY AUTOINCREMENT,
		event_id TEXT NOT NULL,
		order_id TEXT NOT NULL,
		customer TEXT NOT NULL,
		number   INTEGER NOT NULL)`); err != nil {
		return nil, fmt.Errorf("create ledger: %w", err)
	}
	insert, err := db.PrepareContext(ctx, `INSERT INTO ledger (event_id, order_id, customer, number) VALUES (?, `+
		`?, ?, ?)`)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &ledger{db: db, insert: insert}, nil
}

// write returns nil when the entry is in the file, where a kill cannot undo it.
func (l *ledger) write(e entry) error {
	_, err := l.insert.Exec(e.EventID, e.OrderID, e.Customer, e.Number)
	return err
}

func (l *ledger) close() error { return l.db.Close() }
