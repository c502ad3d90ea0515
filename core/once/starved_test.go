package once_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// pooledTx is a transaction that knows its pool.
type pooledTx struct {
	core.Tx
	stats func() sql.DBStats
}

func (t pooledTx) PoolStats() sql.DBStats { return t.stats() }

type pooledTransactor struct {
	core.Transactor
	stats func() sql.DBStats
}

func (r pooledTransactor) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	return r.Transactor.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		return fn(ctx, pooledTx{tx, r.stats})
	})
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
			var log bytes.Buffer
			before := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			defer slog.SetDefault(before)
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				r := pooledTransactor{outboxtest.NewRepository().Transactor(), func() sql.DBStats {
					return sql.DBStats{MaxOpenConnections: c.limit, InUse: c.inUse(time.Since(begun))}
				}}
				err := once.RetryTx(t.Context(), r, func(context.Context, core.Tx) error {
					time.Sleep(c.takes)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				time.Sleep(time.Hour) // nothing looks any more
			})
			if n := strings.Count(log.String(), "waits for itself"); n != c.told {
				t.Errorf("told %d times, want %d: %s", n, c.told, log.String())
			}
		})
	}
}
