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
	// insertRows inserts those of the events of a handler that are new, and calls fresh with their
	// keys. see shows the rows that are there.
	insertRows(ctx context.Context, tx core.Tx, h *handler, events []inbox.Event, fresh func(inbox.Key),
		see seeRows) error
	// seeRows returns the statement that locks the rows of keys. It names each key in full, so that
	// no planner reads all events of a handler.
	seeRows(h *handler, keys []inbox.Key) (text string, args []any)

	// handlerID returns what stands for a handler of a consumer in {seen}.
	handlerID(consumer, name string) any
}

// seeRows locks the rows of keys. Then it shows each row.
type seeRows func(keys []inbox.Key, show func(k inbox.Key, r seenBefore) error) error

// seenBefore is a row of {seen}.
type seenBefore struct {
	processed int   // 1: its event was processed
	copies    int64 // how often an INSERT found the row, where that is counted
}

// These are for the databases whose INSERT knows ON CONFLICT.
const (
	conflict        = " ON CONFLICT (handler_id, tenant_id, event_id) DO NOTHING"
	failureConflict = " ON CONFLICT (consumer, handler, tenant_id, event_id) DO NOTHING"
	listConflict    = " ON CONFLICT (handler_id) DO NOTHING"
	programAgain    = " ON CONFLICT (handler_id, program) DO UPDATE SET topic = excluded.topic, " +
		"seen_at = excluded.seen_at"
)

const listHandler = "INSERT INTO {handler} (handler_id, consumer, handler) VALUES (?, ?, ?)"

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
	return strings.Repeat("("+seenIs+") OR ", n-1) + "(" + seenIs + "){lock}"
}

// keysArgs are the parameters of seeByKeys.
func keysArgs(h *handler, keys []inbox.Key) (args []any) {
	for _, k := range keys {
		args = append(args, h.key(k)...)
	}
	return args
}

// eventsArgs are the parameters of insertRows.
func eventsArgs(h *handler, events []inbox.Event) (args []any) {
	for _, e := range events {
		args = append(args, seenArgs(h, e)...)
	}
	return args
}

// showFresh runs a statement that inserts events of a handler and returns the tenant and id of
// each. It calls fresh with each key.
func showFresh(ctx context.Context, tx core.Tx, h *handler, fresh func(inbox.Key), text string, args []any) error {
	return sqlkit.EachRow(ctx, tx, text, args, func(rows core.Rows) error {
		k := inbox.Key{Consumer: h.consumer, Handler: h.name}
		err := rows.Scan(&k.Tenant, &k.EventID)
		fresh(k)
		return err
	})
}
