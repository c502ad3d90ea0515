package sqloutbox

import (
	"context"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
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
	// writing is held by the transaction that writes, on a database with one writer at a time.
	// SQLite lets a second one sleep for up to 100 ms at a time, whenever the first one ends. Nil:
	// no limit.
	writing chan struct{}
}

// variant has the differences between the databases of rowwise.
type variant struct {
	// locks: another transaction may hold the lock of a row. SQLite has one writer at a time.
	locks bool
	// oneWriter: the database has one writer at a time.
	oneWriter bool
	// rowids: claims find rows by their rowids, which saves a look-up by id. A rowid is used only
	// together with the id that it had: SQLite may give it to another row.
	rowids bool
	// occurred returns the parameter for the time of an event.
	occurred func(t time.Time) any
	// plain are the statements that insert. guarded are the same for MariaDB, which write nothing
	// if the caller's transaction has ended. guarded is nil for databases on which only the caller
	// ends a transaction.
	plain, guarded *inserts
}

func newRowwise(p pool, n names, v variant) *rowwise {
	w := &rowwise{pool: p, variant: v, sql: newRowStatements(n)}
	if v.oneWriter {
		w.writing = make(chan struct{}, 1)
	}
	return w
}

// inTx is the pool's inTx. Transactions of this repository wait for each other.
func (w *rowwise) inTx(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	if w.writing != nil {
		select {
		case w.writing <- struct{}{}:
			defer func() { <-w.writing }()
		case <-ctx.Done():
			return wrap(what, ctx.Err())
		}
	}
	return w.pool.inTx(ctx, what, fn)
}

func (w *rowwise) read(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	return w.single(ctx, what, fn)
}

// write waits for the other writers of this repository where there is one at a time.
func (w *rowwise) write(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	if w.oneWriter {
		return w.inTx(ctx, what, fn)
	}
	return w.single(ctx, what, fn)
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
	rowOK   = "e.status <> 3 AND " + rowDue + " AND " + rowFree // of a row that is open or dead
	// rowLost is whether a claim finds the lease of another node ended. Parameter: the node.
	rowLost = "CASE WHEN e.lease_until <= {now} AND e.claimed_by <> ? AND e.lost_claims < " + suspicious +
		" THEN 1 ELSE 0 END"
)

// rowwiseOld is whether a row ended long enough ago. Its parameters are keeps.
const rowwiseOld = `(e.status = 1 AND e.done_at < {ago} OR e.status = 4 AND e.done_at < {ago})`

const (
	rowwiseArchivable = `SELECT e.id, CASE WHEN ` + rowwiseOld + ` THEN {octets} END FROM {event} e{use:primary}
WHERE e.id > ? ORDER BY e.id LIMIT ?`
	rowwiseArchiveRows = `SELECT ` + eventColumns + archivedColumns + ` FROM {event} e{use:primary}
WHERE e.id IN ({ids}) AND ` + rowwiseOld + ` ORDER BY e.id{lock}`
)

// copiedRow are the values of outboxsql.CopiedColumns. The copy of an overtaken event carries its first
// number. Otherwise a consumer would take it for the newest.
const copiedRow = `event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, ` +
	`tenant_id, partition_key, ?, payload, content_type, {first_seq:` + core.HeaderFirstKeySeq +
	`}, occurred_at, replay_of`

// rowStatements are the statements of rowwise, except for inserts.
type rowStatements struct {
	undoEvents          listed
	undoFirst, undoNext string

	nextTopic          string
	topicRows          tenantUnion
	heads              listed
	firstLane          string // behind a bound
	lanePage, laneRows string
	deadHeads, leave   listed
	lock, claim        listed
	topicDue           tenantUnion

	markable, markableLock, done, doneDelete, doneReceipts, held, heldLock listed
	retry, dead, unavailable                                               string
	beginSuspect, tryAlone, renew, release                                 listed

	countReady, countKeyed, countDead, firstCreated, clock, listDead string

	redriveRows, redrive, discardRows, discard listed
	discardDead                                string
	deadForAppend                              listed
	append, audit                              string

	ended, archivable                        string
	cleanup, archiveRows                     listed
	keys                                     string
	collectLock, collectEmpty, collectDelete listed
	resetKeys                                string
}

