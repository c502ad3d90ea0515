package sqloutbox

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// rowwise implements database for MariaDB, MySQL and SQLite, which change rows in several steps:
// candidates are read without locks, then locked by their ids with the condition repeated, then
// changed.
type rowwise struct {
	pool
	variant
	sql    *rowStatements
	flavor sqlkit.Flavor
}

// variant has the differences between the databases of rowwise.
type variant struct {
	// locks says that another transaction may hold the lock of a row. SQLite has one writer at a
	// time.
	locks bool
	// occurred returns the parameter for the time of an event.
	occurred func(t time.Time) any
	// plain are the statements that insert. guarded are those of MariaDB, which write nothing if
	// the caller's transaction has ended. guarded is nil for databases on which only the caller
	// ends a transaction.
	plain, guarded *inserts
}

func newRowwise(p pool, n names, v variant) *rowwise {
	return &rowwise{pool: p, variant: v, sql: newRowStatements(n)}
}

// joined returns the statements for a caller's transaction.
func (w *rowwise) joined(ctx context.Context, tx core.Tx) (*inserts, error) {
	if w.guarded == nil {
		return w.plain, nil
	}
	switch mariadb, err := w.flavor.MariaDB(ctx, tx); {
	case err != nil:
		return nil, err
	case mariadb:
		return w.guarded, nil
	}
	return w.plain, sqlkit.StillOpen(ctx, tx)
}

const (
	// rowFree has one parameter: the longest possible lease.
	rowFree = "(e.lease_until IS NULL OR e.lease_until <= {now} OR e.lease_until > {in})"
	rowDue  = "e.available_at <= {now}"
	rowOpen = "e.status IN (0,2) AND " + rowDue + " AND " + rowFree
)

// rowStatements are the statements of rowwise, but those that insert.
type rowStatements struct {
	undoEvents          listed
	undoFirst, undoNext string

	nextTopic              string
	topicRows              union
	openPage               string
	heads                  listed
	laneHead               string
	laneRows               union
	lock, lockLanes, claim listed
	topicDue               string

	markable, markableLock, done, doneDelete, doneReceipts, held, heldLock listed
	retry, dead, unavailable                                               string
	beginSuspect, renew, release                                           listed

	countReady, countOpen, countDead, countBlocked, firstCreated, clock, listDead string

	redriveRows, redrive, discardRows, discard listed
	discardDead                                string
	deadForAppend                              listed
	append, audit                              string

	ended                                    string
	cleanup                                  listed
	keys                                     string
	collectLock, collectEmpty, collectDelete listed
	resetKeys                                string
}

