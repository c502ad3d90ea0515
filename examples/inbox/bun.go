package main

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
)

// bunBank is the bank on Bun.
type bunBank struct{ db *bun.DB }

func newBunBank(pool *sql.DB) bank { return bunBank{bun.NewDB(pool, sqlitedialect.New())} }

func (b bunBank) Transactor() core.Transactor { return bunoutbox.Transactor(b.db) }

func (bunBank) Credit(ctx context.Context, p Payment) error {
	tx, err := bunoutbox.FromContext(ctx)
	if err != nil {
		return err
	}
	_, err = tx.NewUpdate().Model(&Account{ID: p.Account}).Set("cents = cents + ?", p.Cents).WherePK().Exec(ctx)
	return err
}