// newRowStatements makes the statements. They have words in addition to the common ones: in and ago
// are now plus and minus a parameter in microseconds. first_seq:x is the headers with the key_seq
// of the row under the name x, unless that header exists. lock is the row lock of a SELECT that
// skips locked rows, and wait the row lock that waits. use:x names the index to read. ready is the
// condition of the open rows without a key in their index, and topic its next column. inlane is the
// condition of the open and dead rows of keys in theirs, and lane its first column. isdead is the
// condition of the index of dead rows. address is a column with the address of a row, empty where
// that is its id, at the column to find rows by their addresses, and byid the order in which they
// are locked.
func newRowStatements(n names) *rowStatements {
	text := n.expand
	list := func(s string) listed { return newListed(text(s)) }
	tenants := func(s string) tenantUnion { return newTenantUnion(n, s) }
	return &rowStatements{
		undoEvents: list("DELETE FROM {event} WHERE id IN ({ids})"),
		undoFirst:  text("DELETE FROM {key} WHERE lane = ?"),
		undoNext:   text("UPDATE {key} SET last_seq = last_seq - ?, last_id = ?, prev_id = NULL WHERE lane = ?"),

		nextTopic: text(`SELECT {topic} FROM {event} e{use:event_ready} WHERE {ready}{topic} > ? ORDER BY {topic} ` +
			`LIMIT 1`),
		topicRows: tenants(`SELECT e.id, e.topic, {octets}{address} FROM {event} e{use:event_ready} WHERE ` +
			`{ready}{topic} = ? AND ` + rowDue + ` AND ` + rowFree + `{tenants} ORDER BY e.available_at, e.id LIMIT ?`),
		heads: list(`SELECT e.id, e.topic, COALESCE(e.tenant_id, ''), {octets},
  CASE WHEN ` + rowOK + ` THEN 1 ELSE 0 END, CASE WHEN ` + rowFree +
			` OR e.lease_until < e.available_at THEN {us:e.available_at} ELSE {us:e.lease_until} END - {clock},
  CASE WHEN e.status = 3 THEN 1 ELSE 0 END{address}
FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND e.status IN (0,2,3)`),
		firstLane: text(`SELECT {lane} FROM {event} e{use:event_lanes} WHERE {inlane}{lane} > ? ` +
			`ORDER BY {lane}, e.key_seq LIMIT 1`),
		lanePage: text(`SELECT {lane}, COALESCE(e.key_seq, 0), e.id FROM {event} e{use:event_lanes}
WHERE {inlane}{lane} > ? ORDER BY {lane}, e.key_seq LIMIT ?`),
		laneRows: text(`SELECT e.id, e.topic, COALESCE(e.tenant_id, ''), COALESCE(e.key_seq, 0), {octets},
  CASE WHEN ` + rowOK + ` THEN 1 ELSE 0 END, CASE WHEN e.status = 3 THEN 1 ELSE 0 END{address}
FROM {event} e{use:event_lanes} WHERE {inlane}{lane} = ? ORDER BY e.key_seq LIMIT ?`),
		deadHeads: list(`SELECT e.id FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND e.status = 3 AND
  e.lane IS NOT NULL ORDER BY e.id{lock}`),
		leave: list(`UPDATE {event}{use:primary} SET lane = NULL WHERE id IN ({ids})`),
		lock: list(`SELECT ` + eventColumns + claimColumns + `, ` + rowLost + `{address}
FROM {event} e{use:primary} WHERE {at:e} IN ({ids}) AND ` + rowOpen + `{byid}{lock}`),
		claim: list(`UPDATE {event}{use:primary} SET lost_claims = ABS(lost_claims) +
  CASE WHEN lease_until <= {now} AND claimed_by <> ? AND lost_claims < ` + suspicious +
			` THEN 1 ELSE 0 END, claim_no = ?,
  claimed_by = ?, lease_until = {in} WHERE {at} IN ({ids})`),
		topicDue: tenants(`SELECT MIN(x.t) FROM (SELECT CASE WHEN ` + rowFree +
			` OR e.lease_until < e.available_at THEN {us:e.available_at}
  ELSE {us:e.lease_until} END - {clock} AS t FROM {event} e{use:event_ready} WHERE {ready}{topic} = ?{tenants} ORDER BY
    e.available_at, e.id LIMIT 1000) x`),

		markable: list(`SELECT e.id FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND e.status IN (0,2,3) ORDER ` +
			`BY e.id`),
		markableLock: list(`SELECT e.id FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND e.status IN (0,2,3) ` +
			`ORDER BY e.id{lock}`),
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
		retry: text(`UPDATE {event} SET failures = {attempt},
	  status = 2, attempts = attempts + 1, available_at = {in}, lease_until = NULL,
	  last_error_code = ?, last_error = ?, error_group = ?
WHERE id = ?`),
		dead: text(`UPDATE {event} SET failures = {attempt}, status = 3, attempts = attempts + 1, lease_until = NULL,
  lane = CASE WHEN ? = 1 THEN NULL ELSE lane END, last_error_code = ?, last_error = ?, error_group = ?
WHERE id = ?`),
		unavailable: text(`UPDATE {event} SET available_at = {in}, lease_until = NULL, last_error_code = ?, ` +
			`last_error = ?, error_group = ?
WHERE id = ?`),
		beginSuspect: list(`UPDATE {event}{use:primary} SET lost_claims = -ABS(lost_claims) WHERE id IN ({ids})`),
		tryAlone: list(`UPDATE {event}{use:primary} SET lost_claims = ABS(lost_claims), available_at = {in} ` +
			`WHERE id IN ({ids})`),
		renew:   list(`UPDATE {event}{use:primary} SET lease_until = {in} WHERE id IN ({ids})`),
		release: list(`UPDATE {event}{use:primary} SET lease_until = NULL WHERE id IN ({ids})`),

		countReady: text(`SELECT COUNT(*), MIN(x.created_at) FROM (SELECT {us:e.created_at} AS created_at FROM {event}
	  e{use:event_ready}
  WHERE {ready}{topic} IS NOT NULL ORDER BY {topic} LIMIT ?) x`),
		// The limit bounds the rows that are looked at: their index has dead rows too.
		countKeyed: text(`SELECT COUNT(*), COUNT(x.pending), MIN(CASE WHEN x.pending = 1 THEN x.created_at END)
  FROM (SELECT CASE WHEN e.status <> 3 THEN 1 END AS pending, {us:e.created_at} AS created_at
    FROM {event} e{use:event_lanes} WHERE {inlane}{lane} IS NOT NULL ORDER BY {lane} LIMIT ?) x`),
		countDead: text(`SELECT COUNT(*), COUNT(DISTINCT x.lane) FROM (SELECT e.lane FROM {event} e{use:event_dead} ` +
			`WHERE {isdead} LIMIT ?) x`),
		firstCreated: text(`SELECT {us:e.created_at} FROM {event} e{use:event_ready} WHERE {ready}{topic} = ? ORDER ` +
			`BY e.available_at, e.id LIMIT 1`),
		clock: text(`SELECT {clock}`),
		listDead: text(`SELECT ` + eventColumns +
			`, e.attempts, ABS(e.lost_claims), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), ` +
			`{us:e.created_at}
FROM {event} e{use:event_dead} WHERE {isdead} AND e.id > ? AND (? = '' OR {bin:e.topic} = ?) AND (? = '' OR
  {bin:e.event_type} = ?)
  AND (? = '' OR {bin:e.tenant_id} = ?) ORDER BY e.id LIMIT ?`),

		redriveRows: list(`SELECT e.id, e.event_id, e.topic FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND
	  e.status = 3 AND (e.key_seq IS NULL OR e.lane IS NOT NULL AND ? = 0)
ORDER BY e.id{wait}`),
		redrive: list(`UPDATE {event}{use:primary} SET status = 2, attempts = 0, lost_claims = 0, claim_no = 0,
  claimed_by = NULL, lease_until = NULL,
  available_at = {now} WHERE id IN ({ids})`),
		discardRows: list(`SELECT e.id, e.event_id, e.topic FROM {event} e{use:primary} WHERE e.id IN ({ids}) AND
	  (e.status = 3 OR e.status IN (0,2)
  AND (? = 1 OR e.lease_until IS NULL OR e.lease_until <= {now})) ORDER BY e.id{wait}`),
		discard: list(`UPDATE {event}{use:primary} SET status = 4, claim_no = 0, claimed_by = NULL, lease_until = ` +
			`NULL, done_at = {now} WHERE id IN ({ids})`),
		discardDead: text(`UPDATE {event} SET status = 4, claim_no = 0, claimed_by = NULL, lease_until = NULL, ` +
			`done_at = {now} WHERE id = ? AND status = 3`),
		deadForAppend: list(`SELECT e.id, e.event_id, e.topic, COALESCE(e.tenant_id, ''), COALESCE(e.partition_key, ''),
  e.key_seq, CASE WHEN e.replay_of IS NULL THEN 0 ELSE 1 END FROM {event} e{use:primary}
WHERE e.id IN ({ids}) AND e.status = 3 AND e.key_seq IS NOT NULL AND (? = 1 OR e.lane IS NULL) ORDER BY e.id{wait}`),
		append: text(`INSERT INTO {event} (id, key_seq, available_at, created_at, failures,
	  ` + outboxsql.CopiedColumns + `)
SELECT ?, ?, {now}, {now}, failures, ` + copiedRow + ` FROM {event} WHERE id = ?`),
		audit: text(`INSERT INTO {audit} (at, action, actor, reason, row_id, event_id, topic, new_id) VALUES ({now}, ` +
			`?, ?, ?, ?, ?, ?, ?)`),

		ended: text(`SELECT e.id, CASE WHEN ` + rowwiseOld + ` THEN 1 ELSE 0 END ` +
			`FROM {event} e{use:primary} WHERE e.id > ? ORDER BY e.id LIMIT ?`),
		cleanup:     list(`DELETE FROM {event} WHERE id IN ({ids}) AND ` + strings.ReplaceAll(rowwiseOld, "e.", "")),
		archivable:  text(rowwiseArchivable),
		archiveRows: list(rowwiseArchiveRows),
		keys:        text(`SELECT k.lane FROM {key} k WHERE k.lane > ? ORDER BY k.lane LIMIT ?`),
		collectLock: list(`SELECT k.lane FROM {key} k WHERE k.lane IN ({ids}) AND k.used_at < {ago} ORDER BY ` +
			`k.lane{lock}`),
		collectEmpty:  list(`SELECT k.lane FROM {key} k WHERE k.lane IN ({ids}) AND {noneof}`),
		collectDelete: list(`DELETE FROM {key} WHERE lane IN ({ids})`),
		resetKeys: text(`UPDATE {key} SET last_seq = {max}(last_seq, {clock}), first_seq = {max}(last_seq, {clock}), ` +
			`last_id = NULL, prev_id = NULL WHERE lane <> ` + bellLane),
	}
}
