package sqlinbox

import (
	"strings"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

const (
	inboxIs      = "consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?"
	inboxColumns = 13 // the number of columns that eventArgs returns

	inboxHead = "INSERT INTO {inbox} (consumer, handler, tenant_id, event_id, event_type, event_version, " +
		"aggregate_type, aggregate_id, partition_key, key_seq, " +
		"source_topic, source_partition, source_offset, status, attempts, received_at, updated_at, processed_at) "
	inboxRowText = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
	inboxDone    = inboxRowText + "2, 1, {now}, {now}, {now}"
	inboxOpened  = inboxRowText + "0, 0, {now}, {now}, NULL"

	laneHead = "INSERT INTO {inbox_key} AS k (consumer, handler, tenant_id, topic, partition_key, last_seq, " +
		"updated_at) VALUES (?, ?, ?, ?, ?, ?, {now}) "
	laneIs = "consumer = ? AND handler = ? AND tenant_id = ? AND topic = ? AND partition_key = ?"
)

// statements are the statements about {inbox} and {inbox_key}.
type statements struct {
	see, seeFailed, take, fail, redrive string
	dead                                string // without its end; its parameters are written as ?

	open, cleanupKeys string
	insert            sqlstore.Insert
	cleanup           sqlstore.Cleanup
	database          database
}

// variant has those of the statements that are different on each database.
type variant struct {
	// unless ends an INSERT that leaves an existing event unchanged; see sqlstore.Insert.
	unless      string
	guarded     string // see sqlstore.Insert
	cleanupKeys string
	cleanup     func(n sqlstore.Names) sqlstore.Cleanup
	database    func(n sqlstore.Names) database
}

var variants = sqlstore.Each[variant]{Postgres: postgresVariant, MySQL: mysqlVariant, SQLite: sqliteVariant}

// newStatements returns the statements of a configuration.
func newStatements(n sqlstore.Names) *statements {
	v, text := variants.Of(n), n.Statement
	return &statements{
		see:       text("SELECT status, attempts, {left:updated_at} FROM {inbox} WHERE " + inboxIs + "{lock}"),
		seeFailed: text("SELECT status, attempts, {left:received_at} FROM {inbox} WHERE " + inboxIs + "{lock}"),
		take: text("UPDATE {inbox} SET status = 2, attempts = attempts + 1, last_error_code = NULL, " +
			"last_error = NULL, " +
			"failed_at = NULL, updated_at = {now}, " +
			"processed_at = {now} WHERE " + inboxIs),
		fail: text("UPDATE {inbox} SET status = ?, attempts = ?, last_error_code = ?, last_error = ?, failed_at = " +
			"{now}, " +
			"updated_at = {now} WHERE " + inboxIs),
		redrive: text("UPDATE {inbox} SET status = 0, attempts = 0, last_error_code = 'redriven', last_error = ?, " +
			"received_at = {now}, updated_at = {now} WHERE " +
			inboxIs + " AND status = 4"),
		dead: n.Expand("SELECT consumer, handler, tenant_id, event_id, COALESCE(event_type,''), event_version, " +
			"COALESCE(aggregate_type,''), COALESCE(aggregate_id,''), " +
			"COALESCE(partition_key,''), COALESCE(key_seq,0), COALESCE(source_topic,''), " +
			"COALESCE(source_partition,0), " +
			"COALESCE(source_offset,0), " +
			"source_offset IS NOT NULL, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), " +
			"{us:received_at}, COALESCE({us:failed_at},0) " +
			// The last condition is that of the partial index. Without it SQLite does not use the
			// index.
			"FROM {inbox} WHERE consumer = ? AND status = 4 AND status <> 2"),

		open:        text(inboxHead + "VALUES (" + inboxOpened + ")" + v.unless),
		cleanupKeys: text(v.cleanupKeys),
		insert: sqlstore.Insert{
			Plain:   text(inboxHead + "VALUES (" + inboxDone + ")" + v.unless),
			Guarded: text(v.guarded),
		},
		cleanup:  v.cleanup(n),
		database: v.database(n),
	}
}

// insertRows returns the INSERT of n rows.
func insertRows(n int) string {
	return inboxHead + "VALUES " + strings.Repeat("("+inboxDone+"), ", n-1) + "(" + inboxDone + ")"
}
