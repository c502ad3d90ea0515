package sqltx

import (
	"database/sql"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// A function that asks its pool for a connection, and not its transaction, waits for ever when the
// transactions of functions hold all connections of the pool. Nothing fails then, so a warning is
// logged when each of several looks has found the pool full and a caller waiting. Each transaction
// is logged once, so there are at most as many warnings at a time as the pool has connections.
const (
	starvedLook  = time.Second
	starvedLooks = 5
)

// txPool is the pool of a transaction.
type txPool struct {
	stats func() sql.DBStats
	// uncounted: the pool does not count who waits, so it is enough that it is full.
	uncounted bool
}

// txPoolOf returns the pool of a transaction; stats is nil if the pool is not known. A Tx has the
// method Pool of package sqloutbox, or PoolStats if its pool is no *sql.DB.
func txPoolOf(tx core.Tx) txPool {
	switch t := tx.(type) {
	case interface{ Pool() *sql.DB }:
		if pool := t.Pool(); pool != nil {
			return txPool{stats: pool.Stats}
		}
	case interface{ PoolStats() sql.DBStats }:
		return txPool{stats: t.PoolStats, uncounted: true}
	}
	return txPool{}
}

// watchPool warns while the function of a transaction runs. The caller calls stop after the
// function.
func watchPool(tx core.Tx) (stop func()) {
	pool := txPoolOf(tx)
	if pool.stats == nil {
		return func() {}
	}
	begun, dialect := time.Now(), tx.Dialect()
	waited := pool.stats().WaitCount // callers that have got their connection
	over := make(chan struct{})
	starved := 0
	var look func()
	look = func() {
		select {
		case <-over:
			return
		default:
		}
		s := pool.stats()
		switch {
		case s.MaxOpenConnections <= 0: // without limit
			return
		case s.InUse < s.MaxOpenConnections:
			starved, waited = 0, s.WaitCount
		case pool.uncounted || s.WaitCount > waited:
			starved++
		}
		if starved < starvedLooks {
			time.AfterFunc(starvedLook, look)
			return
		}
		core.DefaultLogger().Warn("a function has run for seconds in its transaction, and all connections of the pool "+
			"have been in use: if the function calls the pool, it waits for itself; let it use the transaction of its "+
			"context (FromContext), or raise the limit of the pool (SetMaxOpenConns, or MaxConns of pgx)",
			"for", time.Since(begun).Round(time.Second), "connections", s.MaxOpenConnections, "dialect", dialect)
	}
	timer := time.AfterFunc(starvedLook, look)
	return func() {
		timer.Stop()
		close(over)
	}
}
