package crash

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// openPGX opens pools of pgx. The commits of the writers pass the points of the trap.
func openPGX(dsn string, t *trap) (begin func(context.Context) (Transaction, error), repo core.Repository, err error) {
	business, err := pgxPool(dsn, t)
	if err != nil {
		return nil, nil, err
	}
	plain, err := pgxPool(dsn, nil)
	if err != nil {
		return nil, nil, err
	}
	repo, err = pgxoutbox.NewRepository(plain, sqloutbox.Config{})
	pool := pgxoutbox.NewPool(business)
	return func(ctx context.Context) (Transaction, error) {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return nil, err
		}
		own, err := pgxoutbox.TxOf(ctx, tx)
		return pgxTransaction{own, tx}, err
	}, repo, err
}

func pgxPool(dsn string, t *trap) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 8
	if t != nil {
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &trappedNet{Conn: c, trap: t}, nil
		}
		config.ConnConfig.Tracer = trappedCommits{t}
		pgxoutbox.DeferBegin(config)
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}

// trappedCommits passes the points before and after COMMIT, which is a statement alone or the last one
// of a batch.
type trappedCommits struct{ trap *trap }

var _ pgx.BatchTracer = trappedCommits{}

type commitKey struct{}

func (c trappedCommits) TraceQueryStart(
	ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData,
) context.Context {
	if !strings.EqualFold(data.SQL, "commit") {
		return ctx
	}
	c.trap.at(BeforeCommit)
	return context.WithValue(ctx, commitKey{}, true)
}

func (c trappedCommits) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if commit, _ := ctx.Value(commitKey{}).(bool); commit && data.Err == nil {
		c.trap.at(BeforeEnqueue)
	}
}

func (c trappedCommits) TraceBatchStart(
	ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData,
) context.Context {
	all := data.Batch.QueuedQueries
	if len(all) == 0 || !strings.EqualFold(all[len(all)-1].SQL, "commit") {
		return ctx
	}
	c.trap.at(BeforeCommit)
	if wire, ok := conn.PgConn().Conn().(*trappedNet); ok {
		wire.flight = true
	}
	return context.WithValue(ctx, commitKey{}, true)
}

func (trappedCommits) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (c trappedCommits) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	if wire, ok := conn.PgConn().Conn().(*trappedNet); ok {
		wire.flight = false
	}
	c.TraceQueryEnd(ctx, conn, pgx.TraceQueryEndData{Err: data.Err})
}

// pgxTransaction is a transaction of pgx with the methods of a Transaction.
type pgxTransaction struct {
	core.Tx
	tx pgx.Tx
}

func (t pgxTransaction) Commit() error { return t.tx.Commit(context.Background()) }

func (t pgxTransaction) Rollback() error {
	if err := t.tx.Rollback(context.Background()); !errors.Is(err, pgx.ErrTxClosed) {
		return err
	}
	return nil
}

// Pool implements the method by which sqloutbox finds the pool of a transaction.
func (t pgxTransaction) Pool() sqloutbox.Pool {
	return t.Tx.(interface{ Pool() sqloutbox.Pool }).Pool()
}
