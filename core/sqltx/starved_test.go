package sqltx_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// pooledTx is a transaction that knows its pool.
type pooledTx struct {
	core.Tx
	stats func() sql.DBStats
}

func (t pooledTx) PoolStats() sql.DBStats { return t.stats() }

// countedTx is a transaction of a *sql.DB, which counts who waits.
type countedTx struct {
	core.Tx
	pool *sql.DB
}

func (t countedTx) Pool() *sql.DB { return t.pool }

// changed gives functions another transaction.
type changed struct {
	core.Transactor
	tx func(core.Tx) core.Tx
}

func (c changed) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	return c.Transactor.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error { return fn(ctx, c.tx(tx)) })
}

// idle makes connections that do nothing.
type idle struct{ driver.Conn }

func (c idle) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (idle) Driver() driver.Driver                          { return nil }
func (idle) Close() error                                   { return nil }

// toldWhile counts the warnings while run runs in a bubble.
func toldWhile(t *testing.T, run func(t *testing.T)) int {
	t.Helper()
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	synctest.Test(t, run)
	return strings.Count(log.String(), "waits for itself")
}

// A function that holds the last connection of its pool is told of once, and only then.
//
//nolint:paralleltest // it replaces the default logger
func TestAFunctionThatHoldsTheLastConnection(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		inUse func(after time.Duration) int // of two
		limit int
		told  int
	}{
		"full":               {time.Hour, func(time.Duration) int { return 2 }, 2, 1},
		"one is free":        {time.Hour, func(time.Duration) int { return 1 }, 2, 0},
		"no limit":           {time.Hour, func(time.Duration) int { return 2 }, 0, 0},
		"the function ended": {4 * time.Second, func(time.Duration) int { return 2 }, 2, 0},
		"one is free now and then": {
			time.Hour, func(after time.Duration) int { return 2 - int(after/time.Second)%4/3 }, 2, 0,
		},
		"full later": {time.Hour, func(after time.Duration) int { return 1 + int(after/time.Minute) }, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			told := toldWhile(t, func(t *testing.T) {
				begun := time.Now()
				stats := func() sql.DBStats {
					return sql.DBStats{MaxOpenConnections: c.limit, InUse: c.inUse(time.Since(begun))}
				}
				r := changed{outboxtest.NewRepository().Transactor(), func(tx core.Tx) core.Tx {
					return pooledTx{tx, stats}
				}}
				err := sqltx.RetryTx(t.Context(), r, func(context.Context, core.Tx) error {
					time.Sleep(c.takes)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				time.Sleep(time.Hour) // nothing looks any more
			})
			if told != c.told {
				t.Errorf("told %d times, want %d", told, c.told)
			}
		})
	}
}

// A pool of one is full in every transaction. That is told of only where somebody waits.
//
//nolint:paralleltest // it replaces the default logger
func TestAPoolOfOneForWhichNobodyWaits(t *testing.T) {
	for name, c := range map[string]struct{ before, waits time.Duration }{
		"nobody waits":          {},
		"somebody waited once":  {before: time.Second},
		"the function waits":    {waits: time.Hour},
		"the function gives up": {waits: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			told := toldWhile(t, func(t *testing.T) {
				pool := sql.OpenDB(idle{})
				defer func() { _ = pool.Close() }()
				pool.SetMaxOpenConns(1)
				wait := func(d time.Duration) {
					ctx, cancel := context.WithTimeout(t.Context(), d)
					defer cancel()
					_ = pool.PingContext(ctx)
				}
				held, err := pool.Conn(t.Context()) // by the transaction
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = held.Close() }()
				wait(c.before)
				r := changed{outboxtest.NewRepository().Transactor(), func(tx core.Tx) core.Tx {
					return countedTx{tx, pool}
				}}
				err = sqltx.RetryTx(t.Context(), r, func(context.Context, core.Tx) error {
					wait(c.waits)
					if c.waits == 0 {
						time.Sleep(time.Hour)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			if want := int(c.waits / time.Hour); told != want {
				t.Errorf("told %d times, want %d", told, want)
			}
		})
	}
}
