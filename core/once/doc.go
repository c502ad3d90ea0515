// Package once runs a piece of work once per key. Consumers of messages, HTTP endpoints with an
// Idempotency-Key, and commands use it. The first call with a key runs the work. Later calls get
// its result.
//
//	store, err := sqlonce.New(pool, sqlonce.Config{}) // PostgreSQL, MariaDB, MySQL 8, SQLite
//	runner, err := once.New(once.Config{Store: store})
//	key := once.Key{Scope: once.Scope("POST", "/payments"), Tenant: customer, ID: idempotencyKey}
//
// There are two forms.
//
// Prefer the transaction form, RunInTx and DoTx. The key is a row of the same transaction as the
// effects of the work, so both commit or neither does. The effects happen exactly once, even if a
// process crashes. The effects must be in the same database.
//
//	res, replayed, err := runner.RunInTx(ctx, transactor, key, once.FingerprintOf(body),
//		func(ctx context.Context, tx core.Tx) (once.Result, error) { ... })
//
// The lease form, Do, is for work with effects elsewhere: a call to a payment provider, a mail. A
// lease holds the key and is extended while the work runs. The key is marked done after the work.
// If a process dies in between, its lease ends, and the work is run again. So the work runs at
// least once, and once when nothing fails. Give the other side the key too, or the fence
// ([ClaimOf]).
//
//	res, replayed, err := runner.Do(ctx, key, once.FingerprintOf(body),
//		func(ctx context.Context) (once.Result, error) { ... })
//
// A Fingerprint distinguishes a repeated request from a reuse of the key for other work. The other
// work is refused. Results are kept for [Config.TTL]. Then Run deletes them.
//
// Store and TxStore are for authors of stores. Package outboxtest has the suites they pass, and a
// store in memory for tests.
package once
