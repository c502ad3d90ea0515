package sqloutbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

var _ ops.PlanStore = (*Repository)(nil)

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

	// outcomesOfRows reads rows that have their place, and outcomesOfCopies those that took the
	// place of another one, as the audit has it. The row that was replaced does not count, because
	// it may be deleted before the row in its place has ended.
	outcomesOfRows = `SELECT e.id, e.status, e.attempts FROM {event} e WHERE NOT EXISTS (SELECT 1 FROM {audit} a
  WHERE a.row_id = e.id AND a.action = 'redrive' AND a.new_id IS NOT NULL) AND e.id `
	outcomesOfCopies = `SELECT a.row_id, n.status, n.attempts FROM {audit} a JOIN {event} n ON n.id = a.new_id
WHERE a.action = 'redrive' AND a.row_id `
)

func newPlanStatements(n names) planStatements {
	others := planStatements{
		insert: "INSERT INTO {plan} (id, state, version, body, ids, created_at, updated_at) " +
			"VALUES (?, ?, 1, ?, ?, {now}, {now})",
		forget: "DELETE FROM {plan} WHERE " + planEnded + " AND updated_at < {ago}",
		read:   "SELECT id, " + planColumns + ", ids FROM {plan} WHERE id = ?",
		list:   planList + "?",
		change: "UPDATE {plan} SET state = ?, body = ?, version = version + 1, updated_at = {now}, " +
			"worker_until = {after} WHERE id = ? AND version = ?",
		times:    planTimes + "?",
		outcomes: outcomesOfRows + "IN ({ids})", copies: outcomesOfCopies + "IN ({ids})",
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
		outcomes: outcomesOfRows + "= ANY ($1::uuid[])", copies: outcomesOfCopies + "= ANY ($1::uuid[])",
	}
	s := byDialect[planStatements]{postgres: onPostgres, mysql: others, sqlite: others}.of(n)
	for _, text := range []*string{
		&s.insert, &s.forget, &s.read, &s.list, &s.change, &s.times, &s.outcomes, &s.copies,
	} {
		*text = n.expand(*text)
	}
	return s
}

// planBody is the part of a plan that no statement looks into.
func planBody(p ops.StoredPlan) (string, error) {
	p.IDs = nil
	text, err := json.Marshal(p)
	return string(text), err
}

func packIDs(ids []core.RowID) []byte {
	packed := make([]byte, 0, 16*len(ids))
	for _, id := range ids {
		packed = append(packed, id[:]...)
	}
	return packed
}

func unpackIDs(packed []byte) (ids []core.RowID, err error) {
	if len(packed)%16 != 0 {
		return nil, fmt.Errorf("the ids of the plan have %d bytes", len(packed))
	}
	for ; len(packed) > 0; packed = packed[16:] {
		ids = append(ids, core.RowID(packed[:16]))
	}
	return ids, nil
}

// InsertPlan implements ops.PlanStore.
func (r *Repository) InsertPlan(ctx context.Context, p ops.StoredPlan, audit string, keep time.Duration) error {
	body, err := planBody(p)
	if err != nil {
		return fmt.Errorf("sqloutbox: store plan: %w", err)
	}
	req := core.AdminRequest{Actor: p.Actor, Reason: planReason(p, p.Reason)}
	return noTables(r.inTx(ctx, "store plan", func(q sqlkit.Querier) error {
		if _, err := q.Exec(ctx, r.plans.forget, micros(keep)); err != nil {
			return err
		}
		if _, err := q.Exec(ctx, r.plans.insert, p.ID, string(p.State), body, packIDs(p.IDs)); err != nil {
			return err
		}
		return r.database.auditWhole(ctx, q, audit, "", req)
	}))
}

// planReason is the reason of an audit row about a plan. It says which events the plan has.
func planReason(p ops.StoredPlan, reason string) string {
	filter, _ := json.Marshal(p.Filter)
	beyond := ""
	if p.Beyond != "" {
		beyond = ", beyond: " + p.Beyond
	}
	return fmt.Sprintf("%s (plan %s: %s of %d events%s, filter %s)", reason, p.ID, p.Action, p.Events, beyond, filter)
}

