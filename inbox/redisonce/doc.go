// Package redisonce keeps the keys of package once in Redis, in the lease form: at least once, with
// strong deduplication.
//
//	store, err := redisonce.New(client, redisonce.Config{})
//	err = store.Check(ctx) // at start: refuses a server that may evict keys
//	runner, err := once.New(once.Config{Store: store, TTL: 7 * 24 * time.Hour})
//
// A key is held by a lease that is extended while the work runs, and is marked done after the work.
// The effects of the work and its mark are not written together. So work runs again if the process
// dies between the two, if a holder stands still for longer than its lease, and if Redis forgets:
// by eviction, by a restart without persistence, by a failover before the replica had the write.
// The work always runs at least once. Where the effects are in a SQL database, prefer the
// transaction form of package sqlonce, in which they happen once.
//
// When Redis does not answer, nothing runs: the error of the Runner wraps once.ErrStore. With that
// error a consumer does not acknowledge, and a server answers 503. [Config.FailOpen] is for work
// that should rather be done twice than late.
//
// Cache is separate: it is a memory in front of a database that keeps the keys itself. A Cache can
// only answer "done before", and so save a transaction.
package redisonce
