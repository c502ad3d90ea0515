package sqloutbox

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

const (
	// fence is the condition of every guess. A claim that was released or marked has no lease any
	// more, so repeating a guess whose answer was lost changes nothing.
	fence = "e.claim_no = v.claim_no AND e.claimed_by = $1::text AND e.status IN (0,2) AND e.lease_until IS NOT NULL"

	// soon bounds how long a mark waits for the lock of another transaction. It is evaluated before
	// the first row and holds until the end of the statement, so it costs no round trip.
	soon = "(SELECT set_config('lock_timeout', '100ms', true)) IS NOT NULL"
)

// replanned is a condition that always holds for a list of ids, and makes PostgreSQL plan the
// statement for each execution, which takes it 0.03 to 0.2 ms. Drivers prepare statements, and
// PostgreSQL keeps the plan of a prepared one if it expects no other to be better by much. A plan
// that was made while the table was small reads the whole table, for one row too, and stays until
// autovacuum has analyzed the table. The condition counts one row. Without the list, PostgreSQL
// would expect a million rows, so that it never keeps a plan.
func replanned(ids string) string {
	one := "generate_series(1, least(cardinality(" + ids + "::uuid[]), 1))"
	return "(SELECT count(*) FROM " + one + " a, " + one + " b) > 0"
}

var (
	postgresDone = `UPDATE {event} e SET status = 1, done_at = clock_timestamp(), lease_until = NULL,
	  last_error_code = NULL, last_error = NULL
WHERE e.id = ANY ($1::uuid[]) AND e.status IN (0,2,3) AND ` + soon + ` AND ` + replanned("$1")
	postgresDoneReceipts = `UPDATE {event} e SET status = 1, done_at = clock_timestamp(), lease_until = NULL,
	  last_error_code = NULL, last_error = NULL, receipt = NULLIF(v.receipt, '')
FROM unnest($1::uuid[], $2::text[]) v(id, receipt) WHERE e.id = v.id AND e.status IN (0,2,3) AND ` + soon +
		` AND ` + replanned("$1")
	postgresDoneDelete = `DELETE FROM {event} e WHERE e.id = ANY ($1::uuid[]) AND e.status IN (0,2,3) AND ` + soon +
		` AND ` + replanned("$1")
	postgresFailed = `UPDATE {event} e SET failures = CASE WHEN v.kind = 3 THEN e.failures ELSE
    right(COALESCE(e.failures, '') || {clock}::text || ' ' || (e.attempts + 1)::text || v.attempt, ` +
		keptAttempts + `) END,
  status = CASE v.kind WHEN 1 THEN 2 WHEN 2 THEN 3 ELSE e.status END,
  attempts = e.attempts + CASE WHEN v.kind = 3 THEN 0 ELSE 1 END,
  available_at = CASE WHEN v.kind = 2 THEN e.available_at ELSE clock_timestamp() + v.delay * interval
    '1 microsecond' END,
  lane = CASE WHEN v.kind = 2 AND v.skip THEN NULL ELSE e.lane END,
  lease_until = NULL, last_error_code = NULLIF(v.code, ''), last_error = NULLIF(v.message, ''),
  error_group = NULLIF(v.grp, '')
FROM unnest($2::uuid[], $3::bigint[], $4::integer[], $5::bigint[], $6::text[], $7::text[],
  $8::boolean[], $9::text[], $10::text[]) v(id, claim_no, kind, delay, code, message, skip, grp, attempt)
WHERE e.id = v.id AND ` + fence + ` AND ` + soon + ` AND ` + replanned("$2") + ` RETURNING e.id`
	postgresRenew = `UPDATE {event} e SET lease_until = clock_timestamp() + $4::bigint * interval '1 microsecond'
FROM unnest($2::uuid[], $3::bigint[]) v(id, claim_no) WHERE e.id = v.id AND ` + fence + ` AND ` + soon +
		` AND ` + replanned("$2") + ` RETURNING e.id`
	postgresBeginSuspect = `UPDATE {event} e SET
  lost_claims = CASE WHEN $4::bigint = 0 THEN -abs(e.lost_claims) ELSE abs(e.lost_claims) END,
  available_at = CASE WHEN $4::bigint = 0 THEN e.available_at
    ELSE clock_timestamp() + $4::bigint * interval '1 microsecond' END
FROM unnest($2::uuid[], $3::bigint[]) v(id, claim_no) WHERE e.id = v.id AND ` + fence + ` AND ` + replanned("$2") +
		` RETURNING e.id`
	postgresRelease = `UPDATE {event} e SET lease_until = NULL
FROM unnest($2::uuid[], $3::bigint[]) v(id, claim_no) WHERE e.id = v.id AND ` + fence + ` AND ` + soon +
		` AND ` + replanned("$2") + ` RETURNING e.id`

	// postgresUnlocked locks the rows that no other transaction has locked.
	postgresUnlocked = `SELECT e.id FROM {event} e WHERE e.id = ANY ($1::uuid[]) AND ` + replanned("$1") +
		` ORDER BY e.id FOR UPDATE SKIP LOCKED`
	// postgresMarkable and postgresHeld are the rows that a fact or a guess would change.
	postgresMarkable = `SELECT e.id FROM {event} e WHERE e.id = ANY ($1::uuid[]) AND e.status IN (0,2,3) AND ` +
		replanned("$1") + ` ORDER BY e.id`
	postgresHeld = `SELECT e.id FROM {event} e, unnest($2::uuid[], $3::bigint[]) v(id, claim_no) WHERE e.id = ` +
		`v.id AND ` + fence + ` AND ` + replanned("$2") + ` ORDER BY e.id`
)

