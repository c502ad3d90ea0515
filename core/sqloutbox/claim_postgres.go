package sqloutbox

import (
	"context"
	"regexp"
	"strconv"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Comparisons use statement_timestamp(), which an index condition may use. Stored times come from
// clock_timestamp().
const (
	postgresFree = "(e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR " +
		"e.lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond')"
	postgresDue = "e.available_at <= statement_timestamp()"

	// postgresTake leases the rows of the list "take". The list is an array, because a join might
	// read the whole table to build a hash of it. Parameters: $1 node, $2 lease, $4 the longest
	// lease.
	postgresTake = `UPDATE {event} e SET claim_no = e.claim_no + 1,
  lost_claims = abs(e.lost_claims) +
    CASE WHEN e.lease_until <= statement_timestamp() AND e.claimed_by <> $1::text AND e.lost_claims < ` + suspicious +
		` THEN 1 ELSE 0 END,
  claimed_by = $1::text, lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
WHERE e.id = ANY (ARRAY(SELECT id FROM take)) AND e.status IN (0,2) AND ` + postgresDue + ` AND ` + postgresFree + `
RETURNING ` + eventColumns + claimColumns
)

// postgresNoRow ends the answer of a claim with a row of facts about the whole claim.
const postgresNoRow = `'00000000-0000-0000-0000-000000000000'::uuid, '', '', 0, '', '', '', 0::bigint, '', '', ` +
	`NULL::bytea, 0::bigint, ` +
	`''::bytea, '', NULL::jsonb, 0::bigint, 0, 0, 0::bigint, NULL::uuid, 0::bigint, 0::bigint`

// postgresServed leaves out the topics that are served in a process, unless $6 or $14 names them.
const postgresServed = ` AND ($6::text[] IS NOT NULL OR e.topic NOT LIKE '` + core.ServedTopicPrefix +
	`%' OR e.topic = ANY ($14::text[]))`

// postgresTopics lists the wanted topics without those of $7: those of $6, or all that have open
// rows, found by jumping from one to the next.
const postgresTopics = `WITH RECURSIVE all_topics AS (
  (SELECT e.topic FROM {event} e WHERE $6::text[] IS NULL AND e.status IN (0,2) AND e.lane IS NULL ORDER BY
    e.topic LIMIT 1)
  UNION ALL
  SELECT n.topic FROM all_topics t CROSS JOIN LATERAL (SELECT e.topic FROM {event} e
    WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic > t.topic ORDER BY e.topic LIMIT 1) n
), topics AS MATERIALIZED (
  SELECT e.topic FROM all_topics e WHERE e.topic <> ALL ($7::text[])` + postgresServed + `
  UNION ALL SELECT unnest($6::text[]) COLLATE "C"
)`

// postgresClaimUnordered: $3 limit, $5 bytes, $8 whether the first row may have more bytes. Rows
// are locked in the order of the index, so that simultaneous claims share the table and do not want
// the same rows. They are returned oldest due first, with topics in turns. So a retried row comes
// after rows that wait longer, whatever its id.
var postgresClaimUnordered = renumber(postgresTopics+`, cand AS MATERIALIZED (
  SELECT c.id, c.available_at, c.size, row_number() OVER (PARTITION BY t.topic ORDER BY c.available_at, c.id) AS turn
  FROM topics t CROSS JOIN LATERAL (
    SELECT e.id, e.available_at, octet_length(e.payload) AS size FROM {event} e
    WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = t.topic AND `+postgresDue+` AND `+postgresFree+`
    ORDER BY e.available_at, e.id
    LIMIT (SELECT ($3::bigint + greatest(count(*), 1) - 1) / greatest(count(*), 1) FROM topics)
    FOR UPDATE SKIP LOCKED) c
), take AS MATERIALIZED (
  SELECT id, n FROM (SELECT id, row_number() OVER w AS n, sum(size) OVER w AS total FROM cand
    WINDOW w AS (ORDER BY turn, available_at, id)) c
  WHERE n <= $3::bigint AND (n = 1 AND $8::boolean OR total <= $5::bigint)
), taken AS (`+postgresTake+`)
SELECT taken.*, NULL::bytea, (SELECT count(*) FROM topics) FROM taken JOIN take ON take.id = taken.id ORDER BY take.n`,
	1, 2, 3, 4, 5, 6, 7, 8, 14)

// postgresShort is the shortest run of a claim if there are more keys than the limit allows whole
// runs. A claim then takes rows of some 64 keys, about as many as are published at once. One row of
// each of 500 keys would need more look-ups.
const postgresShort = `greatest(1, least($8::bigint, $3::bigint / 64))`

// postgresRun turns the list "heads" of claimable keys (with the first dead number of each) into
// "take": the heads and the rows that follow them. A row that another transaction holds ends the
// run of its key. $8 is the longest run.
const postgresRun = `, cand AS MATERIALIZED (
  SELECT r.id, h.lane, r.key_seq, r.size, bool_and(r.ok) OVER (PARTITION BY h.lane ORDER BY r.key_seq, r.id) AS ok
  FROM (SELECT lane, dead FROM heads ORDER BY lane LIMIT $3::bigint) h CROSS JOIN LATERAL (
    SELECT e.id, e.key_seq, octet_length(e.payload) AS size,
      (` + postgresDue + ` AND ` + postgresFree + ` AND (h.dead IS NULL OR e.key_seq < h.dead)) AS ok
    FROM {event} e WHERE e.lane = h.lane AND e.status IN (0,2) AND e.lane IS NOT NULL
    ORDER BY e.key_seq
    LIMIT (SELECT greatest(` + postgresShort + `, least($8::bigint, $3::bigint / greatest(count(*), 1))) FROM heads)) r
), sized AS MATERIALIZED (
  SELECT id, lane, key_seq, row_number() OVER w AS n, sum(size) OVER w AS total FROM cand WHERE ok WINDOW w AS
    (ORDER BY lane, key_seq, id)
), picked AS MATERIALIZED (
  SELECT id, lane, key_seq FROM sized WHERE n <= $3::bigint AND (n = 1 OR total <= $5::bigint)
), held AS MATERIALIZED (
  SELECT e.id FROM {event} e WHERE e.id = ANY (ARRAY(SELECT id FROM picked)) AND e.status IN (0,2) AND ` + postgresDue +
	` AND ` + postgresFree + ` ORDER BY e.id FOR UPDATE SKIP LOCKED
), take AS MATERIALIZED (
  SELECT id FROM (SELECT p.id, bool_and(h.id IS NOT NULL) OVER (PARTITION BY p.lane ORDER BY p.key_seq, p.id) AS ok
    FROM picked p LEFT JOIN held h ON h.id = p.id) r WHERE ok
)`

// postgresLanes jumps from the head of one lane to that of the next. $9 is the lane to start after,
// $10 the number of lanes. $11 and $12 are the prefixes of the wanted and the stopped topics; a
// stopped topic is jumped over as a whole.
var postgresLanes = postgresScan("0::bigint", "")

// postgresClaimLanes does the same, and stops when the due and free heads have $3 rows behind them,
// counting at most a short run for each lane.
var postgresClaimLanes = postgresScan(`CASE WHEN `+postgresDue+` AND `+postgresFree+` THEN (SELECT count(*) FROM (
    SELECT FROM {event} r WHERE r.lane = e.lane AND r.status IN (0,2) AND r.lane IS NOT NULL LIMIT `+postgresShort+
	`) r) ELSE 0 END`,
	"AND l.total < $3::bigint")

func postgresScan(found, more string) string {
	return `lanes AS (
  (SELECT e.lane, e.key_seq, e.id, e.topic, e.available_at, e.lease_until, 1 AS n, ` + found + ` AS total FROM {event} e
   WHERE e.status IN (0,2) AND e.lane IS NOT NULL AND e.lane > $9::bytea ORDER BY e.lane, e.key_seq LIMIT 1)
  UNION ALL
  SELECT h.lane, h.key_seq, h.id, h.topic, h.available_at, h.lease_until, l.n + 1, l.total + h.found FROM lanes
    l CROSS JOIN LATERAL (
    SELECT e.lane, e.key_seq, e.id, e.topic, e.available_at, e.lease_until, ` + found + ` AS found FROM {event} e
    WHERE e.status IN (0,2) AND e.lane IS NOT NULL AND e.lane > CASE
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

// postgresHeads are the heads that may be claimed: $6 and $7 the topics, $13 whether dead rows are
// passed over.
const postgresHeads = `SELECT e.lane, d.dead FROM lanes e
  LEFT JOIN LATERAL (SELECT x.key_seq AS dead FROM {event} x
    WHERE NOT $13::boolean AND x.lane = e.lane AND x.status = 3 AND x.lane IS NOT NULL
    ORDER BY x.lane, x.key_seq LIMIT 1) d ON true
  WHERE ` + postgresDue + ` AND ` + postgresFree + `
    AND ($6::text[] IS NULL OR e.topic = ANY ($6::text[])) AND e.topic <> ALL ($7::text[])` + postgresServed +
	` AND (d.dead IS NULL OR d.dead > e.key_seq)`

var postgresClaimHeads = `WITH RECURSIVE ` + postgresClaimLanes + `, heads AS MATERIALIZED (` + postgresHeads + `)` +
	postgresRun + `, taken AS (` + postgresTake + `)
SELECT taken.*, NULL::bytea, 0::bigint FROM taken UNION ALL SELECT ` + postgresNoRow + `, CASE
    WHEN (SELECT count(*) FROM heads) > $3::bigint OR (SELECT count(*) FROM sized) > (SELECT count(*) FROM picked)
      THEN (SELECT lane FROM picked ORDER BY lane DESC LIMIT 1)
    WHEN (SELECT count(*) FROM lanes) >= $10::bigint OR (SELECT max(total) FROM lanes) >= $3::bigint
      THEN (SELECT lane FROM lanes ORDER BY lane DESC LIMIT 1)
  END, 0::bigint`

// postgresClaimKey is the same for the one lane $9.
var postgresClaimKey = renumber(`WITH lanes AS (
  SELECT e.lane, e.key_seq, e.id, e.topic, e.available_at, e.lease_until FROM {event} e WHERE e.lane =
    $9::bytea AND e.status IN (0,2) AND e.lane IS NOT NULL
  ORDER BY e.key_seq LIMIT 1
), heads AS MATERIALIZED (`+postgresHeads+`)`+postgresRun+`
`+postgresTake+`, NULL::bytea, 0::bigint`, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14)

// postgresNextDue returns the earliest time, in microseconds from now, at which an open row may be
// claimed.
var postgresNextDue = renumber(postgresTopics+`, unordered AS (
  SELECT min(greatest(c.available_at, c.until)) AS at FROM topics t CROSS JOIN LATERAL (
    SELECT e.available_at, CASE WHEN `+postgresFree+` THEN NULL ELSE e.lease_until END AS until
    FROM {event} e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = t.topic
    ORDER BY e.available_at, e.id LIMIT `+strconv.Itoa(nextDueRowsPerTopic)+`) c
), `+postgresLanes+`, ordered AS (
  SELECT min(greatest(e.available_at, CASE WHEN `+postgresFree+` THEN NULL ELSE e.lease_until END)) AS at
  FROM lanes e
  LEFT JOIN LATERAL (SELECT x.key_seq AS dead FROM {event} x
    WHERE NOT $13::boolean AND x.lane = e.lane AND x.status = 3 AND x.lane IS NOT NULL
    ORDER BY x.lane, x.key_seq LIMIT 1) d ON true
  WHERE ($6::text[] IS NULL OR e.topic = ANY ($6::text[])) AND e.topic <> ALL ($7::text[])`+postgresServed+`
    AND (d.dead IS NULL OR d.dead > e.key_seq)
) SELECT (extract(epoch from least(u.at, o.at) - clock_timestamp())*1000000)::bigint FROM unordered u, ordered o`,
	4, 6, 7, 9, 10, 11, 12, 13, 14)

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

func (p *postgres) claimTopics(ctx context.Context, req core.ClaimRequest, f filter, oversize bool,
) (rows []core.Claimed, topics int, err error) {
	rows, _, topics, err = p.claim(ctx, "claim unordered", p.sql.claimUnordered, req.Node, micros(req.Lease),
		int64(req.Limit), micros(req.MaxLease),
		req.MaxBytes, textArrayOrNil(f.only), textArray(f.except), oversize, textArray(f.served))
	return rows, topics, err
}

func (p *postgres) claimHeads(ctx context.Context, req core.ClaimRequest, f filter,
	after core.KeyID,
) ([]core.Claimed, core.KeyID, error) {
	rows, next, _, err := p.claim(ctx, "claim heads", p.sql.claimHeads, req.Node, micros(req.Lease), int64(req.Limit),
		micros(req.MaxLease),
		req.MaxBytes, textArrayOrNil(f.only), textArray(f.except), int64(req.Run), after[:], int64(req.Keys),
		f.onlyPrefixes(), textArray(prefixes(f.except)), req.SkipDead, textArray(f.served))
	return rows, next, err
}

func (p *postgres) claimLane(ctx context.Context, req core.ClaimRequest, f filter,
	lane core.KeyID,
) ([]core.Claimed, error) {
	rows, _, _, err := p.claim(ctx, "claim key", p.sql.claimLane, req.Node, micros(req.Lease), int64(req.Limit),
		micros(req.MaxLease),
		req.MaxBytes, textArrayOrNil(f.only), textArray(f.except), int64(req.Run), lane[:], req.SkipDead,
		textArray(f.served))
	return rows, err
}

func (f filter) onlyPrefixes() any {
	if f.only == nil {
		return nil
	}
	return textArray(prefixes(f.only))
}

// claim runs a claim, which is one statement.
func (p *postgres) claim(ctx context.Context, what, text string,
	args ...any,
) (rows []core.Claimed, next core.KeyID, topics int, err error) {
	err = p.scan(ctx, what, func(q sqlkit.Querier) error {
		rows, next, topics = nil, core.KeyID{}, 0
		return sqlkit.EachRow(ctx, q, text, args, func(res core.Rows) error {
			var s claimScan
			var last id16
			var count int
			if err := s.scan(res, &last, &count); err != nil {
				return err
			}
			topics = max(topics, count)
			if s.id == (id16{}) {
				next = core.KeyID(last)
				return nil
			}
			rows = append(rows, s.claimed())
			return nil
		})
	})
	return rows, next, topics, err
}

func (p *postgres) nextDue(ctx context.Context, req core.ClaimRequest, f filter) (d time.Duration, ok bool, err error) {
	var zero core.KeyID
	args := []any{
		micros(req.MaxLease), textArrayOrNil(f.only), textArray(f.except), zero[:],
		int64(max(req.Keys, 1)), f.onlyPrefixes(), textArray(prefixes(f.except)), req.SkipDead, textArray(f.served),
	}
	err = p.scan(ctx, "next due", func(q sqlkit.Querier) error {
		var us *int64
		_, err := sqlkit.FirstRow(ctx, q, p.sql.nextDue, args, &us)
		if d, ok = 0, us != nil; ok {
			d = time.Duration(max(0, *us)) * time.Microsecond
		}
		return err
	})
	return d, ok, err
}
