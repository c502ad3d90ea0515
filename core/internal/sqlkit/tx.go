package sqlkit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

const (
	tries     = 10
	firstWait = 2 * time.Millisecond
	maxWait   = 200 * time.Millisecond
	patience  = 20 * time.Second // a lock wait that times out has already taken long
)

// Retry runs fn, and runs it again after a deadlock or a serialization failure. It makes at most
// ten attempts within twenty seconds, after random pauses that grow. fn must be a transaction of
// its own. Never use Retry inside a transaction: on MariaDB a deadlock has rolled everything back.
func Retry(ctx context.Context, fn func() error) error {
	wait, start := firstWait, time.Now()
	for try := 1; ; try++ {
		err := fn()
		if err == nil || try == tries || time.Since(start) > patience || ctx.Err() != nil || !sqlerr.Retryable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rand.N(wait) + wait/8):
		}
		wait = min(2*wait, maxWait)
	}
}

// InTx runs fn in a transaction of its own and repeats it as Retry does. The transaction is READ
// COMMITTED. On SQLite it is BEGIN IMMEDIATE: a transaction that begins by reading would fail at
// its first write if another transaction had written meanwhile. If ctx ended the transaction, the
// error wraps that of ctx: database/sql alone says sql.ErrTxDone.
func InTx(ctx context.Context, db *sql.DB, d core.Dialect, fn func(c Conn) error) error {
	in := of(d)
	err := Retry(ctx, func() error { return in.inTx(ctx, db, fn) })
	if ended := ctx.Err(); ended != nil && errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

// readCommitted is inTx for the databases that have this isolation.
type readCommitted struct{}

func (readCommitted) inTx(ctx context.Context, db *sql.DB, fn func(c Conn) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}