// newRowStatements makes the statements. Their words, in addition to those of every database: in
// and ago are now plus and minus a parameter in microseconds. first_seq:x is the headers with the
// key_seq of the row under the name x, unless that header exists. lock is the row lock of a SELECT
// that skips locked rows, and wait the one that waits. use:x names the index to read. ready and
// open are the conditions of the two indexes over open rows, and topic and lane their first
// columns.
func newRowStatements(n names) *rowStatements {
	text := n.expand
	list := func(s string) listed { return newListed(text(s)) }
	return &rowStatements{
		undoEvents: list("DELETE FROM {event} WHERE id IN ({ids})"),
		undoFirst:  text("DELETE FROM {key} WHERE lane = ?"),
		undoNext:   text("UPDATE {key} SET last_seq = last_seq - ?, last_id = ?, prev_id = NULL WHERE lane = ?"),

		nextTopic: text(`SELECT {topic} FROM {event} e{use:event_ready} WHERE {ready}{topic} > ? ORDER BY {topic} ` +
			`LIMIT 1`),
		topicRows: union(text(`SELECT e.id, e.topic, {octets} FROM {event} e{use:event_ready} WHERE {ready}{topic} ` +
			`= ? AND ` +
			rowDue + ` AND ` + rowFree + ` ORDER BY e.available_at, e.id LIMIT ?`)),
		openPage: text(`SELECT {lane}, e.key_seq, e.id, {dead} FROM {event} e{use:event_open} WHERE {open}{lane} > ? ` +
			`ORDER BY {order}, e.key_seq LIMIT ?`),
		heads: list(`SELECT e.id, e.topic, {octets}, CASE WHEN ` + rowDue + ` AND ` + rowFree + ` THEN 1 ELSE 0 END,
  CASE WHEN ` + rowFree +
			` OR e.lease_until < e.available_at THEN {us:e.available_at} ELSE {us:e.lease_until} END - {clock},
  (SELECT d.key_seq FROM {event} d{use:event_open} WHERE {deadof} ORDER BY d.key_seq LIMIT 1)
FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND e.status IN (0,2)`),
		laneHead: text(`SELECT e.key_seq, e.id FROM {event} e{use:event_open} WHERE {live}{lane} = ? ORDER BY ` +
			`e.key_seq ` +
			`LIMIT 1`),
		laneRows: union(text(`SELECT e.id, {lane} AS lane, e.key_seq, {octets} AS size, CASE WHEN ` + rowDue + ` AND ` +
			rowFree +
			` THEN 1 ELSE 0 END AS ok
FROM {event} e{use:event_open} WHERE {live}{lane} = ? ORDER BY e.key_seq LIMIT ?`)),
		lock: list(`SELECT ` + eventColumns + claimColumns + `, CASE WHEN e.lease_until <= {now} AND e.claimed_by ` +
			`<> ? AND ` +
			`e.lost_claims < ` + suspicious + ` THEN 1 ELSE 0 END
FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND ` + rowOpen + ` ORDER BY e.id{lock}`),
		// The previous row and the first dead row are read again here, in one view of the lane,
		// because the statements before had different views.
		lockLanes: list(`SELECT ` + eventColumns + claimColumns +
			`, CASE WHEN e.lease_until <= {now} AND e.claimed_by <> ` +
			`? AND e.lost_claims < ` + suspicious + ` THEN 1 ELSE 0 END,
  (SELECT d.key_seq FROM {event} d{use:event_open} WHERE {openof} AND d.key_seq < e.key_seq ORDER BY d.key_seq
    DESC LIMIT 1),
  (SELECT d.key_seq FROM {event} d{use:event_open} WHERE {deadof} AND d.key_seq < e.key_seq ORDER BY d.key_seq LIMIT 1)
FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND ` + rowOpen + ` ORDER BY e.id{lock}`),
		claim: list(`UPDATE {event}{use:primary} SET lost_claims = ABS(lost_claims) +
  CASE WHEN lease_until <= {now} AND claimed_by <> ? AND lost_claims < ` + suspicious +
			` THEN 1 ELSE 0 END, claim_no = claim_no + 1,
  claimed_by = ?, lease_until = {in} WHERE id IN ({ids})`),
		topicDue: text(`SELECT MIN(x.t) FROM (SELECT CASE WHEN ` + rowFree +
			` OR e.lease_until < e.available_at THEN {us:e.available_at}
  ELSE {us:e.lease_until} END - {clock} AS t FROM {event} e{use:event_ready} WHERE {ready}{topic} = ? ORDER BY
    e.available_at, e.id LIMIT 1000) x`),

		markable: list(`SELECT e.id FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND e.status IN (0,2,3) ORDER ` +
			`BY e.id`),
		markableLock: list(`SELECT e.id FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND e.status IN ` +
			`(0,2,3) ORDER ` +
			`BY e.id{lock}`),
		done: list(`UPDATE {event}{use:primary} SET status = 1, done_at = {now}, lease_until = NULL, ` +
			`last_error_code = NULL, last_error = NULL WHERE id IN ({ids}) AND status IN (0,2,3)`),
		doneDelete: list(`DELETE FROM {event} WHERE id IN ({ids}) AND status IN (0,2,3)`),
		doneReceipts: list(`UPDATE {event}{use:primary} SET receipt = CASE id{whens} ELSE receipt END, status = 1,
	  done_at = {now}, lease_until = NULL,
  last_error_code = NULL, last_error = NULL WHERE id IN ({ids}) AND status IN (0,2,3)`),
		held: list(`SELECT e.id, e.claim_no FROM {event} e{use:primary}
WHERE e.id IN ({ids}) AND e.claimed_by = ? AND e.status IN (0,2) AND e.lease_until IS NOT NULL ORDER BY e.id`),
		heldLock: list(`SELECT e.id, e.claim_no FROM {event} e{use:primary}
WHERE e.id IN ({ids}) AND e.claimed_by = ? AND e.status IN (0,2) AND e.lease_until IS NOT NULL ORDER BY e.id{lock}`),
		retry: text(`UPDATE {event} SET status = 2, attempts = attempts + 1, available_at = {in}, lease_until = NULL,
	  last_error_code = ?, last_error = ?
WHERE id = ?`),
		dead: text(`UPDATE {event} SET status = 3, attempts = attempts + 1, lease_until = NULL, last_error_code = ?, ` +
			`last_error = ? WHERE id = ?`),
		unavailable: text(`UPDATE {event} SET available_at = {in}, lease_until = NULL, last_error_code = ?, ` +
			`last_error = ?
WHERE id = ?`),
		beginSuspect: list(`UPDATE {event}{use:primary} SET lost_claims = -ABS(lost_claims) WHERE id IN ({ids})`),
		renew:        list(`UPDATE {event}{use:primary} SET lease_until = {in} WHERE id IN ({ids})`),
		release:      list(`UPDATE {event}{use:primary} SET lease_until = NULL WHERE id IN ({ids})`),

		countReady: text(`SELECT COUNT(*), MIN(x.created_at) FROM (SELECT {us:e.created_at} AS created_at FROM {event}
	  e{use:event_ready}
  WHERE {ready}{topic} IS NOT NULL ORDER BY {topic} LIMIT ?) x`),
		countOpen: text(`SELECT COUNT(*), MIN(x.created_at) FROM (SELECT {us:e.created_at} AS created_at FROM {event}
	  e{use:event_open}
  WHERE {live}{lane} IS NOT NULL ORDER BY {lane} LIMIT ?) x`),
		countDead: text(`SELECT COUNT(*) FROM (SELECT e.id FROM {event} e{use:event_ended} WHERE {ended3} LIMIT ?) x`),
		countBlocked: text(`SELECT COUNT(DISTINCT x.lane) FROM (SELECT e.lane FROM {event} e{use:event_ended} WHERE ` +
			`{ended3} AND e.lane IS NOT NULL LIMIT ?) x`),
		firstCreated: text(`SELECT {us:e.created_at} FROM {event} e{use:event_ready} WHERE {ready}{topic} = ? ` +
			`ORDER BY ` +
			`e.available_at, e.id LIMIT 1`),
		clock: text(`SELECT {clock}`),
		listDead: text(`SELECT ` + eventColumns +
			`, e.attempts, ABS(e.lost_claims), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), ` +
			`{us:e.created_at}
FROM {event} e{use:event_ended} WHERE {ended3} AND e.id > ? AND (? = '' OR {bin:e.topic} = ?) AND (? = '' OR
  {bin:e.event_type} = ?)
  AND (? = '' OR {bin:e.tenant_id} = ?) ORDER BY e.id LIMIT ?`),

		redriveRows: list(`SELECT e.id, e.event_id, e.topic FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND
	  e.status = 3 AND (e.lane IS NULL OR ? = 0)
ORDER BY e.id{wait}`),
		redrive: list(`UPDATE {event}{use:primary} SET status = 2, attempts = 0, lost_claims = 0, claim_no = claim_no +
	  1, lease_until = NULL,
  available_at = {now} WHERE id IN ({ids})`),
		discardRows: list(`SELECT e.id, e.event_id, e.topic FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND
	  (e.status = 3 OR e.status IN (0,2)
  AND (? = 1 OR e.lease_until IS NULL OR e.lease_until <= {now})) ORDER BY e.id{wait}`),
		discard: list(`UPDATE {event}{use:primary} SET status = 4, claim_no = claim_no + 1, lease_until = NULL, ` +
			`done_at = {now} WHERE id IN ({ids})`),
		discardDead: text(`UPDATE {event} SET status = 4, claim_no = claim_no + 1, lease_until = NULL, ` +
			`done_at = {now} ` +
			`WHERE id = ? AND status = 3`),
		deadForAppend: list(`SELECT e.id, e.event_id, e.topic, e.lane, e.key_seq FROM {event} e{use:primary} ` +
			`WHERE e.id ` +
			`IN ({ids}) AND e.status = 3 AND e.lane IS NOT NULL ORDER BY e.id{wait}`),
		append: text(`INSERT INTO {event} (id, key_seq, available_at, created_at, ` + copiedColumns + `)
SELECT ?, ?, {now}, {now}, ` + copiedRow + ` FROM {event} WHERE id = ?`),
		audit: text(`INSERT INTO {audit} (at, action, actor, reason, row_id, event_id, topic, new_id) VALUES ` +
			`({now}, ?, ?, ` +
			`?, ?, ?, ?, ?)`),

		ended: text(`SELECT e.id FROM {event} e{use:event_ended} WHERE {ended1} AND e.done_at < {ago} ORDER BY ` +
			`e.done_at LIMIT ?`),
		cleanup: list(`DELETE FROM {event} WHERE id IN ({ids}) AND status IN (1,4)`),
		keys:    text(`SELECT k.lane FROM {key} k WHERE k.lane > ? ORDER BY k.lane LIMIT ?`),
		collectLock: list(`SELECT k.lane FROM {key} k WHERE k.lane IN ({ids}) AND k.used_at < {ago} ORDER BY ` +
			`k.lane{lock}`),
		collectEmpty:  list(`SELECT k.lane FROM {key} k WHERE k.lane IN ({ids}) AND {noneof}`),
		collectDelete: list(`DELETE FROM {key} WHERE lane IN ({ids})`),
		resetKeys: text(`UPDATE {key} SET last_seq = {max}(last_seq, {clock}), first_seq = {max}(last_seq, {clock}), ` +
			`last_id = NULL, prev_id = NULL`),
	}
}
