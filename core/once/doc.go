// Package once runs a piece of work once per key: what consumers of messages, HTTP endpoints with
// an Idempotency-Key, and commands have in common. The first who comes with a key runs the work;
// whoever comes later gets its result.
//
//	store, err := sqlonce.New(pool, sqlonce.Config{}) // PostgreSQL, MariaDB, MySQL 8, SQLite
//	runner, err := once.New(once.Config{Store: store})
//	key := once.Key{Scope: once.Scope("POST", "/payments"), Tenant: customer, ID: idempotencyKey}
//
// There are two forms, and the difference matters.
//
// The transaction form, RunInTx and DoTx, is the one to prefer. The key is a row of the same
// transaction as the effects of the work, so both commit or neither does: the effects happen
// exactly once, whoever crashes when. It needs the effects to be in the same database.
//
//	res, replayed, err := runner.RunInTx(ctx, transactor, key, once.FingerprintOf(body),
//		func(ctx context.Context, tx core.Tx) (once.Result, error) { ... })
//
// The lease form, Do, is for work whose effects are elsewhere: a call to a payment provider, a
// mail. The key is held by a lease that is extended while the work runs, and marked done after it.
// A process that dies in between leaves a key whose lease ends, and the work is run again: at least
// once, and once when nothing fails. Give the other side the key too, or the fence (ClaimOf).
//
//	res, replayed, err := runner.Do(ctx, key, once.FingerprintOf(body),
//		func(ctx context.Context) (once.Result, error) { ... })
//
// A Fingerprint tells a repeated request from one that reuses the key for something else, which is
// refused. Results are kept for Config.TTL; Run deletes them then.
//
// Store and TxStore are for authors of stores; package outboxtest has the suites they pass, and a
// store in memory for everybody's tests.
package once