// ReadPlan implements ops.PlanStore.
func (r *Repository) ReadPlan(ctx context.Context, id string) (p ops.StoredPlan, found bool, err error) {
	err = r.single(ctx, "read plan", func(q sqlkit.Querier) error {
		found = false
		return sqlkit.EachRow(ctx, q, r.plans.read, []any{id}, func(res core.Rows) (err error) {
			var packed []byte
			found = true
			if p, err = scanPlan(res, &packed); err != nil {
				return err
			}
			p.IDs, err = unpackIDs(packed)
			return err
		})
	})
	return p, found, noTables(err)
}

// ReadPlans implements ops.PlanStore.
func (r *Repository) ReadPlans(ctx context.Context, limit int) (plans []ops.StoredPlan, err error) {
	err = r.single(ctx, "read plans", func(q sqlkit.Querier) error {
		plans = nil
		return sqlkit.EachRow(ctx, q, r.plans.list, []any{int64(limit)}, func(res core.Rows) error {
			p, err := scanPlan(res)
			plans = append(plans, p)
			return err
		})
	})
	return plans, noTables(err)
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

// ChangePlan implements ops.PlanStore. The plan is changed first: of two processes that run it, the
// second one waits there and then finds another version.
func (r *Repository) ChangePlan(ctx context.Context, c ops.PlanChange) (p ops.StoredPlan, ok bool, err error) {
	err = r.inTx(ctx, "change plan", func(q sqlkit.Querier) error {
		p = c.Plan
		if err := r.writePlan(ctx, q, p, p.Version, c.Lease); err != nil {
			return err
		}
		p.Version++
		if c.Audit != "" {
			req := c.Request
			req.Reason = planReason(p, req.Reason)
			if err := r.database.auditWhole(ctx, q, c.Audit, "", req); err != nil {
				return err
			}
		}
		if len(c.IDs) > 0 {
			n, err := r.changeRows(ctx, q, p.Action, c)
			if err != nil {
				return err
			}
			p.Changed += n
			if err := r.writePlan(ctx, q, p, p.Version, c.Lease); err != nil {
				return err
			}
			p.Version++
		}
		return r.readTimes(ctx, q, &p)
	})
	if errors.Is(err, errStale) {
		return c.Plan, false, nil
	}
	return p, err == nil, noTables(err)
}

// readTimes reads the times that writePlan has written, by the clock of the database.
func (r *Repository) readTimes(ctx context.Context, q sqlkit.Querier, p *ops.StoredPlan) error {
	return sqlkit.EachRow(ctx, q, r.plans.times, []any{p.ID}, func(res core.Rows) error {
		var updated, now int64
		var until *int64
		if err := res.Scan(&updated, &until, &now); err != nil {
			return err
		}
		setTimes(p, updated, until, now)
		return nil
	})
}

func (r *Repository) writePlan(ctx context.Context, q sqlkit.Querier, p ops.StoredPlan, version int64,
	lease time.Duration,
) error {
	body, err := planBody(p)
	if err != nil {
		return err
	}
	args := []any{string(p.State), body, micros(lease), p.ID, version}
	n, err := q.Exec(ctx, r.plans.change, args...)
	if err == nil && n == 0 {
		err = errStale
	}
	return err
}

// changeRows redrives, discards or replays rows of a plan.
func (r *Repository) changeRows(ctx context.Context, q sqlkit.Querier, action ops.Action, c ops.PlanChange,
) (int, error) {
	ids := sortedIDs(c.IDs)
	switch action {
	case ops.ActionRedrive:
	case ops.ActionDiscard:
		return r.database.discard(ctx, q, ids, c.Request)
	case ops.ActionReplay:
		return r.replay(ctx, q, ids, c)
	}
	n, err := r.database.redrive(ctx, q, ids, c.Request)
	if err != nil {
		return 0, err
	}
	appended, err := r.appendDead(ctx, q, ids, c.Request)
	return n + appended, err
}

// ReadStatuses implements ops.PlanStore.
func (r *Repository) ReadStatuses(ctx context.Context, ids []core.RowID) (all []ops.RowStatus, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	at := map[core.RowID]int{} // a row that is replaced between the two queries is in both
	err = r.database.read(ctx, "read outcomes", func(q sqlkit.Querier) error {
		all = nil
		clear(at)
		for _, text := range []string{r.plans.outcomes, r.plans.copies} {
			text, args := r.names.dialect.params.listed(text, ids)
			err := sqlkit.EachRow(ctx, q, text, args, func(res core.Rows) error {
				var id id16
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
