package sqlonce

import "github.com/ormoutbox/ormoutbox/core/internal/sqlstore"

const (
	keyIs   = "scope = ? AND tenant = ? AND id = ?"
	claimIs = keyIs + " AND owner = ? AND fence = ?"

	// archivedIs selects a key that is unchanged since Archive read it: every change sets one of
	// the times.
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
	look, see, who, take, takeTx, extend, complete, completeTx, release, releaseTx string

	erasable, erase string

	programs sqlstore.Programs
	forget   string // about {program}

	insert, hold, done string
	insertTx           sqlstore.Insert
	cleanup            sqlstore.Cleanup
	old                string // for Archive
	lockOld, remove    func(n int) string
	desk               deskStatements
}

// newStatements returns the statements of a configuration, ready to be sent.
func newStatements(n sqlstore.Names) *statements {
	text, unless := n.Statement, n.Unless("scope, tenant, id", "seen = seen + 1")
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
		release: text("UPDATE {key} SET status = 0, attempts = ?, lease_until = NULL, updated_at = {now} WHERE " +
			claimIs + " AND status = 1"),
		releaseTx: text("UPDATE {key} SET status = 0, done_at = NULL, result = NULL, result_type = NULL, result_meta " +
			"= NULL, updated_at = {now} WHERE " + claimIs + " AND status = 2"),

		erasable: text(
			"SELECT scope, tenant, id, status, CASE WHEN result IS NOT NULL OR COALESCE(result_meta,'') <> '" +
				metaErased + "' THEN 1 ELSE 0 END FROM {key} WHERE id = ? AND " +
				"(? = '' OR scope = ?) AND (? = '' OR tenant = ?)",
		),
		erase: text("UPDATE {key} SET result = NULL, result_type = NULL, result_meta = '" + metaErased +
			"', updated_at = {now} WHERE " + keyIs + " AND status = 2"),

		programs: n.Programs("scope"),
		forget:   text("DELETE FROM {program} WHERE scope = ? AND seen_at < {ago}"),

		insert:   text(insertHead + "VALUES (" + insertLease + ")" + unless),
		hold:     text(insertHead + "VALUES (" + insertHeld + ")" + unless),
		done:     text(insertDone + unless),
		insertTx: n.Insert(insertHead, insertTx, unless),
		cleanup:  n.Cleanup("{key}", "expires_at < {now} ORDER BY expires_at", "scope, tenant, id", keyIs),
		old: text("SELECT scope, tenant, id, fingerprint, owner, status, fence, attempts, {us:created_at}, " +
			"{us:updated_at}, COALESCE({us:done_at},0), {us:expires_at}, result, COALESCE(result_type,''), " +
			"COALESCE(result_meta,'') FROM {key} WHERE expires_at < {now} ORDER BY expires_at LIMIT ?"),
		lockOld: func(rows int) string {
			return text("SELECT scope, tenant, id FROM {key} WHERE " + sqlstore.AnyOf(archivedIs, rows) + "{skip}")
		},
		remove: func(rows int) string { return text("DELETE FROM {key} WHERE " + sqlstore.AnyOf(archivedIs, rows)) },
		desk:   newDeskStatements(n),
	}
}
