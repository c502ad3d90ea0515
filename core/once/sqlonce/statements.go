package sqlonce

import (
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

const (
	keyIs   = "scope = ? AND tenant = ? AND id = ?"
	claimIs = keyIs + " AND owner = ? AND fence = ?"

	// archivedIs is true for a key as Archive has read it: every change sets one of the times.
	archivedIs = keyIs + " AND fence = ? AND {us:updated_at} = ? AND {us:expires_at} = ? AND status = ?"

	readKey = "SELECT status, owner, fence, attempts, fingerprint, COALESCE({left:lease_until},0), " +
		"{left:expires_at}, {left:created_at}, result, COALESCE(result_type,''), " +
		"COALESCE(result_meta,'') FROM {key} WHERE " + keyIs

	insertHead = "INSERT INTO {key} (scope, tenant, id, fingerprint, owner, status, fence, attempts, created_at, " +
		"updated_at, lease_until, done_at, expires_at) "
	insertLease = "?, ?, ?, ?, ?, 1, 1, 1, {now}, {now}, {in}, NULL, {in}"
	insertTx    = "?, ?, ?, ?, ?, 2, 1, 1, {now}, {now}, NULL, {now}, {in}"

	insertHeld = "?, ?, ?, NULL, ?, 1, ?, 1, {now}, {now}, {in}, NULL, {in}"
	insertDone = "INSERT INTO {key} (scope, tenant, id, owner, status, fence, attempts, created_at, updated_at, " +
		"done_at, result, result_type, result_meta, expires_at) " +
		"VALUES (?, ?, ?, ?, 2, ?, 1, {now}, {now}, {now}, ?, ?, ?, {in})"

	takeSet = "UPDATE {key} SET fingerprint = ?, owner = ?, fence = fence + 1, attempts = ?, created_at = CASE WHEN " +
		"? = 1 THEN {now} ELSE created_at END, result = NULL, result_type = NULL, updated_at = {now}, "
)

// statements are the statements about {key}.
type statements struct {
	look, see, who, take, takeTx, extend, complete, completeTx, release, releaseAttempts, releaseTx string

	register, others, shared, forget string // about {program}

	insert, hold, done string
	insertTx           sqlstore.Insert
	cleanup            sqlstore.Cleanup
	old                string // for Archive
	lockOld, remove    func(n int) string
}

// variant has the parts that differ between the databases in more than words.
type variant struct {
	// unless ends an INSERT that does not change an existing key; see sqlstore.Insert.
	unless  string
	guarded string // see sqlstore.Insert
	again   string // ends an INSERT into {program} that replaces an existing row
	cleanup func(n sqlstore.Names) sqlstore.Cleanup
}

var variants = sqlstore.Each[variant]{
	Postgres: variant{
		unless: conflict, again: again,
		cleanup: func(n sqlstore.Names) sqlstore.Cleanup {
			// The statement deletes by the ctid of rows that it has locked. With an array of them,
			// no planner can choose to read the whole table.
			return sqlstore.CleanupAtOnce(n.Statement("DELETE FROM {key} WHERE ctid = ANY (ARRAY(SELECT ctid FROM " +
				"{key} WHERE expires_at < {now} " +
				"ORDER BY expires_at LIMIT ?::bigint FOR UPDATE SKIP LOCKED))"))
		},
	},
	MySQL: variant{
		unless: " ON DUPLICATE KEY UPDATE seen = seen + 1",
		again:  " ON DUPLICATE KEY UPDATE seen_at = VALUES(seen_at)",
		guarded: insertHead + "SELECT " + insertTx + " FROM DUAL WHERE @@in_transaction = 1 ON " +
			"DUPLICATE KEY UPDATE seen = seen + 1",
		cleanup: func(n sqlstore.Names) sqlstore.Cleanup {
			return sqlstore.CleanupByKey{
				Find: n.Statement("SELECT scope, tenant, id FROM {key} WHERE expires_at < {now} ORDER BY " +
					"expires_at LIMIT ?{skip}"),
				Columns: 3,
				Delete: func(keys int) string {
					return n.Statement("DELETE FROM {key} WHERE " + sqlstore.AnyOf(keyIs, keys))
				},
			}
		},
	},
	SQLite: variant{
		unless: conflict, again: again,
		cleanup: func(n sqlstore.Names) sqlstore.Cleanup {
			return sqlstore.CleanupAtOnce(n.Statement("DELETE FROM {key} WHERE rowid IN (SELECT rowid FROM {key} " +
				"WHERE expires_at < {now} " +
				"ORDER BY expires_at LIMIT ?)"))
		},
	},
}

const (
	conflict = " ON CONFLICT (scope, tenant, id) DO NOTHING"
	again    = " ON CONFLICT (scope, program) DO UPDATE SET seen_at = excluded.seen_at"
)

// newStatements returns the statements of a configuration, ready to be sent.
func newStatements(n sqlstore.Names) *statements {
	v, text := variants.Of(n), n.Statement
	return &statements{
		look: text(readKey),
		see:  text(readKey + "{lock}"),
		who:  text("SELECT status, owner, fence FROM {key} WHERE " + keyIs),
		take: text(takeSet + "result_meta = ?, status = 1, lease_until = {in}, done_at = NULL, expires_at = {in} " +
			"WHERE " + keyIs),
		takeTx: text(takeSet + "result_meta = NULL, status = 2, lease_until = NULL, done_at = {now}, expires_at = " +
			"{in} WHERE " + keyIs),
		extend: text("UPDATE {key} SET lease_until = {in}, updated_at = {now}, expires_at = {max}(expires_at, " +
			"{in}) WHERE " + claimIs + " AND status = 1"),
		complete: text("UPDATE {key} SET status = 2, lease_until = NULL, result = ?, result_type = ?, result_meta " +
			"= ?, done_at = {now}, updated_at = {now}, expires_at = {in} WHERE " + claimIs + " AND status = 1"),
		completeTx: text("UPDATE {key} SET result = ?, result_type = ?, result_meta = ?, updated_at = {now} WHERE " +
			claimIs + " AND status = 2"),
		release: text("UPDATE {key} SET status = 0, lease_until = NULL, updated_at = {now} WHERE " + claimIs +
			" AND status = 1"),
		releaseAttempts: text("UPDATE {key} SET status = 0, attempts = ?, lease_until = NULL, updated_at = {now} " +
			"WHERE " +
			claimIs + " AND status = 1"),
		releaseTx: text("UPDATE {key} SET status = 0, done_at = NULL, result = NULL, result_type = NULL, " +
			"result_meta = " +
			"NULL, updated_at = {now} WHERE " + claimIs + " AND status = 2"),

		register: text("INSERT INTO {program} (scope, program, seen_at) VALUES (?, ?, {now})" + v.again),
		others: text("SELECT program FROM {program} WHERE scope = ? AND program <> ? AND seen_at > {ago} " +
			"ORDER BY program"),
		shared: text("SELECT p.scope, p.program FROM {program} p WHERE p.seen_at > {ago} AND EXISTS (SELECT 1 FROM " +
			"{program} o WHERE o.scope = p.scope AND o.program <> p.program AND o.seen_at > {ago}) " +
			"ORDER BY p.scope, p.program"),
		forget: text("DELETE FROM {program} WHERE scope = ? AND seen_at < {ago}"),

		insert: text(insertHead + "VALUES (" + insertLease + ")" + v.unless),
		hold:   text(insertHead + "VALUES (" + insertHeld + ")" + v.unless),
		done:   text(insertDone + v.unless),
		insertTx: sqlstore.Insert{
			Plain:   text(insertHead + "VALUES (" + insertTx + ")" + v.unless),
			Guarded: text(v.guarded),
		},
		cleanup: v.cleanup(n),
		old: text("SELECT scope, tenant, id, fingerprint, owner, status, fence, attempts, {us:created_at}, " +
			"{us:updated_at}, COALESCE({us:done_at},0), {us:expires_at}, result, COALESCE(result_type,''), " +
			"COALESCE(result_meta,'') FROM {key} WHERE expires_at < {now} ORDER BY expires_at LIMIT ?"),
		lockOld: func(rows int) string {
			return text("SELECT scope, tenant, id FROM {key} WHERE " + sqlstore.AnyOf(archivedIs, rows) + "{skip}")
		},
		remove: func(rows int) string { return text("DELETE FROM {key} WHERE " + sqlstore.AnyOf(archivedIs, rows)) },
	}
}
