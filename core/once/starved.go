package once

import (
	"database/sql"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// A function that asks its pool for a connection, and not its transaction, waits for ever when the
// transactions of functions hold all connections of the pool. Nothing fails then, so it is told. Not
// every pool counts who waits, so a pool that was full at each of several looks is enough. One
// transaction is told of once, so at most as many at a time as the pool has connections.
const (
	starvedLook  = time.Second
	starvedLooks = 5
)

// statsOf returns a function that asks the pool of a transaction, or nil if the pool is not known.
// A core.Tx has the method Pool of package sqloutbox, or PoolStats if its pool is no *sql.DB.
func statsOf(tx core.Tx) func() sql.DBStats {
	switch t := tx.(type) {
	case interface{ Pool() *sql.DB }:
		if pool := t.Pool(); pool != nil {
			return pool.Stats
		}
	case interface{ PoolStats() sql.DBStats }:
		return t.PoolStats
	}
	return nil
}

// watchPool warns while the function of a transaction runs. The caller calls stop after the
// function.
func watchPool(tx core.Tx) (stop func()) {
	stats := statsOf(tx)
	if stats == nil {
		return func() {}
	}
	begun, dialect := time.Now(), tx.Dialect()
	over := make(chan struct{})
	full := 0
	var look func()
	look = func() {
		select {
		case <-over:
			return
		default:
		}
		s := stats()
		if s.MaxOpenConnections <= 0 { // without limit
			return
		}
		if full++; s.InUse < s.MaxOpenConnections {
			full = 0
		}
		if full < starvedLooks {
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
