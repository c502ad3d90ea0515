package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
)

type bunRow struct {
	bun.BaseModel `bun:"table:bench_row"`

	ID        int64 `bun:",pk,autoincrement"`
	Code      int64
	Customer  string
	Amount    int64
	CreatedAt time.Time
}

func bunRows(codes []int64) []bunRow {
	rows := make([]bunRow, len(codes))
	for i, code := range codes {
		rows[i] = bunRow{Code: code, Customer: "ada", Amount: 4200, CreatedAt: time.Now()}
	}
	return rows
}

func openRowsBun(d *rowsDatabase, pool *sql.DB, cfg *rowsConfig, tx bool) (c rowsClient, err error) {
	var dialect schema.Dialect = pgdialect.New()
	switch d.dialect {
	case core.MySQL:
		if err := pool.Ping(); err != nil {
			return c, err
		}
		dialect = mysqldialect.New()
	case core.SQLite:
		dialect = sqlitedialect.New()
	case core.Postgres:
	}
	db := bun.NewDB(pool, dialect)
	if cfg != nil {
		ob, err := bunoutbox.New(db, bunoutbox.Config{Prefix: rowsPrefix, AutoCreate: true})
		if err != nil {
			return c, err
		}
		if db = ob.DB(); cfg.on != nil {
			bunoutbox.On(ob, func(_ core.Op, row *bunRow) []core.Event { return cfg.on(row) })
		}
	}
	run := func(ctx context.Context, statement func(ctx context.Context, db bun.IDB) error) error {
		if !tx {
			return statement(ctx, db)
		}
		return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return statement(ctx, tx) })
	}
	return rowsClient{
		create: func(ctx context.Context, codes []int64) error {
			return run(ctx, func(ctx context.Context, db bun.IDB) error {
				rows := bunRows(codes)
				insert := db.NewInsert().Model(&rows)
				if len(rows) == 1 {
					insert = db.NewInsert().Model(&rows[0])
				}
				_, err := insert.Exec(ctx)
				return err
			})
		},
		updateKey: func(ctx context.Context, id, amount int64) error {
			return run(ctx, func(ctx context.Context, db bun.IDB) error {
				_, err := db.NewUpdate().Model(&bunRow{ID: id, Amount: amount}).Column("amount").WherePK().Exec(ctx)
				return err
			})
		},
		update: func(ctx context.Context, from, to, amount int64) error {
			return run(ctx, func(ctx context.Context, db bun.IDB) error {
				_, err := db.NewUpdate().Model((*bunRow)(nil)).Set("amount = ?", amount).
					Where("code BETWEEN ? AND ?", from, to).Exec(ctx)
				return err
			})
		},
		remove: func(ctx context.Context, id int64) error {
			return run(ctx, func(ctx context.Context, db bun.IDB) error {
				_, err := db.NewDelete().Model(&bunRow{ID: id}).WherePK().Exec(ctx)
				return err
			})
		},
	}, nil
}
