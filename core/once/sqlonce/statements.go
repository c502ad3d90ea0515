package sqlonce

import (
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

const (
	keyIs   = "scope = ? AND tenant = ? AND id = ?"
	claimIs = keyIs + " AND owner = ? AND fence = ?"

	readKey = "SELECT status, fence, attempts, fingerprint, COALESCE({left:lease_until},0), {left:expires_at}, " +
		"{left:created_at}, result, COALESCE(result_type,''), " +
		"COALESCE(result_meta,'') FROM {key} WHERE " + keyIs

	insertHead = "INSERT INTO {key} (scope, tenant, id, fingerprint, owner, status, fence, attempts, created_at, " +
		"updated_at, lease_until, done_at, expires_at) "
	insertLease = "?, ?, ?, ?, ?, 1, 1, 1, {now}, {now}, {in}, NULL, {in}"
	insertTx    = "?, ?, ?, ?, ?, 2, 1, 1, {now}, {now}, NULL, {now}, {in}"

	insertHeld = "?, ?, ?, NULL, ?, 1, ?, 1, {now}, {now}, {in}, NULL, {in}"
	insertDone = "INSERT INTO {key} (scope, tenant, id, owner, status, fence, attempts, created_at, updated_at, " +
		"done_at, result, result_type, result_meta, expires_at) " +
		"VALUES (?, ?, ?, ?, 2, ?, 1, {now}, {now}, {now}, ?, ?, ?, {in})"
	insertOnce = " ON CONFLICT (scope, tenant, id) DO NOTHING"

	takeSet = "UPDATE {key} SET fingerprint = ?, owner = ?, fence = fence + 1, attempts = ?, created_at = CASE WHEN " +
		"? = 1 THEN {now} ELSE created_at END, result = NULL, result_type = NULL, result_meta = NULL, updated_at = " +
		"{now}, "
)

// keyTexts are the statements about {key}, in the words of Names.Expand.
var keyTexts = map[string]string{
	"look":    readKey,
	"see":     readKey + "{lock}",
	"who":     "SELECT status, owner, fence FROM {key} WHERE " + keyIs,
	"take":    takeSet + "status = 1, lease_until = {in}, done_at = NULL, expires_at = {in} WHERE " + keyIs,
	"take_tx": takeSet + "status = 2, lease_until = NULL, done_at = {now}, expires_at = {in} WHERE " + keyIs,
	"extend": "UPDATE {key} SET lease_until = {in}, updated_at = {now}, expires_at = {max}(expires_at, " +
		"{in}) WHERE " + claimIs + " AND status = 1",
	"complete": "UPDATE {key} SET status = 2, lease_until = NULL, result = ?, result_type = ?, result_meta " +
		"= ?, done_at = {now}, updated_at = {now}, expires_at = {in} WHERE " + claimIs + " AND status = 1",
	"complete_tx": "UPDATE {key} SET result = ?, result_type = ?, result_meta = ?, updated_at = {now} WHERE " +
		claimIs + " AND status = 2",
	"release": "UPDATE {key} SET status = 0, lease_until = NULL, updated_at = {now} WHERE " + claimIs +
		" AND status = 1",
	"release_attempts": "UPDATE {key} SET status = 0, attempts = ?, lease_until = NULL, updated_at = {now} WHERE " +
		claimIs + " AND status = 1",
	"release_tx": "UPDATE {key} SET status = 0, done_at = NULL, result = NULL, result_type = NULL, result_meta = " +
		"NULL, updated_at = {now} WHERE " + claimIs + " AND status = 2",
}

// keyDialects are those that differ in more than words. MySQL counts up seen on a duplicate, so
// that the number of affected rows is 1 for an insert and 2 for a duplicate, whatever the driver
// counts; it never takes the shared lock that a refused INSERT takes, which deadlocks those who
// wait.
var keyDialects = map[core.Dialect]map[string]string{
	core.Postgres: {
		"insert":    insertHead + "VALUES (" + insertLease + ")" + insertOnce,
		"insert_tx": insertHead + "VALUES (" + insertTx + ")" + insertOnce,
		"hold":      insertHead + "VALUES (" + insertHeld + ")" + insertOnce,
		"done":      insertDone + insertOnce,
		// By the place of rows that are locked and final: no planner can turn that into a walk
		// through the table.
		"cleanup": "DELETE FROM {key} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {key} WHERE expires_at < {now} " +
			"ORDER BY expires_at LIMIT ?::bigint FOR UPDATE SKIP LOCKED))",
	},
	core.MySQL: {
		"insert":    insertHead + "VALUES (" + insertLease + ") ON DUPLICATE KEY UPDATE seen = seen + 1",
		"insert_tx": insertHead + "VALUES (" + insertTx + ") ON DUPLICATE KEY UPDATE seen = seen + 1",
		"hold":      insertHead + "VALUES (" + insertHeld + ") ON DUPLICATE KEY UPDATE seen = seen + 1",
		"done":      insertDone + " ON DUPLICATE KEY UPDATE seen = seen + 1",
		"expired":   "SELECT scope, tenant, id FROM {key} WHERE expires_at < {now} ORDER BY expires_at LIMIT ?{skip}",
		// Outside a transaction it writes nothing: a deadlock whose error was ignored has ended the
		// caller's, and the key would say done for ever.
		"insert_tx_mariadb": insertHead + "SELECT " + insertTx + " FROM DUAL WHERE @@in_transaction = 1 ON " +
			"DUPLICATE KEY UPDATE seen = seen + 1",
	},
	core.SQLite: {
		"insert":    insertHead + "VALUES (" + insertLease + ")" + insertOnce,
		"insert_tx": insertHead + "VALUES (" + insertTx + ")" + insertOnce,
		"hold":      insertHead + "VALUES (" + insertHeld + ")" + insertOnce,
		"done":      insertDone + insertOnce,
		"cleanup": "DELETE FROM {key} WHERE rowid IN (SELECT rowid FROM {key} WHERE expires_at < {now} " +
			"ORDER BY expires_at LIMIT ?)",
	},
}

// keyStatements returns the statements about keys of a configuration, ready to be sent.
func keyStatements(n sqlstore.Names) map[string]string {
	all := make(map[string]string, len(keyTexts)+3)
	for _, texts := range []map[string]string{keyTexts, keyDialects[n.Dialect()]} {
		for name, text := range texts {
			all[name] = n.Statement(text)
		}
	}
	return all
}
