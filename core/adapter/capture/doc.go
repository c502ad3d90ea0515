// Package capture is for authors of adapters. It finds the rows that a statement changed and writes
// their events. The database names the rows: by RETURNING where it has it, else by locked reads
// with the statement's own conditions. Nothing is concluded from the models in memory.
//
// An adapter is the last place before the database. It hands the final text of a statement to a
// Capture, which sends statements through the adapter's Session:
//
//	c := capture.New(statement, tx) // before the statement is sent
//	res, err := c.Exec(ctx, session, text, args)
//	...                             // the ORM reads its result
//	err = c.Tell(ctx, publish)      // On functions, recorded events, one Publish
//
// From New until Tell has succeeded the transaction refuses to commit, unless no row was changed or
// the database refused the statement. So a panic on the way cannot commit a row without its events.
package capture
