package sqlcommand

import (
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

const (
	commandHead = "INSERT INTO {command} (id, tenant_id, channel, idempotency_key, fingerprint, payload, " +
		"content_type, headers, event_id, " +
		"correlation_id, business_key, available_at, created_at, updated_at) "
	commandRow      = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {in}, {now}, {now}"
	commandConflict = " ON CONFLICT (tenant_id, channel, idempotency_key) DO NOTHING"

	commandRead = "SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), " +
		"headers, COALESCE(event_id,''), " +
		"COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, " +
		"lost_leases, fence, COALESCE(owner,''), " +
		"COALESCE({left:lease_until},0), COALESCE(last_error_code,''), COALESCE(last_error,''), {us:created_at}, " +
		"{us:updated_at}, COALESCE({us:done_at},0) " +
		"FROM {command} WHERE "
	commandKeyIs   = "tenant_id = ? AND channel = ? AND idempotency_key = ?"
	commandClaimIs = "id = ? AND owner = ? AND fence = ? AND status = 1"
	// A lease much further ahead than any can be is one of a clock that jumped.
	commandStale = "status = 1 AND (lease_until <= {now} OR lease_until > {in})"

	// What is to be run of a channel, where the index of what is due has it, and in its order.
	commandOpen      = "channel = ? AND status IN (0, 1, 3)"
	commandOpenMySQL = "due_channel = ?"
	commandOverdue   = " AND available_at < {ago} AND (status <> 1 OR lease_until < {ago} OR lease_until > {in}) " +
		"ORDER BY available_at, id LIMIT ?"
	// Since when it waits: a failure makes it due anew, and it is no younger for that.
	commandPending = "SELECT COUNT(*), COALESCE(MIN({left:since}),0) FROM (SELECT CASE WHEN lost_leases = 0 AND " +
		"COALESCE(last_error_code,'released') = 'released' " +
		"THEN available_at ELSE created_at END AS since FROM {command} WHERE "
	commandPendingEnd = " ORDER BY available_at, id LIMIT ?) open_commands"
)

// commandTexts are the statements about {command}, in the words of Names.Expand. MySQL sets columns
// from left to right: status comes last where others depend on it.
var commandTexts = map[string]string{
	"look":   commandRead + commandKeyIs,
	"see":    commandRead + commandKeyIs + "{lock}",
	"get":    commandRead + "id = ?",
	"get_tx": commandRead + "id = ?{lock}",
	"list":   commandRead + "status = ",
	"claim": "UPDATE {command} SET lost_leases = lost_leases + CASE WHEN status = 1 THEN 1 ELSE 0 END, owner = ?, " +
		"fence = fence + 1, lease_until = {in}, " +
		"updated_at = {now}, status = 1 WHERE id = ? AND (status IN (0, 3) OR " + commandStale + ")",
	"extend": "UPDATE {command} SET lease_until = {in}, updated_at = {now} WHERE " + commandClaimIs,
	"complete": "UPDATE {command} SET status = 2, external_ref = ?, lease_until = NULL, last_error_code = NULL, " +
		"last_error = NULL, updated_at = {now}, " +
		"done_at = {now} WHERE " + commandClaimIs,
	"fail": "UPDATE {command} SET status = ?, attempts = attempts + ?, last_error_code = ?, last_error = ?, " +
		"lease_until = NULL, available_at = {now}, " +
		"updated_at = {now} WHERE " + commandClaimIs,
	"parked": "SELECT channel, COUNT(*) FROM (SELECT channel FROM {command} WHERE status = 4 LIMIT ?) " +
		"parked_commands GROUP BY channel",
	"who": "SELECT status, COALESCE(owner,''), fence FROM {command} WHERE id = ?",
	"release": "UPDATE {command} SET status = 0, attempts = 0, lost_leases = 0, owner = NULL, lease_until = NULL, " +
		"last_error_code = 'released', last_error = ?, " +
		"available_at = {now}, updated_at = {now} WHERE id = ? AND (status IN (0, 3, 4) OR " + commandStale + ")",
}

// commandDialects are those that differ in more than words; see keyDialects.
var commandDialects = map[core.Dialect]map[string]string{
	core.Postgres: {
		"insert":  commandHead + "VALUES (" + commandRow + ")" + commandConflict,
		"overdue": commandRead + commandOpen + commandOverdue,
		"pending": commandPending + commandOpen + commandPendingEnd,
		"channel": "SELECT channel FROM {command} WHERE status IN (0, 1, 3) AND channel > ? ORDER BY channel LIMIT 1",
		"cleanup": "DELETE FROM {command} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {command} WHERE status = 2 AND " +
			"done_at < {ago} " +
			"ORDER BY done_at LIMIT ?::bigint FOR UPDATE SKIP LOCKED))",
	},
	core.MySQL: {
		"insert": commandHead + "VALUES (" + commandRow + ") ON DUPLICATE KEY UPDATE seen = seen + 1",
		"insert_mariadb": commandHead + "SELECT " + commandRow + " FROM DUAL WHERE @@in_transaction = 1 ON " +
			"DUPLICATE KEY UPDATE seen = seen + 1",
		"overdue": commandRead + commandOpenMySQL + commandOverdue,
		"pending": commandPending + commandOpenMySQL + commandPendingEnd,
		"channel": "SELECT due_channel FROM {command} WHERE due_channel > ? ORDER BY due_channel LIMIT 1",
		"old":     "SELECT id FROM {command} WHERE status = 2 AND done_at < {ago} ORDER BY done_at LIMIT ?{skip}",
	},
	core.SQLite: {
		"insert":  commandHead + "VALUES (" + commandRow + ")" + commandConflict,
		"overdue": commandRead + commandOpen + commandOverdue,
		"pending": commandPending + commandOpen + commandPendingEnd,
		"channel": "SELECT channel FROM {command} WHERE status IN (0, 1, 3) AND channel > ? ORDER BY channel LIMIT 1",
		"cleanup": "DELETE FROM {command} WHERE rowid IN (SELECT rowid FROM {command} WHERE status = 2 AND done_at " +
			"< {ago} " +
			"ORDER BY done_at LIMIT ?)",
	},
}

// commandStatements returns the statements about commands of a configuration. The one named list is
// finished when it is used.
func commandStatements(n sqlstore.Names) map[string]string {
	all := make(map[string]string, len(commandTexts)+2)
	for _, texts := range []map[string]string{commandTexts, commandDialects[n.Dialect()]} {
		for name, text := range texts {
			if name == "list" {
				all[name] = n.Expand(text)
			} else {
				all[name] = n.Statement(text)
			}
		}
	}
	return all
}
