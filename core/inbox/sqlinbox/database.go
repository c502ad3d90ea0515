package sqlinbox

import (
	"context"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// database has the steps that take different statements, or more than one, on each database.
type database interface {
	// advance moves the newest event of a key, whose columns are key, up to seq, and reports
	// whether it was older.
	advance(ctx context.Context, tx core.Tx, key []any, seq int64) (newer bool, err error)

	// batchSize is how many events one statement inserts.
	batchSize() int
	// stillOpen fails when the caller's transaction has ended and only the server knows it.
	stillOpen(ctx context.Context, tx core.Tx) error
	// insertRows inserts those of the events that are new, and calls fresh with their keys. see
	// shows the rows that are there.
	insertRows(ctx context.Context, tx core.Tx, events []inbox.Event, fresh func(inbox.Key), see seeRows) error
	// seeRows returns the statement that locks the rows of keys. It names each key in full, so that
	// no planner reads all events of a handler.
	seeRows(keys []inbox.Key) (text string, args []any)
}

// seeRows locks the rows of keys. Then it shows each row, and how often an insert found it there.
type seeRows func(keys []inbox.Key, show func(k inbox.Key, r inboxRow, seen int64) error) error

// conflict is for the databases whose INSERT knows ON CONFLICT.
const conflict = " ON CONFLICT (consumer, handler, tenant_id, event_id) DO NOTHING"

// upsertLane implements advance in one statement.
type upsertLane struct{ advanceLane string }

const advanceLane = laneHead + "ON CONFLICT (consumer, handler, tenant_id, topic, partition_key) DO UPDATE SET " +
	"last_seq = " +
	"excluded.last_seq, " +
	"updated_at = excluded.updated_at WHERE k.last_seq < excluded.last_seq"

func (d upsertLane) advance(ctx context.Context, tx core.Tx, key []any, seq int64) (newer bool, err error) {
	n, err := tx.Exec(ctx, d.advanceLane, append(key, seq)...)
	return n == 1, err
}

// stillOpen returns nil: on these databases a transaction does not end without its caller.
func (upsertLane) stillOpen(context.Context, core.Tx) error { return nil }

// seeByKeys returns the end of a seeRows statement that names n keys one by one.
func seeByKeys(n int) string {
	return strings.Repeat("("+inboxIs+") OR ", n-1) + "(" + inboxIs + "){lock}"
}

// keysArgs are the parameters of seeByKeys.
func keysArgs(keys []inbox.Key) (args []any) {
	for _, k := range keys {
		args = append(args, keyArgs(k)...)
	}
	return args
}

// eventsArgs are the parameters of insertRows.
func eventsArgs(events []inbox.Event) (args []any) {
	for _, e := range events {
		args = append(args, eventArgs(e)...)
	}
	return args
}

// showFresh runs a statement that inserts events of one consumer and handler and returns the tenant
// and id of each. It calls fresh with each key.
func showFresh(ctx context.Context, tx core.Tx, first inbox.Key, fresh func(inbox.Key), text string, args []any) error {
	return sqlkit.EachRow(ctx, tx, text, args, func(rows core.Rows) error {
		k := first
		err := rows.Scan(&k.Tenant, &k.EventID)
		fresh(k)
		return err
	})
}
