package sqlcommand

import "github.com/ormoutbox/ormoutbox/core/internal/sqlstore"

const (
	commandHead = "INSERT INTO {command} (id, tenant_id, channel, idempotency_key, fingerprint, payload, " +
		"content_type, headers, event_id, correlation_id, business_key, available_at, created_at, updated_at) "
	commandRow = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {in}, {now}, {now}"

	commandRead = "SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), " +
		"headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), " +
		"COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), " +
		"COALESCE({left:lease_until},0), COALESCE(last_error_code,''), COALESCE(last_error,''), {us:created_at}, " +
		"{us:updated_at}, COALESCE({us:done_at},0) FROM {command} WHERE "
	commandKeyIs   = "tenant_id = ? AND channel = ? AND idempotency_key = ?"
	commandClaimIs = "id = ? AND owner = ? AND fence = ? AND status = 1"
	// A lease that ends later than any valid lease was written by a clock that jumped.
	commandStale = "status = 1 AND (lease_until <= {now} OR lease_until > {in})"

	// discarded is the code of an effect that a person has discarded. Its status is 2, the same as
	// for a completed effect, which has no code. So every version of this package leaves it alone,
	// and deletes it in time.
	discarded = "discarded"

	erasedText = "erased" // in place of a text

	commandOverdue = " AND available_at < {ago} AND (status <> 1 OR lease_until < {ago} OR lease_until > {in}) " +
		"ORDER BY available_at, id LIMIT ?"
	// since is when the effect began to wait. After a failure that is created_at, because a failure
	// moves available_at, and none began to wait before it was created.
	commandPending = "SELECT COUNT(*), COALESCE(MIN({left:since}),0) FROM (SELECT CASE WHEN lost_leases = 0 AND " +
		"COALESCE(last_error_code,'redriven') = 'redriven' " +
		"THEN {max}(available_at, created_at) ELSE created_at END AS since FROM {command} WHERE "
	commandPendingEnd = " ORDER BY available_at, id LIMIT ?) open_commands"
)

// statements are the statements about {command}. MySQL sets columns from left to right, so status
// is set after the columns that depend on its old value.
type statements struct {
	look, see, get, getTx string
	list                  string // without its end; its parameters are written as ?
	erasable, erase       string

	claim, extend, complete, fail, dead, who, redrive, discard string
	overdue, pending, channel                                  string

	programs sqlstore.Programs
	insert   sqlstore.Insert
	cleanup  sqlstore.Cleanup

	old             string // for Archive
	lockOld, remove func(n int) string
}

// due selects the effects of a channel that are to be executed, in the order of the index of due
// effects. channel finds the next channel that has such effects.
type due struct{ open, channel string }

var anyDue = due{
	open:    "channel = ? AND status IN (0, 1, 3)",
	channel: "SELECT channel FROM {command} WHERE status IN (0, 1, 3) AND channel > ? ORDER BY channel LIMIT 1",
}

var dues = sqlstore.Each[due]{Postgres: anyDue, SQLite: anyDue, MySQL: due{
	open:    "due_channel = ?",
	channel: "SELECT due_channel FROM {command} WHERE due_channel > ? ORDER BY due_channel LIMIT 1",
}}

// newStatements returns the statements of a configuration.
func newStatements(n sqlstore.Names) *statements {
	due, text := dues.Of(n), n.Statement
	return &statements{
		look:  text(commandRead + commandKeyIs),
		see:   text(commandRead + commandKeyIs + "{lock}"),
		get:   text(commandRead + "id = ?"),
		getTx: text(commandRead + "id = ?{lock}"),
		list:  n.Expand(commandRead + "status = "),
		erasable: text(
			"SELECT id, tenant_id, COALESCE(event_id,''), COALESCE(business_key,''), CASE WHEN status IN (2, 4) " +
				"THEN 1 ELSE 0 END, CASE WHEN LENGTH(payload) > 0 OR headers IS NOT NULL OR COALESCE(last_error,'" +
				erasedText + "') <> '" + erasedText + "' THEN 1 ELSE 0 END FROM {command} " +
				"WHERE id > ? ORDER BY id LIMIT ?",
		),
		erase: text("UPDATE {command} SET payload = ?, content_type = NULL, headers = NULL, last_error = CASE WHEN " +
			"last_error IS NOT NULL THEN '" + erasedText + "' END, updated_at = {now} " +
			"WHERE id = ? AND status IN (2, 4)"),
		claim: text("UPDATE {command} SET lost_leases = lost_leases + CASE WHEN status = 1 THEN 1 ELSE 0 END, owner " +
			"= ?, fence = fence + 1, lease_until = {in}, updated_at = {now}, status = 1 WHERE id = ? AND (status IN " +
			"(0, 3) OR " + commandStale + ")"),
		extend: text("UPDATE {command} SET lease_until = {in}, updated_at = {now} WHERE " + commandClaimIs),
		complete: text("UPDATE {command} SET status = 2, external_ref = ?, lease_until = NULL, last_error_code = " +
			"NULL, last_error = NULL, updated_at = {now}, done_at = {now} WHERE " + commandClaimIs),
		fail: text("UPDATE {command} SET status = ?, attempts = attempts + ?, last_error_code = ?, last_error = ?, " +
			"lease_until = NULL, available_at = {now}, updated_at = {now} WHERE " + commandClaimIs),
		dead: text("SELECT channel, COUNT(*) FROM (SELECT channel FROM {command} WHERE status = 4 LIMIT ?) " +
			"parked_commands GROUP BY channel"),
		who: text("SELECT status, COALESCE(last_error_code,''), COALESCE(owner,''), fence FROM {command} WHERE id = ?"),
		redrive: text("UPDATE {command} SET status = 0, attempts = 0, lost_leases = 0, owner = NULL, lease_until = " +
			"NULL, last_error_code = 'redriven', last_error = ?, available_at = {now}, updated_at = {now} WHERE id = " +
			"? AND (status IN (0, 3, 4) OR " + commandStale + ")"),
		discard: text("UPDATE {command} SET status = 2, owner = NULL, lease_until = NULL, last_error_code = '" +
			discarded + "', last_error = ?, updated_at = {now}, done_at = {now} WHERE id = ? AND status = 4"),

		overdue: text(commandRead + due.open + commandOverdue),
		pending: text(commandPending + due.open + commandPendingEnd),
		channel: text(due.channel),

		programs: n.Programs("channel"),
		insert:   n.Insert(commandHead, commandRow, n.Unless("tenant_id, channel, idempotency_key", "seen = seen + 1")),
		cleanup:  n.Cleanup("{command}", "status = 2 AND done_at < {ago} ORDER BY done_at", "id", "id = ?"),
		old:      text(commandRead + "status = 2 AND done_at < {ago} ORDER BY done_at LIMIT ?"),
		lockOld: func(rows int) string {
			return text("SELECT id FROM {command} WHERE " + sqlstore.AnyOf("id = ? AND status = 2", rows) + "{skip}")
		},
		remove: func(rows int) string {
			return text("DELETE FROM {command} WHERE " + sqlstore.AnyOf("id = ? AND status = 2", rows))
		},
	}
}
