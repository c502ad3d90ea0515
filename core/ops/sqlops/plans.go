package sqlops

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// planStatements are the statements about plans.
type planStatements struct {
	insert, forget, read, list, change string
	times                              string
	outcomes, copies                   string
}

const (
	planColumns = "state, version, body, {us:created_at}, {us:updated_at}, {us:worker_until}, {clock}"
	planList    = "SELECT id, " + planColumns + " FROM {plan} ORDER BY created_at DESC, id LIMIT "
	planTimes   = "SELECT {us:updated_at}, {us:worker_until}, {clock} FROM {plan} WHERE id = "
	planEnded   = "state IN ('done', 'cancelled')"

	// outcomesOfRows reads rows that have their place, and outcomesOfCopies rows that took the
	// place of another one, by the audit. The row that was replaced does not count, because it may
	// be deleted before the row in its place has ended. Both ask the audit for the reason of the
	// plan, because others redrive the same rows.
	outcomesOfRows = `SELECT e.id, e.status, e.attempts FROM {event} e WHERE NOT EXISTS (SELECT 1 FROM {audit} a
  WHERE a.row_id = e.id AND a.action = 'redrive' AND a.new_id IS NOT NULL) AND e.id {planned}
  AND ({reason} = '' OR EXISTS (SELECT 1 FROM {audit} p WHERE p.row_id = e.id AND p.action = 'redrive' AND
    p.reason = {reason}))`
	outcomesOfCopies = `SELECT a.row_id, n.status, n.attempts FROM {audit} a JOIN {event} n ON n.id = a.new_id
WHERE a.action = 'redrive' AND a.row_id {planned} AND ({reason} = '' OR a.reason = {reason})`
)

func newPlanStatements(t outboxsql.Tables) planStatements {
	others := planStatements{
		insert: "INSERT INTO {plan} (id, state, version, body, ids, created_at, updated_at) " +
			"VALUES (?, ?, 1, ?, ?, {now}, {now})",
		forget: "DELETE FROM {plan} WHERE " + planEnded + " AND updated_at < {ago}",
		read:   "SELECT id, " + planColumns + ", ids FROM {plan} WHERE id = ?",
		list:   planList + "?",
		change: "UPDATE {plan} SET state = ?, body = ?, version = version + 1, updated_at = {now}, " +
			"worker_until = {after} WHERE id = ? AND version = ?",
		times:    planTimes + "?",
		outcomes: outcomesOf(outcomesOfRows, "IN ({ids})", "?"),
		copies:   outcomesOf(outcomesOfCopies, "IN ({ids})", "?"),
	}
	onPostgres := planStatements{
		insert: "INSERT INTO {plan} (id, state, version, body, ids, created_at, updated_at) " +
			"VALUES ($1::text, $2::text, 1, $3::text, $4::bytea, {now}, {now})",
		forget: "DELETE FROM {plan} WHERE " + planEnded +
			" AND updated_at < {now} - $1::bigint * interval '1 microsecond'",
		read: "SELECT id, " + planColumns + ", ids FROM {plan} WHERE id = $1::text",
		list: planList + "$1::bigint",
		change: "UPDATE {plan} SET state = $1::text, body = $2::text, version = version + 1, updated_at = {now}, " +
			"worker_until = {now} + $3::bigint * interval '1 microsecond' WHERE id = $4::text AND version = $5::bigint",
		times:    planTimes + "$1::text",
		outcomes: outcomesOf(outcomesOfRows, "= ANY ($1::uuid[])", "$2::text"),
		copies:   outcomesOf(outcomesOfCopies, "= ANY ($1::uuid[])", "$2::text"),
	}
	s := outboxsql.ByDialect[planStatements]{Postgres: onPostgres, MySQL: others, SQLite: others}.Of(t.Dialect)
	for _, text := range []*string{
		&s.insert, &s.forget, &s.read, &s.list, &s.change, &s.times, &s.outcomes, &s.copies,
	} {
		*text = t.Expand(*text)
	}
	return s
}

func outcomesOf(text, ids, reason string) string {
	return strings.NewReplacer("{planned}", ids, "{reason}", reason).Replace(text)
}

