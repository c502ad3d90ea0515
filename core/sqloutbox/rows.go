package sqloutbox

import (
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

const (
	// rowFree has one parameter: the longest lease there can be.
	rowFree = "(e.lease_until IS NULL OR e.lease_until <= {now} OR e.lease_until > {in})"
	rowDue  = "e.available_at <= {now}"
	rowOpen = "e.status IN (0,2) AND " + rowDue + " AND " + rowFree
)

// rowTexts are the statements of MariaDB, MySQL and SQLite, which change rows in several steps:
// candidates are read without locks, then locked by their ids with the condition repeated, then
// changed. {ids} stands for a list of parameters. {ready} and {open} are the conditions of the two
// indexes over open rows, {topic} and {lane} their first columns.
var rowTexts = map[string]string{
	"next_topic": `SELECT {topic} FROM {event} e{use:event_ready} WHERE {ready}{topic} > ? ORDER BY {topic} LIMIT 1`,
	"topic_rows": `SELECT e.id, e.topic, {octets} FROM {event} e{use:event_ready} WHERE {ready}{topic} = ? AND ` +
		rowDue + ` AND ` + rowFree + ` ORDER BY e.available_at, e.id LIMIT ?`,
	"open_page": `SELECT {lane}, e.key_seq, e.id, {dead} FROM {event} e{use:event_open} WHERE {open}{lane} > ? ` +
		`ORDER BY {order}, e.key_seq LIMIT ?`,
	"heads": `SELECT e.id, e.topic, {octets}, CASE WHEN ` + rowDue + ` AND ` + rowFree + ` THEN 1 ELSE 0 END,
  CASE WHEN ` + rowFree +
		` OR e.lease_until < e.available_at THEN {us:e.available_at} ELSE {us:e.lease_until} END - {clock},
  (SELECT d.key_seq FROM {event} d{use:event_open} WHERE {deadof} ORDER BY d.key_seq LIMIT 1)
FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND e.status IN (0,2)`,
	"lane_head": `SELECT e.key_seq, e.id FROM {event} e{use:event_open} WHERE {live}{lane} = ? ORDER BY e.key_seq ` +
		`LIMIT 1`,
	"lane_rows": `SELECT e.id, {lane} AS lane, e.key_seq, {octets} AS size, CASE WHEN ` + rowDue + ` AND ` + rowFree +
		` THEN 1 ELSE 0 END AS ok
FROM {event} e{use:event_open} WHERE {live}{lane} = ? ORDER BY e.key_seq LIMIT ?`,
	"lock": `SELECT ` + eventColumns + claimColumns + `, CASE WHEN e.lease_until <= {now} AND e.claimed_by <> ? AND ` +
		`e.lost_claims < ` + suspicious + ` THEN 1 ELSE 0 END
FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND ` + rowOpen + ` ORDER BY e.id{lock}`,
	// The row before and the first dead row are read again here, in one view of the lane: what the
	// statements before saw may be mixed.
	"lock_lanes": `SELECT ` + eventColumns + claimColumns + `, CASE WHEN e.lease_until <= {now} AND e.claimed_by <> ` +
		`? AND e.lost_claims < ` + suspicious + ` THEN 1 ELSE 0 END,
  (SELECT d.key_seq FROM {event} d{use:event_open} WHERE {openof} AND d.key_seq < e.key_seq ORDER BY d.key_seq
    DESC LIMIT 1),
  (SELECT d.key_seq FROM {event} d{use:event_open} WHERE {deadof} AND d.key_seq < e.key_seq ORDER BY d.key_seq LIMIT 1)
FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND ` + rowOpen + ` ORDER BY e.id{lock}`,
	"claim": `UPDATE {event}{use:primary} SET lost_claims = ABS(lost_claims) +
  CASE WHEN lease_until <= {now} AND claimed_by <> ? AND lost_claims < ` + suspicious +
		` THEN 1 ELSE 0 END, claim_no = claim_no + 1,
  claimed_by = ?, lease_until = {in} WHERE id IN ({ids})`,
	"topic_due": `SELECT MIN(x.t) FROM (SELECT CASE WHEN ` + rowFree +
		` OR e.lease_until < e.available_at THEN {us:e.available_at}
  ELSE {us:e.lease_until} END - {clock} AS t FROM {event} e{use:event_ready} WHERE {ready}{topic} = ? ORDER BY
    e.available_at, e.id LIMIT 1000) x`,

	"markable": `SELECT e.id FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND e.status IN (0,2,3) ORDER ` +
		`BY e.id`,
	"markable_lock": `SELECT e.id FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND e.status IN (0,2,3) ORDER ` +
		`BY e.id{lock}`,
	"done": `UPDATE {event}{use:primary} SET status = 1, done_at = {now}, lease_until = NULL, ` +
		`last_error_code = NULL, last_error = NULL WHERE id IN ({ids}) AND status IN (0,2,3)`,
	"done_delete": `DELETE FROM {event} WHERE id IN ({ids}) AND status IN (0,2,3)`,
	"done_receipts": `UPDATE {event}{use:primary} SET receipt = CASE id{whens} ELSE receipt END, status = 1,
	  done_at = {now}, lease_until = NULL,
  last_error_code = NULL, last_error = NULL WHERE id IN ({ids}) AND status IN (0,2,3)`,
	"held": `SELECT e.id, e.claim_no FROM {event} e{use:primary}
WHERE e.id IN ({ids}) AND e.claimed_by = ? AND e.status IN (0,2) AND e.lease_until IS NOT NULL ORDER BY e.id`,
	"held_lock": `SELECT e.id, e.claim_no FROM {event} e{use:primary}
WHERE e.id IN ({ids}) AND e.claimed_by = ? AND e.status IN (0,2) AND e.lease_until IS NOT NULL ORDER BY e.id{lock}`,
	"retry": `UPDATE {event} SET status = 2, attempts = attempts + 1, available_at = {in}, lease_until = NULL,
	  last_error_code = ?, last_error = ?
WHERE id = ?`,
	"dead": `UPDATE {event} SET status = 3, attempts = attempts + 1, lease_until = NULL, last_error_code = ?, ` +
		`last_error = ? WHERE id = ?`,
	"unavailable": `UPDATE {event} SET available_at = {in}, lease_until = NULL, last_error_code = ?, last_error = ?
WHERE id = ?`,
	"begin_lone": `UPDATE {event}{use:primary} SET lost_claims = -ABS(lost_claims) WHERE id IN ({ids})`,
	"renew":      `UPDATE {event}{use:primary} SET lease_until = {in} WHERE id IN ({ids})`,
	"release":    `UPDATE {event}{use:primary} SET lease_until = NULL WHERE id IN ({ids})`,

	"count_ready": `SELECT COUNT(*), MIN(x.created_at) FROM (SELECT {us:e.created_at} AS created_at FROM {event}
	  e{use:event_ready}
  WHERE {ready}{topic} IS NOT NULL ORDER BY {topic} LIMIT ?) x`,
	"count_open": `SELECT COUNT(*), MIN(x.created_at) FROM (SELECT {us:e.created_at} AS created_at FROM {event}
	  e{use:event_open}
  WHERE {live}{lane} IS NOT NULL ORDER BY {lane} LIMIT ?) x`,
	"count_dead": `SELECT COUNT(*) FROM (SELECT e.id FROM {event} e{use:event_ended} WHERE {ended3} LIMIT ?) x`,
	"count_blocked": `SELECT COUNT(DISTINCT x.lane) FROM (SELECT e.lane FROM {event} e{use:event_ended} WHERE ` +
		`{ended3} AND e.lane IS NOT NULL LIMIT ?) x`,
	"first_created": `SELECT {us:e.created_at} FROM {event} e{use:event_ready} WHERE {ready}{topic} = ? ORDER BY ` +
		`e.available_at, e.id LIMIT 1`,
	"clock": `SELECT {clock}`,
	"list_dead": `SELECT ` + eventColumns +
		`, e.attempts, ABS(e.lost_claims), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), {us:e.created_at}
FROM {event} e{use:event_ended} WHERE {ended3} AND e.id > ? AND (? = '' OR {bin:e.topic} = ?) AND (? = '' OR
  {bin:e.event_type} = ?)
  AND (? = '' OR {bin:e.tenant_id} = ?) ORDER BY e.id LIMIT ?`,

	"redrive_rows": `SELECT e.id, e.event_id, e.topic FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND
	  e.status = 3 AND (e.lane IS NULL OR ? = 0)
ORDER BY e.id{wait}`,
	"redrive": `UPDATE {event}{use:primary} SET status = 2, attempts = 0, lost_claims = 0, claim_no = claim_no +
	  1, lease_until = NULL,
  available_at = {now} WHERE id IN ({ids})`,
	"discard_rows": `SELECT e.id, e.event_id, e.topic FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND
	  (e.status = 3 OR e.status IN (0,2)
  AND (? = 1 OR e.lease_until IS NULL OR e.lease_until <= {now})) ORDER BY e.id{wait}`,
	"discard": `UPDATE {event}{use:primary} SET status = 4, claim_no = claim_no + 1, lease_until = NULL, ` +
		`done_at = {now} WHERE id IN ({ids})`,
	"discard_dead": `UPDATE {event} SET status = 4, claim_no = claim_no + 1, lease_until = NULL, done_at = {now} ` +
		`WHERE id = ? AND status = 3`,
	"dead_for_append": `SELECT e.id, e.event_id, e.topic, e.lane, e.key_seq FROM {event} e{use:primary} WHERE e.id ` +
		`IN ({ids}) AND e.status = 3 AND e.lane IS NOT NULL ORDER BY e.id{wait}`,
	"append": `INSERT INTO {event} (id, key_seq, available_at, created_at, ` + copiedColumns + `)
SELECT ?, ?, {now}, {now}, ` + copiedRow + ` FROM {event} WHERE id = ?`,
	"audit": `INSERT INTO {audit} (at, action, actor, reason, row_id, event_id, topic, new_id) VALUES ({now}, ?, ?, ` +
		`?, ?, ?, ?, ?)`,

	"ended": `SELECT e.id FROM {event} e{use:event_ended} WHERE {ended1} AND e.done_at < {ago} ORDER BY ` +
		`e.done_at LIMIT ?`,
	"cleanup":        `DELETE FROM {event} WHERE id IN ({ids}) AND status IN (1,4)`,
	"keys":           `SELECT k.lane FROM {key} k WHERE k.lane > ? ORDER BY k.lane LIMIT ?`,
	"collect_lock":   `SELECT k.lane FROM {key} k WHERE k.lane IN ({ids}) AND k.used_at < {ago} ORDER BY k.lane{lock}`,
	"collect_empty":  `SELECT k.lane FROM {key} k WHERE k.lane IN ({ids}) AND {noneof}`,
	"collect_delete": `DELETE FROM {key} WHERE lane IN ({ids})`,
	"reset_keys": `UPDATE {key} SET last_seq = {max}(last_seq, {clock}), first_seq = {max}(last_seq, {clock}), ` +
		`last_id = NULL, prev_id = NULL`,
}

// list returns a text with its list of n parameters.
func (r *Repository) list(name string, n int) string {
	return strings.Replace(r.sql.text(name), "{ids}", sqlkit.List(n), 1)
}

func (r *Repository) withIDs(name string, ids []core.RowID) string { return r.list(name, len(ids)) }

// idArgs returns the ids as parameters, followed by more.
func idArgs[T core.RowID | core.KeyID](ids []T, more ...any) []any {
	args := make([]any, 0, len(ids)+len(more))
	for i := range ids {
		b := [16]byte(ids[i])
		args = append(args, b[:])
	}
	return append(args, more...)
}