// postgresMarks is the part of postgres that marks rows.
type postgresMarks struct {
	pool
	sql postgresMarkStatements
}

type postgresMarkStatements struct {
	done, doneReceipts, doneDelete, failed, beginSuspect, renew, release string

	unlocked, markable, held string
}

func newPostgresMarkStatements(n names) postgresMarkStatements {
	mark := func(t string) string { return n.expand(bounded(n, t)) }
	return postgresMarkStatements{
		done:         mark(postgresDone),
		doneReceipts: mark(postgresDoneReceipts),
		doneDelete:   mark(postgresDoneDelete),
		failed:       mark(postgresFailed),
		beginSuspect: mark(postgresBeginSuspect),
		renew:        mark(postgresRenew),
		release:      mark(postgresRelease),

		unlocked: mark(postgresUnlocked),
		markable: mark(postgresMarkable),
		held:     mark(postgresHeld),
	}
}

// bounded bounds the ids of a mark, which come in ascending order, so that PostgreSQL can leave out
// the partitions that have none of them. A mark that joins its ids needs no bounds: PostgreSQL
// looks for each id in its own partition.
func bounded(n names, text string) string {
	const list = "e.id = ANY ($1::uuid[])"
	if !n.partitioned {
		return text
	}
	return strings.ReplaceAll(text, list,
		list+" AND e.id >= ($1::uuid[])[1] AND e.id <= ($1::uuid[])[cardinality($1::uuid[])]")
}

func (p postgresMarks) markDone(ctx context.Context, done []core.Done, deleteRows bool) (changed int, err error) {
	what := "mark done"
	ids := func(d *core.Done) string { return d.ID.String() }
	text, receipts := p.sql.done, false
	switch {
	case deleteRows:
		text = p.sql.doneDelete
	case slices.ContainsFunc(done, func(d core.Done) bool { return d.Receipt != "" }):
		text, receipts = p.sql.doneReceipts, true
	}
	mark := func(q sqlkit.Querier, done []core.Done, d diagnostic) (err error) {
		args := []any{column(done, ids)}
		if receipts {
			args = append(args, column(done, func(f *core.Done) string { return d.text(f.Receipt, maxReceipt) }))
		}
		n, err := q.Exec(ctx, text, args...)
		changed = int(n)
		return err
	}
	var held []core.RowID
	err = diagnosed(func(d diagnostic) error {
		err := p.single(ctx, what, func(q sqlkit.Querier) error { return notWaiting(mark(q, done, d)) })
		if !errors.Is(err, errRowsLocked) {
			return err
		}
		return p.inTx(ctx, what, func(q sqlkit.Querier) error {
			changed, held = 0, nil
			free, rest, err := unlocked(ctx, p, q, done, func(d *core.Done) core.RowID { return d.ID })
			if err != nil {
				return err
			}
			if held, err = queryIDs(ctx, q, p.sql.markable, column(rest, ids)); err != nil || len(free) == 0 {
				return err
			}
			return mark(q, free, d)
		})
	})
	return changed, orLocked(err, held)
}

// errRowsLocked: a statement would have waited for other transactions. The same statement must not
// be repeated for it.
var errRowsLocked = errors.New("rows are locked")

func notWaiting(err error) error {
	if sqlerr.State(err) == "55P03" {
		return errRowsLocked
	}
	return err
}

