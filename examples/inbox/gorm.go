package main

import (
	"context"
	"database/sql"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

// Account is a row.
type Account struct {
	ID    string `gorm:"primaryKey" bun:",pk"`
	Cents int
}

// gormBank is the bank on GORM.
type gormBank struct{ db *gorm.DB }

func newGORMBank(pool *sql.DB) (bank, error) {
	db, err := gorm.Open(sqlite.Dialector{DriverName: "sqlite", Conn: pool}, &gorm.Config{Logger: logger.Discard})
	return gormBank{db}, err
}

func (b gormBank) Transactor() core.Transactor { return gormoutbox.Transactor(b.db) }

func (gormBank) Credit(ctx context.Context, p Payment) error {
	tx, err := gormoutbox.FromContext(ctx)
	if err != nil {
		return err
	}
	return tx.Model(&Account{ID: p.Account}).Update("cents", gorm.Expr("cents + ?", p.Cents)).Error
}
