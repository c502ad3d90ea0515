package gormoutbox

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// pool replaces a pool of GORM and begins tracked transactions. It is always used by pointer,
// because GORM and dbresolver compare pools. It implements only gorm.ConnPoolBeginner and not
// gorm.TxBeginner, because GORM would prefer the latter.
type pool struct {
	gorm.ConnPool
	dialect core.Dialect
	ob      *Outbox // its callbacks report prepared statements; nil without the plugin
}

var (
	_ gorm.ConnPoolBeginner = (*pool)(nil)
	_ gorm.GetDBConnector   = (*pool)(nil)
	_ gorm.Tx               = (*txPool)(nil)
	_ gorm.GetDBConnector   = (*txPool)(nil)
)

// wrapPools replaces the pool that db uses with a pool of this package. A PreparedStmtDB stays
// outermost, because GORM looks for it when it sets savepoints.
func (o *Outbox) wrapPools(db *gorm.DB) {
	if ps, ok := db.ConnPool.(*gorm.PreparedStmtDB); ok {
		ps.ConnPool = o.wrap(ps.ConnPool)
		return
	}
	db.ConnPool = o.wrap(db.ConnPool)
	if db.Statement != nil {
		db.Statement.ConnPool = db.ConnPool
	}
}

// wrap returns a pool around p. It returns p itself if p is wrapped already or cannot begin
// transactions.
func (o *Outbox) wrap(p gorm.ConnPool) gorm.ConnPool { return wrapPool(p, o.own.Dialect(), o) }

func wrapPool(p gorm.ConnPool, d core.Dialect, o *Outbox) gorm.ConnPool {
	switch c := p.(type) {
	case *pool, gorm.TxCommitter:
		return p
	case *gorm.PreparedStmtDB:
		inner := wrapPool(c.ConnPool, d, o)
		if inner == c.ConnPool {
			return p
		}
		return &gorm.PreparedStmtDB{Stmts: c.Stmts, Mux: c.Mux, ConnPool: inner}
	case gorm.TxBeginner, gorm.ConnPoolBeginner:
		return &pool{ConnPool: p, dialect: d, ob: o}
	}
	return p
}

// checkAround refuses another plugin's pool around this package's, such as gorm.io/sharding's. It
// would pass GORM's COMMIT of a single statement on to the transaction of the program. The
// statement caches of GORM do not.
func checkAround(conn gorm.ConnPool) error {
	outer, foreign := conn, false
	for {
		switch c := conn.(type) {
		case *pool, *txPool:
			if foreign {
				return fmt.Errorf("%w: the %T of another plugin stands around the pool, and would commit a "+
					"transaction with its first statement: use a *gorm.DB without that plugin", core.ErrUntracked,
					outer)
			}
			return nil
		case *gorm.PreparedStmtDB:
			conn = c.ConnPool
		case *gorm.PreparedStmtTX:
			conn = c.Tx
		default:
			v := reflect.Indirect(reflect.ValueOf(conn))
			if v.Kind() != reflect.Struct {
				return nil
			}
			inner := v.FieldByName("ConnPool")
			if !inner.IsValid() || !inner.CanInterface() {
				return nil
			}
			conn, _ = reflect.TypeAssert[gorm.ConnPool](inner)
			foreign = true
		}
	}
}

// BeginTx begins a tracked transaction.
func (p *pool) BeginTx(ctx context.Context, opts *sql.TxOptions) (gorm.ConnPool, error) {
	var foreign gorm.ConnPool
	own, _ := p.GetDBConn() // nil if another plugin hides it
	tx, err := sqltx.Follow(ctx, own, p.dialect, func(ctx context.Context) (sqltx.TxConn, error) {
		switch b := p.ConnPool.(type) {
		case gorm.TxBeginner:
			tx, err := b.BeginTx(ctx, opts)
			if err != nil {
				return nil, err
			}
			return tx, nil
		case gorm.ConnPoolBeginner:
			conn, err := b.BeginTx(ctx, opts)
			if err != nil {
				return nil, err
			}
			if tx, ok := conn.(gorm.Tx); ok {
				return tx, nil
			}
			foreign = conn
		}
		return nil, gorm.ErrInvalidTransaction
	})
	switch {
	case foreign != nil:
		return foreign, nil // a transaction of another plugin, which cannot be tracked
	case err != nil:
		return nil, err
	}
	return newTxPool(tx, p), nil
}

