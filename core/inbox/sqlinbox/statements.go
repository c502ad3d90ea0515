package sqlinbox

import (
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

const (
	inboxIs      = "consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?"
	inboxColumns = 13 // that eventArgs returns

	inboxHead = "INSERT INTO {inbox} (consumer, handler, tenant_id, event_id, event_type, event_version, " +
		"aggregate_type, aggregate_id, partition_key, key_seq, " +
		"source_topic, source_partition, source_offset, status, attempts, received_at, updated_at, processed_at) "
	inboxRowText  = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
	inboxDone     = inboxRowText + "2, 1, {now}, {now}, {now}"
	inboxOpened   = inboxRowText + "0, 0, {now}, {now}, NULL"
	inboxConflict = " ON CONFLICT (consumer, handler, tenant_id, event_id) DO NOTHING"

	laneHead = "INSERT INTO {inbox_key} AS k (consumer, handler, tenant_id, topic, partition_key, last_seq, " +
		"updated_at) VALUES (?, ?, ?, ?, ?, ?, {now}) "
	laneIs  = "consumer = ? AND handler = ? AND tenant_id = ? AND topic = ? AND partition_key = ?"
	advance = laneHead + "ON CONFLICT (consumer, handler, tenant_id, topic, partition_key) DO UPDATE SET last_seq = " +
		"excluded.last_seq, " +
		"updated_at = excluded.updated_at WHERE k.last_seq < excluded.last_seq"
)

// inboxTexts are the statements about {inbox} and {inbox_key}, in the words of Names.Expand.
var inboxTexts = map[string]string{
	"see":        "SELECT status, attempts, {left:updated_at} FROM {inbox} WHERE " + inboxIs + "{lock}",
	"see_failed": "SELECT status, attempts, {left:received_at} FROM {inbox} WHERE " + inboxIs + "{lock}",
	"take": "UPDATE {inbox} SET status = 2, attempts = attempts + 1, last_error_code = NULL, last_error = NULL, " +
		"failed_at = NULL, updated_at = {now}, " +
		"processed_at = {now} WHERE " + inboxIs,
	"fail": "UPDATE {inbox} SET status = ?, attempts = ?, last_error_code = ?, last_error = ?, failed_at = {now}, " +
		"updated_at = {now} WHERE " + inboxIs,
	"release": "UPDATE {inbox} SET status = 0, attempts = 0, last_error_code = 'released', last_error = ?, " +
		"received_at = {now}, updated_at = {now} WHERE " +
		inboxIs + " AND status = 4",
	"parked": "SELECT consumer, handler, tenant_id, event_id, COALESCE(event_type,''), event_version, " +
		"COALESCE(aggregate_type,''), COALESCE(aggregate_id,''), " +
		"COALESCE(partition_key,''), COALESCE(key_seq,0), COALESCE(source_topic,''), COALESCE(source_partition,0), " +
		"COALESCE(source_offset,0), " +
		"source_offset IS NOT NULL, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), " +
		"{us:received_at}, COALESCE({us:failed_at},0) " +
		// the last words are those of the index, or SQLite does not use it
		"FROM {inbox} WHERE consumer = ? AND status = 4 AND status <> 2",
}

// inboxDialects are those that differ in more than words; see keyDialects.
var inboxDialects = map[core.Dialect]map[string]string{
	core.Postgres: {
		"insert":  inboxHead + "VALUES (" + inboxDone + ")" + inboxConflict,
		"open":    inboxHead + "VALUES (" + inboxOpened + ")" + inboxConflict,
		"advance": advance,
		// One by one, each by the whole key: PostgreSQL takes what a list of keys has in common out
		// of it, and walks through all events of the handler.
		"see_rows": "SELECT e.tenant_id, e.event_id, e.status, e.attempts, e.age, 0 FROM unnest(?::text[], " +
			"?::text[]) AS v(tenant, event_id) CROSS JOIN LATERAL " +
			"(SELECT tenant_id, event_id, status, attempts, {left:updated_at} AS age FROM {inbox} WHERE consumer = " +
			"? AND handler = ? AND tenant_id = v.tenant " +
			"AND event_id = v.event_id LIMIT 1 FOR UPDATE) e",
		"insert_rows": inboxHead + "SELECT ?::text, ?::text, v.tenant, v.event_id, v.type, v.version::integer, " +
			"v.aggregate_type, v.aggregate_id, v.partition_key, " +
			"v.key_seq::bigint, v.topic, v.source_partition::integer, v.source_offset::bigint, 2, 1, {now}, {now}, " +
			"{now} FROM unnest(" +
			strings.Repeat("?::text[], ", inboxColumns-3) + "?::text[]) AS v(tenant, event_id, type, version, " +
			"aggregate_type, aggregate_id, partition_key, key_seq, " +
			"topic, source_partition, source_offset)" + inboxConflict + " RETURNING tenant_id, event_id",
		"cleanup": "DELETE FROM {inbox} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {inbox} WHERE consumer = ? AND " +
			"status = 2 AND processed_at < {ago} " +
			"ORDER BY processed_at LIMIT ?::bigint FOR UPDATE SKIP LOCKED))",
		"cleanup_keys": "DELETE FROM {inbox_key} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {inbox_key} WHERE " +
			"consumer = ? AND updated_at < {ago} " +
			"LIMIT ?::bigint FOR UPDATE SKIP LOCKED))",
	},
	core.MySQL: {
		"insert": inboxHead + "VALUES (" + inboxDone + ") ON DUPLICATE KEY UPDATE seen = seen + 1",
		"insert_mariadb": inboxHead + "SELECT " + inboxDone + " FROM DUAL WHERE @@in_transaction = 1 ON DUPLICATE " +
			"KEY UPDATE seen = seen + 1",
		"open": inboxHead + "VALUES (" + inboxOpened + ") ON DUPLICATE KEY UPDATE seen = seen + 1",
		"key": strings.Replace(laneHead, " AS k", "", 1) +
			"ON DUPLICATE KEY UPDATE updated_at = UTC_TIMESTAMP(6)",
		"advance":  "UPDATE {inbox_key} SET last_seq = ?, updated_at = {now} WHERE " + laneIs + " AND last_seq < ?",
		"see_rows": "SELECT tenant_id, event_id, status, attempts, {left:updated_at}, seen FROM {inbox} WHERE ",
		"old": "SELECT handler, tenant_id, event_id FROM {inbox} WHERE consumer = ? AND status = 2 AND " +
			"updated_at < {ago} ORDER BY updated_at LIMIT ?{skip}",
		"cleanup_keys": "DELETE FROM {inbox_key} WHERE consumer = ? AND updated_at < {ago} LIMIT ?",
	},
	core.SQLite: {
		"insert":   inboxHead + "VALUES (" + inboxDone + ")" + inboxConflict,
		"open":     inboxHead + "VALUES (" + inboxOpened + ")" + inboxConflict,
		"advance":  advance,
		"see_rows": "SELECT tenant_id, event_id, status, attempts, {left:updated_at}, 0 FROM {inbox} WHERE ",
		"cleanup": "DELETE FROM {inbox} WHERE rowid IN (SELECT rowid FROM {inbox} WHERE consumer = ? AND status = 2 " +
			"AND processed_at < {ago} " +
			"ORDER BY processed_at LIMIT ?)",
		"cleanup_keys": "DELETE FROM {inbox_key} WHERE (consumer, handler, tenant_id, topic, partition_key) IN " +
			"(SELECT consumer, handler, tenant_id, topic, partition_key " +
			"FROM {inbox_key} WHERE consumer = ? AND updated_at < {ago} LIMIT ?)",
	},
}

// raw are texts that are finished, with their parameters, when they are used.
var raw = map[string]bool{"parked": true, "see_rows": true}

// inboxStatements returns the statements about the inbox of a configuration.
func inboxStatements(n sqlstore.Names) map[string]string {
	all := make(map[string]string, len(inboxTexts)+8)
	for _, texts := range []map[string]string{inboxTexts, inboxDialects[n.Dialect()]} {
		for name, text := range texts {
			if raw[name] {
				all[name] = n.Expand(text)
			} else {
				all[name] = n.Statement(text)
			}
		}
	}
	return all
}

// inboxInsertRows inserts n rows.
func inboxInsertRows(n int) string {
	return inboxHead + "VALUES " + strings.Repeat("("+inboxDone+"), ", n-1) + "(" + inboxDone + ")"
}