// unlocked locks the rows that are free at once. It returns them, and the others.
func unlocked[T any](ctx context.Context, p postgresMarks, q sqlkit.Querier, items []T,
	id func(*T) core.RowID,
) (free, rest []T, err error) {
	ids, err := queryIDs(ctx, q, p.sql.unlocked, column(items, func(t *T) string { return id(t).String() }))
	if err != nil {
		return nil, nil, err
	}
	for _, t := range items {
		if slices.Contains(ids, id(&t)) {
			free = append(free, t)
		} else {
			rest = append(rest, t)
		}
	}
	return free, rest, nil
}

func (p postgresMarks) markFailed(ctx context.Context, node string,
	failures []core.Failure,
) (changed map[core.RowID]bool, err error) {
	err = diagnosed(func(d diagnostic) error {
		changed, err = guessed(ctx, p, "mark failed", node, failures,
			func(f *core.Failure) core.ClaimRef { return f.ClaimRef },
			func(q sqlkit.Querier, failures []core.Failure) ([]core.RowID, error) {
				return queryIDs(ctx, q, p.sql.failed, node,
					column(failures, func(f *core.Failure) string { return f.ID.String() }),
					column(failures, func(f *core.Failure) string { return strconv.FormatInt(f.ClaimNo, 10) }),
					column(failures, func(f *core.Failure) string { return strconv.Itoa(int(f.Kind)) }),
					column(failures, func(f *core.Failure) string { return strconv.FormatInt(micros(f.Delay), 10) }),
					column(failures, func(f *core.Failure) string { return d.code(f.Code) }),
					column(failures, func(f *core.Failure) string { return d.text(f.Message, maxMessage) }),
					column(failures, func(f *core.Failure) string { return strconv.FormatBool(f.SkipDead) }),
					column(failures, func(f *core.Failure) string { return d.group(f.Group) }),
					column(failures, func(f *core.Failure) string { return d.attempt(f, node) }),
				)
			})
		return err
	})
	return changed, err
}

func (p postgresMarks) beginSuspect(ctx context.Context, node string, claims []core.ClaimRef,
	wait time.Duration,
) (map[core.RowID]bool, error) {
	return p.fenced(ctx, "begin suspect", p.sql.beginSuspect, node, claims, micros(wait))
}

func (p postgresMarks) renew(ctx context.Context, node string, claims []core.ClaimRef,
	lease time.Duration,
) (map[core.RowID]bool, error) {
	return p.fenced(ctx, "renew", p.sql.renew, node, claims, micros(lease))
}

func (p postgresMarks) release(ctx context.Context, node string, claims []core.ClaimRef) (map[core.RowID]bool, error) {
	return p.fenced(ctx, "release", p.sql.release, node, claims)
}

// fenced runs a statement on the rows whose claims the node holds.
func (p postgresMarks) fenced(ctx context.Context, what, text, node string, claims []core.ClaimRef,
	more ...any,
) (map[core.RowID]bool, error) {
	return guessed(ctx, p, what, node, claims, func(c *core.ClaimRef) core.ClaimRef { return *c },
		func(q sqlkit.Querier, claims []core.ClaimRef) ([]core.RowID, error) {
			return queryIDs(ctx, q, text, append(refArgs(node, claims), more...)...)
		})
}

// guessed runs a fenced statement that returns the ids of the changed rows. It runs on all rows. If
// other transactions hold some of them for long, it runs on the others.
func guessed[T any](ctx context.Context, p postgresMarks, what, node string, items []T, ref func(*T) core.ClaimRef,
	mark func(q sqlkit.Querier, items []T) ([]core.RowID, error),
) (changed map[core.RowID]bool, err error) {
	var ids, held []core.RowID
	err = p.single(ctx, what, func(q sqlkit.Querier) (err error) {
		ids, err = mark(q, items)
		return notWaiting(err)
	})
	if errors.Is(err, errRowsLocked) {
		err = p.inTx(ctx, what, func(q sqlkit.Querier) error {
			ids, held = nil, nil
			free, rest, err := unlocked(ctx, p, q, items, func(t *T) core.RowID { return ref(t).ID })
			if err != nil {
				return err
			}
			refs := make([]core.ClaimRef, len(rest))
			for i := range rest {
				refs[i] = ref(&rest[i])
			}
			if held, err = queryIDs(ctx, q, p.sql.held, refArgs(node, refs)...); err != nil || len(free) == 0 {
				return err
			}
			ids, err = mark(q, free)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	changed = make(map[core.RowID]bool, len(ids))
	for _, id := range ids {
		changed[id] = true
	}
	return changed, orLocked(nil, held)
}

func refArgs(node string, claims []core.ClaimRef) []any {
	return []any{
		node,
		column(claims, func(c *core.ClaimRef) string { return c.ID.String() }),
		column(claims, func(c *core.ClaimRef) string { return strconv.FormatInt(c.ClaimNo, 10) }),
	}
}
