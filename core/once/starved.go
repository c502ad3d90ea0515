package once

import (
	"database/sql"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// A function that asks its pool for a connection, and not its transaction, waits for ever when the
// transactions of functions hold all connections of the pool. Nothing fails then, so it is told.
// One transaction is told of once, so at most as many at a time as the pool has connections.
const starvedAfter = 5 * time.Second

// pooled is a Transactor that knows the pool of its transactions.
type pooled interface{ PoolStats() sql.DBStats }

// watchPool warns while the function of a transaction runs. The caller calls stop after the
// function.
func watchPool(t core.Transactor, tx core.Tx) (stop func()) {
	p, ok := t.(pooled)
	if !ok {
		return func() {}
	}
	before := p.PoolStats()
	if before.MaxOpenConnections <= 0 { // without limit
		return func() {}
	}
	begun := time.Now()
	var timer *time.Timer
	armed := make(chan struct{}) // closed when timer is set
	timer = time.AfterFunc(starvedAfter, func() {
		<-armed
		if s := p.PoolStats(); s.InUse < s.MaxOpenConnections || s.WaitCount == before.WaitCount {
			timer.Reset(starvedAfter)
			return
		}
		core.DefaultLogger().Warn("a function has run for seconds in its transaction, all connections of the pool are "+
			"in use, and something waits for one: if the function calls the pool, it waits for itself; let it use the "+
			"transaction of its context (FromContext), or raise SetMaxOpenConns",
			"for", time.Since(begun).Round(time.Second), "connections", before.MaxOpenConnections,
			"dialect", tx.Dialect())
	})
	close(armed)
	return func() { timer.Stop() }
}
