// Package pgxoutbox is for PostgreSQL over pgx: under database/sql, and alone.
//
// # Under database/sql
//
// Connector opens pools with tracked transactions. GORM, Ent, Bun, sqlx and database/sql run on
// them as on any other pool:
//
//	pool := sql.OpenDB(pgxoutbox.Connector(pgxoutbox.Config{Conn: *connConfig}))
//
// It wraps pgx's own connector like sqltx.Connector, so every transaction of the pool is tracked,
// and sqltx.TxOf finds it. It also saves two round trips. BEGIN goes to the server together with
// the first statement of the transaction. The rows of Publish go together with COMMIT. A claim of
// the relay is one round trip, BEGIN and COMMIT included.
//
// A row that waits for COMMIT is a promise that this connection sees the COMMIT. So rows wait only
// while statements pass that are known to be harmless: SELECT, INSERT, UPDATE, DELETE, WITH, MERGE
// and VALUES, one at a time, that do not name the tables of the outbox. Every other statement sends
// them first. After a savepoint, and after texts that are not known, events are written by Publish
// until the transaction ends.
//
// With Listen, a relay in a process of its own learns of commits at once. It works with any pool.
//
// # Native pgx
//
// A Pool is a *pgxpool.Pool whose transactions are tracked. Publish records events in a pgx.Tx. BEGIN
// and the events are sent as by Connector; see DeferBegin. The outbox of New or Open works on the same
// pool, without database/sql:
//
//	pool, ob, err := pgxoutbox.Open(ctx, dsn, pgxoutbox.OpenConfig{Publisher: publisher, AutoCreate: true})
//	go ob.Run(ctx)
//	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		...
//		_, err := pgxoutbox.Publish(ctx, ob, tx, core.Event{Type: "order.placed", Key: "order/7", Data: order})
//		return err
//	})
//
// Transactor runs functions in transactions of a Pool, for an inbox for example.
package pgxoutbox
