package pgxoutbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Pool is a *pgxpool.Pool whose transactions are tracked to their commit: by Begin and BeginTx, and
// so by pgx.BeginFunc and pgx.BeginTxFunc. Its other methods are pgxpool's. A transaction that is
// begun on a connection of Acquire, AcquireFunc or AcquireAllIdle, or by a batch of SendBatch, is
// not tracked; see Publish.
//
// Open and OpenPool open one, and NewPool makes one of a pool that is there already. It may be used
// by several goroutines. Several Pools on the same *pgxpool.Pool count as the same.
type Pool struct{ *pgxpool.Pool }

// NewPool returns the Pool on pool. Closing either closes both. BEGIN costs a round trip, unless
// pool was configured with DeferBegin.
func NewPool(pool *pgxpool.Pool) *Pool { return &Pool{pool} }

// DeferBegin makes the connections of a pool send BEGIN together with the first statement of a
// transaction of a Pool. Call it before pgxpool.NewWithConfig; Open and OpenPool do so themselves.
// Config.EagerBegin says what differs then.
func DeferBegin(config *pgxpool.Config) { install(config.ConnConfig) }

func (p *Pool) check() error {
	if p == nil || p.Pool == nil {
		return errNilPool
	}
	return nil
}

// Begin begins a tracked transaction, as pgxpool.Pool.Begin does; see BeginTx.
func (p *Pool) Begin(ctx context.Context) (pgx.Tx, error) { return p.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx begins a tracked transaction, as pgxpool.Pool.BeginTx does. If the connection that it
// gets has died unused, it takes another one. The result behaves as pgx's transaction, with these
// differences:
//
//   - Events go to the server with COMMIT, or before a statement that might see that they are not
//     there yet. Their errors then come from Commit or from that statement. Event.Eager chooses
//     otherwise for one event. Begin, Conn and LargeObjects of the transaction, and texts that are
//     not known, make Publish write at once until the transaction ends.
//   - With DeferBegin, BEGIN goes with the first statement.
//   - Commit with a context that has ended sends ROLLBACK instead of closing the connection.
//     Rollback, and both ends of a nested transaction, are sent even if their context has ended.
//   - A nested transaction whose savepoint cannot be released is rolled back. If that cannot be
//     done either, Commit of the transaction rolls back.
//   - If events depend on the transaction and the answer to COMMIT was lost, or a statement had
//     ended the transaction (COMMIT as text), the error of Commit wraps core.ErrCommitUnknown.
//   - Around a statement that it cannot read, such as two prepared ones in one text, it sets the
//     savepoint outbox_guard.
//
// Statements that are sent past the transaction are not seen. So after a call of Conn, the outcome
// is unknown: events of the transaction wait for the poller. The same holds for a batch with
// savepoints or with names of prepared statements in it, and for TxOptions with a CommitQuery.
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
		s := sessionOf(conn.Conn())
		if err = s.begin(ctx, options); err == nil {
			return newNativeTx(p.Pool, conn, s, options), nil
		}
		s.leave()
		conn.Release()
		// Nothing has happened on this connection, so another one may begin.
		if tries <= 1 || ctx.Err() != nil || !s.closed() {
			return nil, err
		}
	}
}

func newNativeTx(pool *pgxpool.Pool, lent *pgxpool.Conn, s *session, options pgx.TxOptions) *nativeTx {
	t := &nativeTx{pool: pool, lent: lent, conn: s.pg, session: s, tracker: sqltx.NewTracker(core.Postgres)}
	t.own.of = t
	if options.CommitQuery != "" || s.status() != statusOpen {
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

// Transactor makes a core.Transactor of a Pool, for an inbox or for code of your own. In a function
// given to RunInTx, FromContext returns the pgx.Tx to work with. If pool is nil,
// core.CheckTransactor returns an error, and so do the functions that take the Transactor.
// Otherwise RunInTx returns it.
//
// Within a transaction of the same *pgxpool.Pool, RunInTx runs its function in a savepoint. If that
// transaction is over, the error wraps core.ErrNoTransaction. RunInTx returns nil only if the
// transaction is known to have committed. If a statement failed and the function ignored that,
// RunInTx rolls back and returns an error wrapping core.ErrTxAborted.
func Transactor(pool *Pool) core.Transactor { return &transactor{pool: pool} }

const owner = "pgxoutbox"

type transactor struct{ pool *Pool }

// Validate is for core.CheckTransactor.
func (r *transactor) Validate() error { return r.pool.check() }

// RunInTx implements core.Transactor.
func (r *transactor) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) (err error) {
	if fn == nil {
		return errors.New("pgxoutbox: RunInTx was given a nil function")
	}
	if err := r.Validate(); err != nil {
		return err
	}
	if outer, ok := core.TxFromContext(ctx); ok {
		if own, ok := outer.(*nativeCore); ok && own.of.pool == r.pool.Pool {
			return own.nested(ctx, fn)
		}
	}
	t, err := r.pool.begin(ctx, pgx.TxOptions{})
	if err != nil {
		return err
	}
	// without a callback, Commit would not report an unknown outcome
	t.own.OnOutcome(func(core.Outcome) {})
	ended := false
	defer func() {
		if !ended { // fn panicked, or called runtime.Goexit
			_ = t.Rollback(ctx)
		}
	}()
	err = fn(sqltx.ContextWithTx(ctx, &t.own, owner), &t.own)
	if err == nil {
		err = t.own.Err()
	}
	ended = true
	if err == nil {
		return t.Commit(ctx)
	}
	// if the rollback fails, the connection is closed, and the server rolls back
	_ = t.Rollback(ctx)
	return err
}

// nested runs fn in a savepoint.
func (c *nativeCore) nested(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	t := c.of
	t.depth++
	defer func() { t.depth-- }()
	return sqltx.RunInSavepoint(ctx, c, fmt.Sprintf("outbox_%d", t.depth), func() error { return fn(ctx, c) })
}