// GetDBConn is needed by db.DB.
func (p *pool) GetDBConn() (*sql.DB, error) {
	switch c := p.ConnPool.(type) {
	case *sql.DB:
		return c, nil
	case gorm.GetDBConnector:
		return c.GetDBConn()
	}
	return nil, gorm.ErrInvalidDB
}

// Ping is needed by GORM's check of the connection.
func (p *pool) Ping() error {
	if c, ok := p.ConnPool.(interface{ Ping() error }); ok {
		return c.Ping()
	}
	return nil
}

// dbresolver calls the setters below.

// SetMaxOpenConns sets the limit of the inner pool.
func (p *pool) SetMaxOpenConns(n int) {
	if c, ok := p.ConnPool.(interface{ SetMaxOpenConns(int) }); ok {
		c.SetMaxOpenConns(n)
	}
}

// SetMaxIdleConns sets the limit of the inner pool.
func (p *pool) SetMaxIdleConns(n int) {
	if c, ok := p.ConnPool.(interface{ SetMaxIdleConns(int) }); ok {
		c.SetMaxIdleConns(n)
	}
}

// SetConnMaxLifetime sets the limit of the inner pool.
func (p *pool) SetConnMaxLifetime(d time.Duration) {
	if c, ok := p.ConnPool.(interface{ SetConnMaxLifetime(time.Duration) }); ok {
		c.SetConnMaxLifetime(d)
	}
}

// SetConnMaxIdleTime sets the limit of the inner pool.
func (p *pool) SetConnMaxIdleTime(d time.Duration) {
	if c, ok := p.ConnPool.(interface{ SetConnMaxIdleTime(time.Duration) }); ok {
		c.SetConnMaxIdleTime(d)
	}
}

// txPool is a transaction of pool. It is used by pointer, because GORM checks by reflection whether
// it is nil.
type txPool struct {
	*sqltx.Tx
	pool *pool
	own  bool // GORM has begun it for one statement, and does not roll it back after a panic

	mu       sync.Mutex
	prepared map[*sql.Stmt]bool // prepared here, not executed through StmtContext
	unseen   int                // executions of prepared statements that no callback has reported yet
}

func newTxPool(tx *sqltx.Tx, p *pool) *txPool {
	return &txPool{Tx: tx, pool: p, prepared: map[*sql.Stmt]bool{}}
}

// ExecContext runs a statement. GORM sends its ROLLBACK TO with the context of the nested
// transaction. If that context has ended, the statement would fail, GORM would ignore the failure,
// and the outer transaction would commit changes that were to be rolled back.
func (t *txPool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if strings.HasPrefix(query, "ROLLBACK TO ") {
		ctx = context.WithoutCancel(ctx)
	}
	return t.Tx.ExecContext(ctx, query, args...)
}

// PrepareContext prepares the statements that a PreparedStmtTX then executes through StmtContext.
func (t *txPool) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if err := t.Before(ctx, ""); err != nil {
		return nil, err
	}
	stmt, err := t.Tx.Conn().PrepareContext(ctx, query)
	if err != nil {
		t.Observe("", nil, err)
		return nil, err
	}
	t.mu.Lock()
	t.prepared[stmt] = true
	t.mu.Unlock()
	return stmt, nil
}

// StmtContext implements gorm.Tx. Statements that are executed through its result do not pass
// through t; the callbacks report them.
func (t *txPool) StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt {
	if err := t.Before(ctx, ""); err != nil {
		ctx = sqltx.ContextWithError(ctx, err)
	}
	t.mu.Lock()
	delete(t.prepared, stmt)
	t.unseen++
	t.mu.Unlock()
	return t.Tx.Conn().(gorm.Tx).StmtContext(ctx, stmt)
}

// seen notes that the callbacks have reported one execution of a prepared statement.
func (t *txPool) seen() {
	t.mu.Lock()
	t.unseen = max(0, t.unseen-1)
	t.mu.Unlock()
}

// Commit commits. If prepared statements were executed outside GORM's callbacks, their effect on
// the transaction is not known.
func (t *txPool) Commit() error {
	t.mu.Lock()
	doubt := t.unseen > 0 || len(t.prepared) > 0
	t.mu.Unlock()
	if doubt {
		t.Unseen()
	}
	return t.Tx.Commit()
}

// GetDBConn is needed by tx.DB.
func (t *txPool) GetDBConn() (*sql.DB, error) { return t.pool.GetDBConn() }

// Ping is needed by PreparedStmtTX.
func (t *txPool) Ping() error { return t.pool.Ping() }
