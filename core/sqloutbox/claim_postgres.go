package sqloutbox

import (
	"context"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Comparisons use statement_timestamp(), which an index condition may use. Stored times come from
// clock_timestamp().
const (
	postgresFree = "(e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR " +
		"e.lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond')"
	postgresDue = "e.available_at <= statement_timestamp()"

	// postgresOK is true if a row of a key can be claimed, unless a row before it prevents the
	// claim.
	postgresOK = "(e.status <> 3 AND " + postgresDue + " AND " + postgresFree + ")"

	// postgresInLane are the open and dead rows of keys, as in their index.
	postgresInLane = "e.status IN (0,2,3) AND e.lane IS NOT NULL"

	// postgresTenant is true if the row's tenant is not in $17, the paused tenants.
	postgresTenant = "COALESCE(e.tenant_id, '') <> ALL ($17::text[])"

	// postgresTake leases the rows of the list "take" by their addresses, which were found and
	// locked in the same statement. A row that had changed before its lock was granted has another
	// address, which the snapshot of the statement does not show: such a row stays free. An address
	// must never leave its statement, because VACUUM gives it to another row. The list is an array,
	// because a join might read the whole table to build a hash table. A partitioned table has the
	// same addresses in each partition: there the rows are found by their ids. Parameters: $1 node,
	// $2 lease, $15 the claim number.
	postgresTake = `UPDATE {event} e SET claim_no = $15::bigint,
  lost_claims = abs(e.lost_claims) +
    CASE WHEN e.lease_until <= statement_timestamp() AND e.claimed_by <> $1::text AND e.lost_claims < ` + suspicious +
		` THEN 1 ELSE 0 END,
  claimed_by = $1::text, lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
WHERE {rows:take} AND e.status IN (0,2)
RETURNING ` + eventColumns + claimColumns
)

// postgresNoRow stands for the columns of postgresTake in a row of facts about the whole claim.
const postgresNoRow = `'00000000-0000-0000-0000-000000000000'::uuid, '', '', 0, '', '', '', 0::bigint, '', '', ` +
	`NULL::bytea, 0::bigint, ` +
	`''::bytea, '', NULL::jsonb, 0::bigint, 0, 0, 0::bigint, NULL::uuid, 0::bigint, 0::bigint`

// postgresServed leaves out the topics that are served in a process, unless $6 or $14 names them.
const postgresServed = ` AND ($6::text[] IS NOT NULL OR e.topic NOT LIKE '` + core.ServedTopicPrefix +
	`%' OR e.topic = ANY ($14::text[]))`

// postgresTopics lists the topics of $6, or else all topics with open rows, and leaves out the topics
// of $7. $16 are the due times to start at for the topics of $6, in microseconds since 1970; if it
// is empty, claims start at the beginning. $20 are an empty text and topics that probably have open
// rows, or nothing if $6 is set. Other topics are found by jumping from one to the next between
// these. So no jump reads over the finished entries at the front of a topic that is known.
const postgresTopics = `WITH RECURSIVE all_topics AS (
  SELECT k.topic COLLATE "C" AS topic, lead(k.topic COLLATE "C") OVER (ORDER BY k.topic COLLATE "C") AS known
  FROM unnest($20::text[]) k(topic)
  UNION ALL
  SELECT n.topic, t.known FROM all_topics t CROSS JOIN LATERAL (
    (SELECT e.topic FROM {event} e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic > t.topic AND
      e.topic < t.known ORDER BY e.topic LIMIT 1)
    UNION ALL (SELECT e.topic FROM {event} e WHERE t.known IS NULL AND e.status IN (0,2) AND e.lane IS NULL AND
      e.topic > t.topic ORDER BY e.topic LIMIT 1)) n
), topics AS MATERIALIZED (
  SELECT e.topic, '-infinity'::timestamptz AS since FROM all_topics e
  WHERE e.topic <> '' AND e.topic <> ALL ($7::text[])` +
	postgresServed + `
  UNION ALL SELECT l.topic COLLATE "C", COALESCE('epoch'::timestamptz + l.since * interval '1 microsecond',
    '-infinity') FROM unnest($6::text[], $16::bigint[]) l(topic, since)
)`

// postgresClaimUnordered: $3 limit, $5 bytes, $8 whether the first row may have more bytes. Rows
// are locked in the order of the index, so that simultaneous claims share the table and do not want
// the same rows. Those due first are taken, with topics in turns: see unorderedRows. Each row comes
// with facts about the whole claim: how many topics and candidates there were, and if $18 asks for
// it, the part of the index that the claim has read. The UPDATE is the statement itself: a list of
// its rows would be a second copy of them.
var postgresClaimUnordered = renumber(postgresTopics+`, cand AS MATERIALIZED (
  SELECT c.tid, c.id, c.available_at, c.size,
    row_number() OVER (PARTITION BY t.topic ORDER BY c.available_at, c.id) AS turn
  FROM topics t CROSS JOIN LATERAL (
    SELECT e.ctid AS tid, e.id, e.available_at, octet_length(e.payload) AS size FROM {event} e
    WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = t.topic AND `+postgresDue+` AND
      e.available_at >= t.since AND `+postgresFree+` AND `+postgresTenant+`
    ORDER BY e.available_at, e.id
    LIMIT (SELECT ($3::bigint + greatest(count(*), 1) - 1) / greatest(count(*), 1) FROM topics)
    FOR UPDATE SKIP LOCKED) c
), take AS MATERIALIZED (
  SELECT {row} FROM (SELECT {row}, row_number() OVER w AS n, sum(size) OVER w AS total FROM cand
    WINDOW w AS (ORDER BY turn, available_at, id)) c
  WHERE n <= $3::bigint AND (n = 1 AND $8::boolean OR total <= $5::bigint)
)
`+postgresTake+`, COALESCE({us:e.available_at}, 0), (SELECT count(*) FROM topics), (SELECT count(*) FROM cand),
  (SELECT CASE WHEN $18::boolean THEN `+postgresEntriesRead+` ELSE 0 END)`,
	1, 2, 3, 4, 5, 6, 7, 8, 14, 15, 16, 17, 18, 20)

// postgresShort is the parameter whose value is shortRun.
const postgresShort = `$19::bigint`

// postgresRun turns the list "heads" of claimable keys into "take": the heads and the rows that
// follow them, up to the first that cannot be claimed. A row that another transaction holds, or
// that has changed since, ends the run of its key. $8 is the longest run.
const postgresRun = `, cand AS MATERIALIZED (
  SELECT r.tid, r.id, h.lane, r.key_seq, r.size,
    bool_and(r.ok) OVER (PARTITION BY h.lane ORDER BY r.key_seq, r.id) AS ok
  FROM (SELECT lane FROM heads ORDER BY lane LIMIT $3::bigint) h CROSS JOIN LATERAL (
    SELECT e.ctid AS tid, e.id, e.key_seq, octet_length(e.payload) AS size, ` + postgresOK + ` AS ok
    FROM {event} e WHERE e.lane = h.lane AND ` + postgresInLane + `
    ORDER BY e.lane, e.key_seq
    LIMIT (SELECT greatest(` + postgresShort + `, least($8::bigint, $3::bigint / greatest(count(*), 1))) FROM heads)) r
), sized AS MATERIALIZED (
  SELECT tid, id, lane, key_seq, row_number() OVER w AS n, sum(size) OVER w AS total FROM cand WHERE ok WINDOW w AS
    (ORDER BY lane, key_seq, id)
), picked AS MATERIALIZED (
  SELECT tid, id, lane, key_seq FROM sized WHERE n <= $3::bigint AND (n = 1 OR total <= $5::bigint)
), held AS MATERIALIZED (
  SELECT {and_id}e.ctid AS tid FROM {event} e WHERE {rows:picked} FOR UPDATE SKIP LOCKED
), take AS MATERIALIZED (
  SELECT {row} FROM (SELECT p.{row},
    bool_and(h.tid IS NOT NULL) OVER (PARTITION BY p.lane ORDER BY p.key_seq, p.id) AS ok
    FROM picked p LEFT JOIN held h ON {same}h.tid = p.tid) r WHERE ok
)`

// postgresLanes jumps from the first row of one key to the first row of the next. $9 is the lane to
// start after, $10 the number of lanes. $11 and $12 are the prefixes of the wanted and the stopped
// topics; a stopped topic is jumped over as a whole.
var postgresLanes = postgresScan("0::bigint", "")

// postgresClaimLanes does the same, and stops when the claimable heads have $3 rows behind them,
// counting at most a short run for each key.
var postgresClaimLanes = postgresScan(`CASE WHEN `+postgresOK+` AND `+postgresTenant+` THEN (SELECT count(*) FROM (
    SELECT FROM {event} r WHERE r.lane = e.lane AND r.status IN (0,2,3) AND r.lane IS NOT NULL LIMIT `+postgresShort+
	`) r) ELSE 0 END`,
	"AND l.total < $3::bigint")

func postgresScan(found, more string) string {
	row := "e.id, e.lane, e.topic, e.tenant_id, e.status, e.available_at, e.lease_until, " + postgresOK + " AS ok, "
	return `lanes AS (
  (SELECT ` + row + `1 AS n, ` + found + ` AS total FROM {event} e
   WHERE ` + postgresInLane + ` AND e.lane > $9::bytea ORDER BY e.lane, e.key_seq LIMIT 1)
  UNION ALL
  SELECT h.id, h.lane, h.topic, h.tenant_id, h.status, h.available_at, h.lease_until, h.ok, l.n + 1, l.total + h.found
    FROM lanes
    l CROSS JOIN LATERAL (
    SELECT ` + row + found + ` AS found FROM {event} e
    WHERE ` + postgresInLane + ` AND e.lane > CASE
      WHEN encode(substring(l.lane from 1 for 4), 'hex') = ANY ($12::text[])
        THEN substring(l.lane from 1 for 4) || '\xffffffffffffffffffffffff'::bytea
      WHEN encode(substring(l.lane from 1 for 4), 'hex') <> ALL ($11::text[])
        THEN (SELECT decode(p || '000000000000000000000000', 'hex') FROM unnest($11::text[]) p
              WHERE p COLLATE "C" > encode(substring(l.lane from 1 for 4), 'hex') ORDER BY p COLLATE "C" LIMIT 1)
      ELSE l.lane END
    ORDER BY e.lane, e.key_seq LIMIT 1) h
  WHERE l.n < $10::bigint ` + more + `
)`
}

// postgresHeads are the heads that may be claimed: $6 and $7 the topics. The first row of a key
// decides: if it is dead, leased, not due or of a paused tenant, nothing of the key can be claimed.
const postgresHeads = `SELECT e.lane FROM lanes e WHERE e.ok AND ` + postgresWanted

// postgresWanted is true if the topic and the tenant of a head are wanted.
const postgresWanted = postgresTenant + `
    AND ($6::text[] IS NULL OR e.topic = ANY ($6::text[])) AND e.topic <> ALL ($7::text[])` + postgresServed

// A claim of heads tells which lane it ends at, for the next one, and how many heads are dead. A
// claim that is likely to take rows has these facts in each row, as postgresClaimUnordered does. One
// that may take nothing has them in a row of their own, behind a list of the rows.
var (
	postgresClaimHeads       = claimHeads(postgresTake + ", " + postgresNextHead + ", " + postgresDeadHeads)
	postgresClaimHeadsOrNone = claimHeads(`, taken AS (` + postgresTake + `)
SELECT taken.*, NULL::bytea, 0::bigint FROM taken UNION ALL SELECT ` + postgresNoRow + ", " + postgresNextHead + ", " +
		postgresDeadHeads)
)

func claimHeads(take string) string {
	return renumber(`WITH RECURSIVE `+postgresClaimLanes+`, heads AS MATERIALIZED (`+postgresHeads+`)`+postgresRun+take,
		1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 17, 19)
}

const (
	postgresNextHead = `(SELECT CASE
    WHEN (SELECT count(*) FROM heads) > $3::bigint OR (SELECT count(*) FROM sized) > (SELECT count(*) FROM picked)
      THEN (SELECT lane FROM picked ORDER BY lane DESC LIMIT 1)
    WHEN (SELECT count(*) FROM lanes) >= $10::bigint OR (SELECT max(total) FROM lanes) >= $3::bigint
      THEN (SELECT lane FROM lanes ORDER BY lane DESC LIMIT 1)
  END)`
	postgresDeadHeads = `(SELECT count(*) FROM lanes e WHERE e.status = 3 AND ` + postgresWanted + `)`
)

// postgresClaimKey is the same for the one lane $9.
var postgresClaimKey = renumber(`WITH lanes AS (
  SELECT e.lane, e.topic, e.tenant_id, e.status, `+postgresOK+` AS ok FROM {event} e WHERE e.lane = $9::bytea
    AND `+postgresInLane+`
  ORDER BY e.lane, e.key_seq LIMIT 1
), heads AS MATERIALIZED (`+postgresHeads+`)`+postgresRun+`, taken AS (`+postgresTake+`)
SELECT taken.*, NULL::bytea, 0::bigint FROM taken UNION ALL SELECT `+postgresNoRow+`, NULL::bytea, 1::bigint
  FROM lanes e WHERE e.status = 3 AND `+postgresWanted, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 15, 17, 19)

// postgresNextDue returns the earliest time, in microseconds from now, at which an open row may be
// claimed. $13 is true if dead rows are skipped: a dead head is then due, because a claim removes
// it from its key.
var postgresNextDue = renumber(postgresTopics+`, unordered AS (
  SELECT min(greatest(c.available_at, c.until)) AS at FROM topics t CROSS JOIN LATERAL (
    SELECT e.available_at, CASE WHEN `+postgresFree+` THEN NULL ELSE e.lease_until END AS until
    FROM {event} e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = t.topic AND
      `+postgresTenant+`
    ORDER BY e.available_at, e.id LIMIT `+strconv.Itoa(nextDueRowsPerTopic)+`) c
), `+postgresLanes+`, ordered AS (
  SELECT min(CASE WHEN e.status = 3 THEN {now}
    ELSE greatest(e.available_at, CASE WHEN `+postgresFree+` THEN NULL ELSE e.lease_until END) END) AS at
  FROM lanes e WHERE (e.status <> 3 OR $13::boolean) AND `+postgresWanted+`
) SELECT {us:d.at} - {clock} FROM (SELECT least(u.at, o.at) AS at FROM unordered u, ordered o) d`,
	4, 6, 7, 9, 10, 11, 12, 13, 14, 16, 17, 20)

var parameter = regexp.MustCompile(`\$[0-9]+`)

// renumber numbers the parameters of a text $1, $2 and so on. The text is made of pieces that other
// texts share.
func renumber(text string, used ...int) string {
	return parameter.ReplaceAllStringFunc(text, func(p string) string {
		for i, n := range used {
			if p == "$"+strconv.Itoa(n) {
				return "$" + strconv.Itoa(i+1)
			}
		}
		return p
	})
}

// postgresClaims is the part of postgres that claims.
type postgresClaims struct {
	pool
	sql     postgresClaimStatements
	cursors cursors
	heads   atomic.Bool // the last claim of heads took rows
}

type postgresClaimStatements struct {
	claimUnordered, claimHeads, claimHeadsOrNone, claimLane, nextDue string
}

func newPostgresClaimStatements(n names) postgresClaimStatements {
	return postgresClaimStatements{
		claimUnordered:   n.expand(postgresClaimUnordered),
		claimHeads:       n.expand(postgresClaimHeads),
		claimHeadsOrNone: n.expand(postgresClaimHeadsOrNone),
		claimLane:        n.expand(postgresClaimKey),
		nextDue:          n.expand(postgresNextDue),
	}
}

// claimTopics starts at the cursors if the last pass from the beginning was slow. Another one
// follows if that was not enough, and if it may. Without oversize it goes on behind the rows that
// were claimed before.
func (p *postgresClaims) claimTopics(ctx context.Context, req core.ClaimRequest, f filter, oversize bool,
) (rows []core.Claimed, topics int, err error) {
	p.cursors.follow(req.ExceptTenants)
	if !oversize {
		res, err := p.claimUnordered(ctx, req, f, p.cursors.of(f.only), false, false)
		return res.rows, res.topics, err
	}
	if only, since := p.cursors.partial(f, time.Now()); len(only) > 0 {
		res, err := p.claimUnordered(ctx, req, filter{only: only}, since, true, false)
		if rows, topics = res.rows, res.topics; err != nil || len(rows) >= req.Limit ||
			len(rows) > 0 && !p.cursors.rested(f, time.Now()) {
			return rows, topics, err
		}
		req.Limit -= len(rows)
		for i := range rows {
			req.MaxBytes -= int64(len(rows[i].Event.Payload))
		}
		if req.MaxBytes <= 0 {
			return rows, topics, nil
		}
	}
	start := time.Now()
	res, err := p.claimUnordered(ctx, req, f, nil, len(rows) == 0, p.cursors.slow(f))
	if err != nil {
		p.cursors.failed(f, time.Now(), time.Since(start))
		if len(rows) > 0 { // these are claimed already
			return rows, topics, nil
		}
		return nil, 0, err
	}
	p.cursors.passed(f, time.Now(), res.took, len(res.rows), res.entries)
	return append(res.rows, rows...), max(topics, res.topics), nil
}

// claimUnordered claims from the due times since on, or from the beginning. read asks for the part
// of the index that was read.
func (p *postgresClaims) claimUnordered(ctx context.Context, req core.ClaimRequest, f filter, since []int64,
	oversize, read bool,
) (found unorderedRows, err error) {
	args := []any{
		req.Node, micros(req.Lease), int64(req.Limit), micros(req.MaxLease),
		req.MaxBytes, textArrayOrNil(f.only), textArray(f.except), oversize, textArray(f.served), req.ClaimNo,
		column(since, func(us *int64) string { return strconv.FormatInt(*us, 10) }), textArray(req.ExceptTenants),
		read, textArray(p.cursors.known(f)),
	}
	err = p.scan(ctx, "claim unordered", func(q sqlkit.Querier) (err error) {
		var due int64
		found = unorderedRows{}
		s := newClaimScan(&due, &found.topics, &found.candidates, &found.entries)
		start := time.Now()
		found.rows, err = claimRows(ctx, q, p.sql.claimUnordered, args, req.Limit, s, func() {
			found.due = append(found.due, due)
		})
		found.took = time.Since(start)
		return err
	})
	if err != nil {
		return unorderedRows{}, err
	}
	p.cursors.claimed(f, found.inTurns(), quota(req.Limit, found.topics), found.candidates > len(found.rows))
	return found, nil
}

func (p *postgresClaims) claimHeads(ctx context.Context, req core.ClaimRequest, f filter,
	after core.KeyID,
) (rows []core.Claimed, next core.KeyID, dead bool, err error) {
	args := []any{
		req.Node, micros(req.Lease), int64(req.Limit), micros(req.MaxLease),
		req.MaxBytes, textArrayOrNil(f.only), textArray(f.except), int64(req.Run), after[:], int64(req.Keys),
		f.onlyPrefixes(), textArray(prefixes(f.except)), textArray(f.served), req.ClaimNo,
		textArray(req.ExceptTenants), int64(shortRun(req)),
	}
	if p.heads.Load() {
		if rows, next, dead, err = p.claimLanes(ctx, "claim heads", p.sql.claimHeads, req, args); err != nil ||
			len(rows) > 0 {
			return rows, next, dead, err
		}
	}
	rows, next, dead, err = p.claimLanes(ctx, "claim heads", p.sql.claimHeadsOrNone, req, args)
	p.heads.Store(len(rows) > 0)
	return rows, next, dead, err
}

func (p *postgresClaims) claimLane(ctx context.Context, req core.ClaimRequest, f filter,
	lane core.KeyID,
) ([]core.Claimed, bool, error) {
	rows, _, dead, err := p.claimLanes(ctx, "claim key", p.sql.claimLane, req, []any{
		req.Node, micros(req.Lease), int64(req.Limit), micros(req.MaxLease),
		req.MaxBytes, textArrayOrNil(f.only), textArray(f.except), int64(req.Run), lane[:],
		textArray(f.served), req.ClaimNo, textArray(req.ExceptTenants), int64(shortRun(req)),
	})
	return rows, dead, err
}

// claimLanes runs a claim of heads or of a lane, which is one statement.
func (p *postgresClaims) claimLanes(ctx context.Context, what, text string, req core.ClaimRequest, args []any,
) (rows []core.Claimed, next core.KeyID, dead bool, err error) {
	err = p.scan(ctx, what, func(q sqlkit.Querier) (err error) {
		var end outboxsql.ID
		var heads int
		rows, err = claimRows(ctx, q, text, args, min(req.Limit, max(req.Run, 1)*max(req.Keys, 1)),
			newClaimScan(&end, &heads), func() {})
		next, dead = core.KeyID(end), heads > 0
		return err
	})
	return rows, next, dead, err
}

// claimRows runs the statement of a claim of at most limit rows, and calls also for each row that s
// has read. A row of postgresNoRow is only read.
func claimRows(ctx context.Context, q sqlkit.Querier, text string, args []any, limit int, s *claimScan, also func(),
) (rows []core.Claimed, err error) {
	err = sqlkit.EachRow(ctx, q, text, args, func(res core.Rows) error {
		if err := s.scan(res); err != nil || s.id == (outboxsql.ID{}) {
			return err
		}
		if rows == nil {
			rows = make([]core.Claimed, 0, limit)
		}
		rows = append(rows, s.claimed())
		also()
		return nil
	})
	return rows, err
}

// postgresEntriesRead is how many entries of the index the transaction has read, finished rows
// among them. It is 0 if the server does not count (track_counts).
const postgresEntriesRead = `COALESCE({read:event_ready}, 0)`

func (p *postgresClaims) nextDue(ctx context.Context, req core.ClaimRequest, f filter,
) (d time.Duration, ok bool, err error) {
	var after core.KeyID
	if req.Keys <= 0 {
		after = lastLane
	}
	args := []any{
		micros(req.MaxLease), textArrayOrNil(f.only), textArray(f.except), after[:],
		int64(max(req.Keys, 1)), f.onlyPrefixes(), textArray(prefixes(f.except)), req.SkipDead, textArray(f.served),
		textArray(nil), textArray(req.ExceptTenants), textArray(p.cursors.known(f)),
	}
	err = p.scan(ctx, "next due", func(q sqlkit.Querier) error {
		var us *int64
		_, err := sqlkit.FirstRow(ctx, q, p.sql.nextDue, args, &us)
		if d, ok = 0, us != nil; ok {
			d = untilDue(*us)
		}
		return err
	})
	return d, ok, err
}