// planBody is the part of a plan that no statement looks into.
func planBody(p ops.StoredPlan) (string, error) {
	p.IDs, p.Seen = nil, nil
	text, err := json.Marshal(p)
	return string(text), err
}

// plannedSize is the length of a row of a plan: its id, and how it was seen.
const plannedSize = 16 + 4

func packRows(p ops.StoredPlan) []byte {
	packed := make([]byte, 0, plannedSize*len(p.IDs))
	for i, id := range p.IDs {
		packed = binary.BigEndian.AppendUint32(append(packed, id[:]...), uint32(p.Seen[i]))
	}
	return packed
}

func unpackRows(p *ops.StoredPlan, packed []byte) error {
	if len(packed)%plannedSize != 0 {
		return fmt.Errorf("the rows of plan %s have %d bytes: an older program stored them; make a new plan", p.ID,
			len(packed))
	}
	for row := range slices.Chunk(packed, plannedSize) {
		p.IDs = append(p.IDs, core.RowID(row[:16]))
		p.Seen = append(p.Seen, core.Sight(binary.BigEndian.Uint32(row[16:])))
	}
	return nil
}

// InsertPlan implements ops.Store.
func (st *Store) InsertPlan(ctx context.Context, p ops.StoredPlan, audit string, keep time.Duration) error {
	body, err := planBody(p)
	if err != nil {
		return fmt.Errorf("sqlops: store plan: %w", err)
	}
	req := core.AdminRequest{Actor: p.Actor, Reason: planReason(p, p.Reason)}
	return st.tables.InTx(ctx, "store plan", func(q sqlkit.Querier) error {
		if _, err := q.Exec(ctx, st.plans.forget, keep.Microseconds()); err != nil {
			return err
		}
		if _, err := q.Exec(ctx, st.plans.insert, p.ID, string(p.State), body, packRows(p)); err != nil {
			return err
		}
		return st.tables.AuditWhole(ctx, q, audit, "", req)
	})
}

// planReason is the reason of an audit row about a plan. It describes the selection of the plan.
func planReason(p ops.StoredPlan, reason string) string {
	filter, _ := json.Marshal(p.Filter)
	beyond := ""
	if p.Beyond != "" {
		beyond = ", beyond: " + p.Beyond
	}
	return fmt.Sprintf("%s (plan %s: %s of %d events%s, filter %s)", reason, p.ID, p.Action, p.Events, beyond, filter)
}

// ReadPlan implements ops.Store.
func (st *Store) ReadPlan(ctx context.Context, id string) (p ops.StoredPlan, found bool, err error) {
	err = st.tables.Single(ctx, "read plan", func(q sqlkit.Querier) error {
		found = false
		return sqlkit.EachRow(ctx, q, st.plans.read, []any{id}, func(res core.Rows) (err error) {
			var packed []byte
			found = true
			if p, err = scanPlan(res, &packed); err != nil {
				return err
			}
			return unpackRows(&p, packed)
		})
	})
	return p, found, err
}

// ReadPlans implements ops.Store.
func (st *Store) ReadPlans(ctx context.Context, limit int) ([]ops.StoredPlan, error) {
	scan := func(res core.Rows) (ops.StoredPlan, error) { return scanPlan(res) }
	return sqlkit.AskRows(ctx, st.tables.Single, "read plans", st.plans.list, []any{int64(limit)}, scan)
}

func scanPlan(res core.Rows, more ...any) (p ops.StoredPlan, err error) {
	var id, state, body string
	var version, created, updated, now int64
	var until *int64
	dest := append([]any{&id, &state, &version, &body, &created, &updated, &until, &now}, more...)
	if err := res.Scan(dest...); err != nil {
		return p, err
	}
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		return p, fmt.Errorf("plan %s: %w", id, err)
	}
	p.ID, p.State, p.Version, p.CreatedAt = id, ops.PlanState(state), version, time.UnixMicro(created).UTC()
	setTimes(&p, updated, until, now)
	return p, nil
}

