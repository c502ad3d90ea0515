package main

import (
	"context"
	"database/sql"
	"errors"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/bench/internal/ent"
	"github.com/ormoutbox/ormoutbox/integration/bench/internal/ent/row"
)

func openRowsEnt(d *rowsDatabase, pool *sql.DB, cfg *rowsConfig, tx bool) (c rowsClient, err error) {
	name := map[core.Dialect]string{
		core.Postgres: dialect.Postgres, core.MySQL: dialect.MySQL, core.SQLite: dialect.SQLite,
	}
	drv := entsql.OpenDB(name[d.dialect], pool)
	client := ent.NewClient(ent.Driver(drv))
	if cfg != nil {
		ob, err := entoutbox.New(drv, entoutbox.Config{Prefix: rowsPrefix, AutoCreate: true})
		if err != nil {
			return c, err
		}
		client = ent.NewClient(ent.Driver(ob.Driver()))
		client.Use(ob.Hook())
		if cfg.on != nil {
			entoutbox.On(ob, func(_ core.Op, row *ent.Row) []core.Event { return cfg.on(row) })
		}
	}
	run := func(ctx context.Context, statement func(rows *ent.RowClient) error) error {
		if !tx {
			return statement(client.Row)
		}
		tx, err := client.Tx(ctx)
		if err != nil {
			return err
		}
		if err := statement(tx.Row); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
	return rowsClient{
		create: func(ctx context.Context, codes []int64) error {
			return run(ctx, func(rows *ent.RowClient) error {
				all := make([]*ent.RowCreate, len(codes))
				for i, code := range codes {
					all[i] = rows.Create().SetCode(code).SetCustomer("ada").SetAmount(4200)
				}
				if len(all) == 1 {
					return all[0].Exec(ctx)
				}
				return rows.CreateBulk(all...).Exec(ctx)
			})
		},
		updateKey: func(ctx context.Context, id, amount int64) error {
			return run(ctx, func(rows *ent.RowClient) error { return rows.UpdateOneID(id).SetAmount(amount).Exec(ctx) })
		},
		update: func(ctx context.Context, from, to, amount int64) error {
			return run(ctx, func(rows *ent.RowClient) error {
				return rows.Update().Where(row.CodeGTE(from), row.CodeLTE(to)).SetAmount(amount).Exec(ctx)
			})
		},
		remove: func(ctx context.Context, id int64) error {
			return run(ctx, func(rows *ent.RowClient) error { return rows.DeleteOneID(id).Exec(ctx) })
		},
	}, nil
}
