package pgxoutbox

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Pool is a *pgxpool.Pool whose transactions are tracked to their commit: those of Begin and
// BeginTx, and so those of pgx.BeginFunc and pgx.BeginTxFunc. Its other methods are those of the
// pool below. A transaction that is begun on a connection of Acquire, AcquireFunc or
// AcquireAllIdle, or by a batch of SendBatch, is not tracked; see Publish.
//
// Create a Pool with NewPool. It may be used by several goroutines. Several Pools on the same
// *pgxpool.Pool count as the same.
type Pool struct{ *pgxpool.Pool }

// NewPool returns the Pool on pool. Closing either closes both.
func NewPool(pool *pgxpool.Pool) *Pool { return &Pool{pool} }

func (p *Pool) check() error {
	if p == nil || p.Pool == nil {
		return errNilPool
	}
	return nil
}

// Begin begins a tracked transaction, as pgxpool.Pool.Begin does; see BeginTx.
func (p *Pool) Begin(ctx context.Context) (pgx.Tx, error) { return p.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx begins a tracked transaction, as pgxpool.Pool.BeginTx does. If the connection that it
// gets has died unused, it takes another one. The result behaves as that of pgx, with these
// differences:
//
//   - Commit with a context that has ended sends ROLLBACK instead of closing the connection.
//     Rollback, and both ends of a nested transaction, are sent even if their context has ended.
//   - A nested transaction whose savepoint cannot be released is rolled back. If that cannot be
//     done either, Commit of the transaction rolls back.
//   - If events depend on the transaction and the answer to COMMIT was lost, or a statement had
//     ended the transaction (COMMIT as text), the error of Commit wraps core.ErrCommitUnknown.
//   - Around a statement that it cannot read, such as two prepared ones in one text, it sets the
//     savepoint outbox_guard.
//
// Statements that are sent past the transaction are not seen. So after Conn was called, the commit
// is not heard for sure: events of the transaction wait for the poller. The same holds for a batch
// with savepoints or with names of prepared statements in it, and for TxOptions with a CommitQuery.
func (p *Pool) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	t, err := p.begin(ctx, options)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (p *Pool) begin(ctx context.Context, options pgx.TxOptions) (*nativeTx, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	for tries := int(p.Stat().IdleConns()) + 1; ; tries-- {
		conn, err := p.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		own := conn.Conn()
		inner, err := own.BeginTx(ctx, options)
		if err == nil {
			return newNativeTx(p.Pool, conn, inner, options), nil
		}
		conn.Release()
		// Nothing has happened on this connection, so another one may begin.
		if tries <= 1 || ctx.Err() != nil || !own.IsClosed() {
			return nil, err
		}
	}
}

func newNativeTx(pool *pgxpool.Pool, lent *pgxpool.Conn, inner pgx.Tx, options pgx.TxOptions) *nativeTx {
	t := &nativeTx{
		pool: pool, lent: lent, inner: inner, conn: lent.Conn(), tracker: sqltx.NewTracker(core.Postgres),
	}
	t.own.of = t
	if options.CommitQuery != "" || t.status() != statusOpen {
		t.pass()
	}
	return t
}

// Statuses that PostgreSQL reports after each statement; see pgconn.PgConn.TxStatus.
const (
	statusNone   = 'I'
	statusOpen   = 'T'
	statusFailed = 'E'
)
