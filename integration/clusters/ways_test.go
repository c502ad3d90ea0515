//go:build clusters

package clusters_test

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	gormmysql "gorm.io/driver/mysql"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

// withSQL writes with database/sql on a plain pool. Its transactor tracks the transactions.
func withSQL(d core.Dialect, pool *sql.DB, cfg adapter.Config) (producer, error) {
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: d})
	if err != nil {
		return producer{}, err
	}
	c := core.Config{Repository: repo, Node: cfg.Node}
	if cfg.Publisher != nil {
		c.Publisher, c.Relay = cfg.Publisher, cfg.Relay
	}
	outbox, err := core.New(c)
	if err != nil {
		return producer{}, err
	}
	transactor := sqltx.NewTransactor(pool, d)
	return producer{Run: outbox.Run, InTx: func(ctx context.Context, fn func(transaction) error) error {
		return transactor.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
			return fn(&sqlTransaction{ctx: ctx, tx: tx, d: d, outbox: outbox})
		})
	}}, nil
}

type sqlTransaction struct {
	ctx    context.Context
	tx     core.Tx
	d      core.Dialect
	outbox *core.Outbox
}

func (t *sqlTransaction) Exec(text string, args ...any) error {
	_, err := t.tx.Exec(t.ctx, placeholders(t.d, text), args...)
	return err
}

func (t *sqlTransaction) Number(text string, args ...any) (n int64, err error) {
	rows, err := t.tx.Query(t.ctx, placeholders(t.d, text), args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&n); err != nil {
			return 0, err
		}
	}
	return n, rows.Err()
}

func (t *sqlTransaction) Publish(e core.Event) error {
	_, err := t.outbox.Publish(t.ctx, t.tx, e)
	return err
}

// placeholders numbers the arguments where the dialect wants that.
func placeholders(d core.Dialect, text string) string {
	if d != core.Postgres {
		return text
	}
	var b strings.Builder
	n := 0
	for _, r := range text {
		if r != '?' {
			b.WriteRune(r)
			continue
		}
		n++
		b.WriteString("$" + strconv.Itoa(n))
	}
	return b.String()
}

// withGORM writes with GORM on its own pool and the plugin.
func withGORM(d core.Dialect, pool *sql.DB, cfg adapter.Config) (producer, error) {
	dialector := gormmysql.New(gormmysql.Config{Conn: pool})
	if d == core.Postgres {
		dialector = gormpostgres.New(gormpostgres.Config{Conn: pool})
	}
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return producer{}, err
	}
	plugin, err := gormoutbox.New(db, cfg)
	if err != nil {
		return producer{}, err
	}
	return producer{Run: plugin.Run, InTx: func(ctx context.Context, fn func(transaction) error) error {
		return db.WithContext(ctx).
			Transaction(func(tx *gorm.DB) error { return fn(&gormTransaction{ctx: ctx, tx: tx}) })
	}}, nil
}

type gormTransaction struct {
	ctx context.Context
	tx  *gorm.DB
}

func (t *gormTransaction) Exec(text string, args ...any) error { return t.tx.Exec(text, args...).Error }

func (t *gormTransaction) Number(text string, args ...any) (n int64, err error) {
	return n, t.tx.Raw(text, args...).Scan(&n).Error
}

func (t *gormTransaction) Publish(e core.Event) error { return gormoutbox.Publish(t.ctx, t.tx, e) }
