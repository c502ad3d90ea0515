//go:build clusters

package clusters_test

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// withPGX writes with pgx, without database/sql, to an address.
func withPGX(address string) way {
	return func(_ core.Dialect, _ *sql.DB, cfg adapter.Config) (producer, error) {
		pool, outbox, err := pgxoutbox.Open(context.Background(), address, pgxoutbox.OpenConfig{
			Node: cfg.Node, Publisher: cfg.Publisher, Relay: cfg.Relay, RelayedByLog: cfg.RelayedByLog,
		})
		if err != nil {
			return producer{}, err
		}
		return producer{Run: outbox.Run, InTx: func(ctx context.Context, fn func(transaction) error) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				return fn(&pgxTransaction{ctx: ctx, tx: tx, outbox: outbox})
			})
		}}, nil
	}
}

type pgxTransaction struct {
	ctx    context.Context
	tx     pgx.Tx
	outbox *core.Outbox
}

func (t *pgxTransaction) Exec(text string, args ...any) error {
	_, err := t.tx.Exec(t.ctx, placeholders(core.Postgres, text), args...)
	return err
}

func (t *pgxTransaction) Number(text string, args ...any) (n int64, err error) {
	return n, t.tx.QueryRow(t.ctx, placeholders(core.Postgres, text), args...).Scan(&n)
}

func (t *pgxTransaction) Publish(e core.Event) error {
	_, err := pgxoutbox.Publish(t.ctx, t.outbox, t.tx, e)
	return err
}

// withConnector writes with another way on a pool of the connector of pgxoutbox.
func withConnector(address string, write way) way {
	return func(d core.Dialect, _ *sql.DB, cfg adapter.Config) (producer, error) {
		config, err := pgx.ParseConfig(address)
		if err != nil {
			return producer{}, err
		}
		return write(d, sql.OpenDB(pgxoutbox.Connector(pgxoutbox.Config{Conn: *config})), cfg)
	}
}

// inTurn makes each producer write in another way, in their order.
func inTurn(ways ...way) way {
	next := 0
	return func(d core.Dialect, pool *sql.DB, cfg adapter.Config) (producer, error) {
		next++
		return ways[(next-1)%len(ways)](d, pool, cfg)
	}
}
