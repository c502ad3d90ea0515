package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// databaseSQL is database/sql without an ORM.
var databaseSQL = orm{name: "database/sql", open: openSQL}

type sqlClient struct {
	db *sql.DB
	ob *core.Outbox // nil without an outbox
}

func openSQL(ctx context.Context, db *sql.DB, cfg *outboxConfig) (ormClient, error) {
	if cfg == nil {
		return &sqlClient{db: db}, nil
	}
	repo, err := sqloutbox.New(db, sqloutbox.Config{Dialect: core.Postgres, Prefix: cfg.prefix})
	if err != nil {
		return nil, err
	}
	if err := repo.Migrate(ctx); err != nil {
		return nil, err
	}
	ob, err := core.New(core.Config{Repository: repo, Publisher: cfg.publisher, Observer: cfg.observer})
	return &sqlClient{db: db, ob: ob}, err
}

// execer is a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// finishSQL inserts an order, calls more, and commits.
func finishSQL(ctx context.Context, tx execer, more func() error) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO bench_order (customer, amount, created_at) VALUES ($1, $2, $3)", "ada",
		4200, time.Now())
	if err == nil {
		err = more()
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (c *sqlClient) Alone(ctx context.Context) error {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	return finishSQL(ctx, tx, func() error { return nil })
}

func (c *sqlClient) SecondRow(ctx context.Context, row secondRow) error {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	return finishSQL(ctx, tx, func() error {
		_, err := tx.ExecContext(ctx, `
INSERT INTO bench_outbox (id, topic, type, key, payload, available_at, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			row.ID, row.Topic, row.Type, row.Key, row.Payload, row.At, row.At)
		return err
	})
}

func (c *sqlClient) Publish(ctx context.Context, events ...core.Event) error {
	tx, err := sqltx.Begin(ctx, c.db, nil, core.Postgres)
	if err != nil {
		return err
	}
	return finishSQL(ctx, tx, func() error {
		_, err := c.ob.Publish(ctx, tx, events...)
		return err
	})
}

func (c *sqlClient) Run(ctx context.Context) error { return c.ob.Run(ctx) }
