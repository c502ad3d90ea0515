package metrics

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

// audited is implemented by *core.Outbox.
type audited interface {
	ListAudit(ctx context.Context, q core.AuditQuery) ([]core.AuditRecord, error)
	CountAudit(ctx context.Context, after, upTo int64) (map[string]int64, error)
}

// auditActions are the actions of audit rows. Those of later versions count as other.
var auditActions = []string{
	string(core.OperatorRedrive), string(core.OperatorDiscard), string(core.OperatorReplay),
	string(core.OperatorEdit), string(core.OperatorErase),
	core.AuditPause, core.AuditResume, core.AuditRate, core.AuditResetKeys,
	"plan", "run-plan", "pause-plan", "cancel-plan", "note-group", "mute-group", "unmute-group",
	"declare-window", "withdraw-window", "reveal", "release",
	"redrive-message", "discard-message", "redrive-effect", "discard-effect", other,
}

func newAuditRows(m Meter) map[string]Counter {
	series := counter(m, "outbox_audit_rows_total",
		"Rows that table outbox_audit got since this process watches it, whichever process wrote them. A redrive, a "+
			"discard, a replay, an edit, an erasure, a release and a reveal have a row for each event. A row that "+
			"commits after two looks have seen a newer one is not counted. Use max over processes.", "action")
	rows := map[string]Counter{}
	for _, action := range auditActions {
		rows[action] = series(action)
	}
	return rows
}

// auditTrail counts the audit rows that a table gets from any process. It reads each of them twice,
// because a row may commit after one with a higher number. A row that commits before the next look
// is counted then. A transaction that stays open for longer is missed: to look further back would
// cost every look.
type auditTrail struct {
	rows         map[string]Counter
	began        bool
	before, last int64            // the newest row at the last look but one, and at the last one
	counted      map[string]int64 // rows up to before, and since the first look
	told         map[string]int64 // to the counters
}

func newAuditTrail(rows map[string]Counter) *auditTrail {
	return &auditTrail{rows: rows, counted: map[string]int64{}, told: map[string]int64{}}
}

func (t *auditTrail) look(ctx context.Context, o audited) error {
	newest, err := o.ListAudit(ctx, core.AuditQuery{Limit: 1})
	if err != nil {
		return err
	}
	var last int64
	if len(newest) > 0 {
		last = newest[0].No
	}
	if !t.began {
		t.began, t.before, t.last = true, last, last
		return nil
	}
	again, err := countRows(ctx, o, t.before, t.last)
	if err != nil {
		return err
	}
	recent, err := countRows(ctx, o, t.last, last)
	if err != nil {
		return err
	}
	for action, n := range again {
		t.counted[action] += n
		t.tell(action, t.counted[action]+recent[action])
	}
	for action, n := range recent {
		t.tell(action, t.counted[action]+n)
	}
	t.before, t.last = t.last, last
	return nil
}

// countRows asks the table only if rows can be between the two numbers.
func countRows(ctx context.Context, o audited, after, upTo int64) (map[string]int64, error) {
	if upTo <= after {
		return nil, nil
	}
	return o.CountAudit(ctx, after, upTo)
}

// tell raises the counter of an action to a total.
func (t *auditTrail) tell(action string, total int64) {
	more := total - t.told[action]
	if more <= 0 {
		return
	}
	t.told[action] = total
	c, known := t.rows[action]
	if !known {
		c = t.rows[other]
	}
	c.Add(float64(more))
}
