package sqlcommand

import (
	"strings"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

const (
	commandHead = "INSERT INTO {command} (id, tenant_id, channel, idempotency_key, fingerprint, payload, " +
		"content_type, headers, event_id, " +
		"correlation_id, business_key, available_at, created_at, updated_at) "
	commandRow = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {in}, {now}, {now}"

	commandRead = "SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), " +
		"headers, COALESCE(event_id,''), " +
		"COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, " +
		"lost_leases, fence, COALESCE(owner,''), " +
		"COALESCE({left:lease_until},0), COALESCE(last_error_code,''), COALESCE(last_error,''), {us:created_at}, " +
		"{us:updated_at}, COALESCE({us:done_at},0) " +
		"FROM {command} WHERE "
	commandKeyIs   = "tenant_id = ? AND channel = ? AND idempotency_key = ?"
	commandClaimIs = "id = ? AND owner = ? AND fence = ? AND status = 1"
	// A lease that ends later than any valid lease was written by a clock that jumped.
	commandStale = "status = 1 AND (lease_until <= {now} OR lease_until > {in})"

	// discarded is the code of an effect that a person has discarded. Its status is 2, as that of a
	// completed one, which has no code. So every version of this package leaves it alone, and
	// deletes it in time.
	discarded = "discarded"

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

	claim, extend, complete, fail, dead, who, redrive, discard string
	overdue, pending, channel                                  string
	register, others, shared                                   string // about {program}

	insert  sqlstore.Insert
	cleanup sqlstore.Cleanup

	old             string // for Archive
	lockOld, remove func(n int) string
}

// variant has the parts that differ between the databases in more than words.
type variant struct {
	// unless ends an INSERT that does not change an existing effect; see sqlstore.Insert.
	unless  string
	guarded string // see sqlstore.Insert
	// open is a condition for the effects of a channel that are to be executed, in the order of the
	// index of due effects. channel finds the next channel that has such effects.
	open, channel string
	again         string // ends an INSERT into {program} that replaces an existing row
	cleanup       func(n sqlstore.Names) sqlstore.Cleanup
}

const (
	conflict    = " ON CONFLICT (tenant_id, channel, idempotency_key) DO NOTHING"
	again       = " ON CONFLICT (channel, program) DO UPDATE SET seen_at = excluded.seen_at"
	openIs      = "channel = ? AND status IN (0, 1, 3)"
	nextChannel = "SELECT channel FROM {command} WHERE status IN (0, 1, 3) AND channel > ? ORDER BY channel LIMIT 1"
)

var variants = sqlstore.Each[variant]{
	Postgres: variant{
		unless: conflict, open: openIs, channel: nextChannel, again: again,
		cleanup: func(n sqlstore.Names) sqlstore.Cleanup {
			return sqlstore.CleanupAtOnce(n.Statement("DELETE FROM {command} WHERE ctid = ANY (ARRAY(SELECT ctid " +
				"FROM {command} WHERE status = 2 AND " +
				"done_at < {ago} " +
				"ORDER BY done_at LIMIT ?::bigint FOR UPDATE SKIP LOCKED))"))
		},
	},
	MySQL: variant{
		unless: " ON DUPLICATE KEY UPDATE seen = seen + 1",
		guarded: commandHead + "SELECT " + commandRow + " FROM DUAL WHERE @@in_transaction = 1 ON " +
			"DUPLICATE KEY UPDATE seen = seen + 1",
		open:    "due_channel = ?",
		again:   " ON DUPLICATE KEY UPDATE seen_at = VALUES(seen_at)",
		channel: "SELECT due_channel FROM {command} WHERE due_channel > ? ORDER BY due_channel LIMIT 1",
		cleanup: func(n sqlstore.Names) sqlstore.Cleanup {
			return sqlstore.CleanupByKey{
				Find: n.Statement("SELECT id FROM {command} WHERE status = 2 AND done_at < {ago} ORDER BY " +
					"done_at LIMIT ?{skip}"),
				Columns: 1,
				Delete: func(keys int) string {
					return n.Statement("DELETE FROM {command} WHERE id IN (?" + strings.Repeat(", ?", keys-1) + ")")
				},
			}
		},
	},
	SQLite: variant{
		unless: conflict, open: openIs, channel: nextChannel, again: again,
		cleanup: func(n sqlstore.Names) sqlstore.Cleanup {
			return sqlstore.CleanupAtOnce(n.Statement("DELETE FROM {command} WHERE rowid IN (SELECT rowid FROM " +
				"{command} WHERE status = 2 AND done_at " +
				"< {ago} " +
				"ORDER BY done_at LIMIT ?)"))
		},
	},
}

// newStatements returns the statements of a configuration.
func newStatements(n sqlstore.Names) *statements {
	v, text := variants.Of(n), n.Statement
	return &statements{
		look:  text(commandRead + commandKeyIs),
		see:   text(commandRead + commandKeyIs + "{lock}"),
		get:   text(commandRead + "id = ?"),
		getTx: text(commandRead + "id = ?{lock}"),
		list:  n.Expand(commandRead + "status = "),
		claim: text("UPDATE {command} SET lost_leases = lost_leases + CASE WHEN status = 1 THEN 1 ELSE 0 END, " +
			"owner = ?, " +
			"fence = fence + 1, lease_until = {in}, " +
			"updated_at = {now}, status = 1 WHERE id = ? AND (status IN (0, 3) OR " + commandStale + ")"),
		extend: text("UPDATE {command} SET lease_until = {in}, updated_at = {now} WHERE " + commandClaimIs),
		complete: text("UPDATE {command} SET status = 2, external_ref = ?, lease_until = NULL, last_error_code = " +
			"NULL, " +
			"last_error = NULL, updated_at = {now}, " +
			"done_at = {now} WHERE " + commandClaimIs),
		fail: text("UPDATE {command} SET status = ?, attempts = attempts + ?, last_error_code = ?, last_error = ?, " +
			"lease_until = NULL, available_at = {now}, " +
			"updated_at = {now} WHERE " + commandClaimIs),
		dead: text("SELECT channel, COUNT(*) FROM (SELECT channel FROM {command} WHERE status = 4 LIMIT ?) " +
			"parked_commands GROUP BY channel"),
		who: text("SELECT status, COALESCE(last_error_code,''), COALESCE(owner,''), fence FROM {command} WHERE id = ?"),
		redrive: text("UPDATE {command} SET status = 0, attempts = 0, lost_leases = 0, owner = NULL, lease_until " +
			"= NULL, " +
			"last_error_code = 'redriven', last_error = ?, " +
			"available_at = {now}, updated_at = {now} WHERE id = ? AND (status IN (0, 3, 4) OR " + commandStale + ")"),
		discard: text("UPDATE {command} SET status = 2, owner = NULL, lease_until = NULL, last_error_code = '" +
			discarded + "', last_error = ?, updated_at = {now}, done_at = {now} WHERE id = ? AND status = 4"),

		overdue: text(commandRead + v.open + commandOverdue),
		pending: text(commandPending + v.open + commandPendingEnd),
		channel: text(v.channel),

		register: text("INSERT INTO {program} (channel, program, seen_at) VALUES (?, ?, {now})" + v.again),
		others: text("SELECT program FROM {program} WHERE channel = ? AND program <> ? AND seen_at > {ago} " +
			"ORDER BY program"),
		shared: text("SELECT p.channel, p.program FROM {program} p WHERE p.seen_at > {ago} AND EXISTS (SELECT 1 FROM " +
			"{program} o WHERE o.channel = p.channel AND o.program <> p.program AND o.seen_at > {ago}) " +
			"ORDER BY p.channel, p.program"),
		insert: sqlstore.Insert{
			Plain:   text(commandHead + "VALUES (" + commandRow + ")" + v.unless),
			Guarded: text(v.guarded),
		},
		cleanup: v.cleanup(n),
		old:     text(commandRead + "status = 2 AND done_at < {ago} ORDER BY done_at LIMIT ?"),
		lockOld: func(rows int) string {
			return text("SELECT id FROM {command} WHERE " + sqlstore.AnyOf("id = ? AND status = 2", rows) + "{skip}")
		},
		remove: func(rows int) string {
			return text("DELETE FROM {command} WHERE " + sqlstore.AnyOf("id = ? AND status = 2", rows))
		},
	}
}