// setTimes sets the times of a plan that change with it, in microseconds.
func setTimes(p *ops.StoredPlan, updated int64, until *int64, now int64) {
	p.UpdatedAt, p.ReadAt, p.WorkerUntil = time.UnixMicro(updated).UTC(), time.UnixMicro(now).UTC(), time.Time{}
	if until != nil {
		p.WorkerUntil = time.UnixMicro(*until).UTC()
	}
}

// errStale ends the transaction of a change of a plan that has another version.
var errStale = errors.New("the plan has another version")

// ChangePlan implements ops.Store. The plan is changed first: of two processes that run it, the
// second one waits there and then finds another version.
func (st *Store) ChangePlan(ctx context.Context, c ops.PlanChange) (p ops.StoredPlan, ok bool, err error) {
	err = st.tables.InTx(ctx, "change plan", func(q sqlkit.Querier) error {
		p = c.Plan
		if err := st.writePlan(ctx, q, p, p.Version, c.Lease); err != nil {
			return err
		}
		p.Version++
		if c.Audit != "" {
			req := c.Request
			req.Reason = planReason(p, req.Reason)
			if err := st.tables.AuditWhole(ctx, q, c.Audit, "", req); err != nil {
				return err
			}
		}
		if len(c.IDs) > 0 {
			n, err := st.changeRows(ctx, q, p.Action, c)
			if err != nil {
				return err
			}
			p.Changed += n
			if err := st.writePlan(ctx, q, p, p.Version, c.Lease); err != nil {
				return err
			}
			p.Version++
		}
		return st.readTimes(ctx, q, &p)
	})
	if errors.Is(err, errStale) {
		return c.Plan, false, nil
	}
	return p, err == nil, err
}

// readTimes reads the times that writePlan has written, by the clock of the database.
func (st *Store) readTimes(ctx context.Context, q sqlkit.Querier, p *ops.StoredPlan) error {
	return sqlkit.EachRow(ctx, q, st.plans.times, []any{p.ID}, func(res core.Rows) error {
		var updated, now int64
		var until *int64
		if err := res.Scan(&updated, &until, &now); err != nil {
			return err
		}
		setTimes(p, updated, until, now)
		return nil
	})
}

func (st *Store) writePlan(ctx context.Context, q sqlkit.Querier, p ops.StoredPlan, version int64,
	lease time.Duration,
) error {
	body, err := planBody(p)
	if err != nil {
		return err
	}
	args := []any{string(p.State), body, lease.Microseconds(), p.ID, version}
	n, err := q.Exec(ctx, st.plans.change, args...)
	if err == nil && n == 0 {
		err = errStale
	}
	return err
}

// changeRows redrives, discards or replays rows of a plan.
func (st *Store) changeRows(ctx context.Context, q sqlkit.Querier, action ops.Action, c ops.PlanChange,
) (int, error) {
	ids := outboxsql.SortedIDs(c.IDs)
	switch action {
	case ops.ActionRedrive:
	case ops.ActionDiscard:
		return st.tables.Discard(ctx, q, ids, c.Request)
	case ops.ActionReplay:
		return st.replay(ctx, q, ids, c)
	}
	return st.tables.Redrive(ctx, q, ids, c.Request)
}

// ReadStatuses implements ops.Store.
func (st *Store) ReadStatuses(ctx context.Context, ids []core.RowID, reason string,
) (all []ops.RowStatus, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	at := map[core.RowID]int{} // a row that is replaced between the two queries is in both
	err = st.tables.Read(ctx, "read outcomes", func(q sqlkit.Querier) error {
		all = nil
		clear(at)
		for _, text := range []string{st.plans.outcomes, st.plans.copies} {
			reasons := strings.Count(text, "?")
			text, args := st.params.Listed(text, ids)
			for range max(1, reasons) {
				args = append(args, reason)
			}
			err := sqlkit.EachRow(ctx, q, text, args, func(res core.Rows) error {
				var id outboxsql.ID
				var status, attempts int64
				err := res.Scan(&id, &status, &attempts)
				o := ops.RowStatus{ID: core.RowID(id), Status: ops.Status(status), Attempts: int(attempts)}
				if n, found := at[o.ID]; found {
					all[n] = o
					return err
				}
				at[o.ID] = len(all)
				all = append(all, o)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return all, err
}
