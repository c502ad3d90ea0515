package sqloutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// A copy for a replay names its row, and if it has a key it carries its first number: its own
// number is that of another sequence, which a consumer must not compare.
const (
	replayedColumns = `event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, ` +
		`aggregate_version, tenant_id, partition_key, `

	// The copy of a row of a reader of the log is one too.
	replayedByLog = `status = 1 AND claimed_by = ` + byLog
	replayedState = `CASE WHEN ` + replayedByLog + ` THEN 1 ELSE 0 END, CASE WHEN ` + replayedByLog + ` THEN ` + byLog +
		` END, CASE WHEN ` + replayedByLog + ` THEN {now} END`

	postgresReplay = `INSERT INTO {event} (id, key_seq, available_at, created_at, ` + copiedColumns +
		`, status, claimed_by, done_at)
SELECT $1::uuid, $2::bigint, clock_timestamp(), clock_timestamp(), ` + replayedColumns +
		`$4::bytea, payload, content_type, CASE WHEN key_seq IS NOT NULL AND (headers IS NULL OR ` +
		`jsonb_typeof(headers) = 'object') ` +
		`THEN jsonb_build_object('` + core.HeaderFirstKeySeq + `', key_seq::text) || COALESCE(headers, '{}') ELSE ` +
		`headers END, occurred_at, id, ` + replayedState + ` FROM {event} WHERE id = $3::uuid`

	postgresDoneForReplay = `SELECT e.id, e.event_id, e.topic, COALESCE(e.tenant_id, ''), COALESCE(e.partition_key, ''),
  COALESCE(e.key_seq, 0), TRUE FROM {event} e
WHERE e.id = ANY ($1::uuid[]) AND e.status = 1 AND e.replay_of IS NULL ORDER BY e.id FOR UPDATE`

	rowwiseReplay = `INSERT INTO {event} (id, key_seq, available_at, created_at, ` + copiedColumns +
		`, status, claimed_by, done_at)
SELECT ?, ?, {now}, {now}, ` + replayedColumns +
		`?, payload, content_type, CASE WHEN key_seq IS NULL THEN headers ELSE {first_seq:` + core.HeaderFirstKeySeq +
		`} END, occurred_at, id, ` + replayedState + ` FROM {event} WHERE id = ?`

	rowwiseDoneForReplay = `SELECT e.id, e.event_id, e.topic, COALESCE(e.tenant_id, ''), COALESCE(e.partition_key, ''),
  COALESCE(e.key_seq, 0), 1 FROM {event} e{use:primary}
WHERE e.id IN ({ids}) AND e.status = 1 AND e.replay_of IS NULL ORDER BY e.id{wait}`
)

// replay gives each done row a new row, in the order of its key. Like every writer of keys it takes
// the key rows in ascending order. The rows that are replayed are locked, so that no cleanup
// deletes them meanwhile.
func (r *Repository) replay(ctx context.Context, q sqlkit.Querier, ids []core.RowID, c ops.PlanChange) (int, error) {
	rows, err := r.database.lockDone(ctx, q, ids)
	if err != nil {
		return 0, err
	}
	sortByKey(rows)
	for _, d := range rows {
		d.newID = c.Plan.ReplayID(d.id)
		if err := r.database.replay(ctx, q, d, c.Request); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

func (p *postgres) lockDone(ctx context.Context, q sqlkit.Querier, ids []core.RowID) ([]sourceRow, error) {
	return readSources(ctx, q, p.sql.doneForReplay, []any{uuidArray(ids)})
}

func (p *postgres) replay(ctx context.Context, q sqlkit.Querier, d sourceRow, req core.AdminRequest) error {
	var seq, lane any // both NULL without a key
	id, newID := d.id.String(), d.newID.String()
	if !d.lane.IsZero() {
		var next int64
		if _, err := sqlkit.FirstRow(ctx, q, p.sql.keyNext, []any{d.lane[:], newID}, &next); err != nil {
			return err
		}
		seq, lane = next, d.lane[:]
	}
	if _, err := q.Exec(ctx, p.sql.replay, newID, seq, id, lane); err != nil {
		return err
	}
	_, err := q.Exec(ctx, p.sql.audit, string(ops.ActionReplay), req.Actor, req.Reason, id, d.eventID, d.topic, newID)
	return err
}

func (w *rowwise) lockDone(ctx context.Context, q sqlkit.Querier, ids []core.RowID) ([]sourceRow, error) {
	return readSources(ctx, q, w.sql.doneForReplay.text(len(ids)), idArgs(ids))
}

func (w *rowwise) replay(ctx context.Context, q sqlkit.Querier, d sourceRow, req core.AdminRequest) error {
	var seq, lane any // both NULL without a key
	if !d.lane.IsZero() {
		next, err := w.nextKeySeq(ctx, q, d)
		if err != nil {
			return err
		}
		seq, lane = next, d.lane[:]
	}
	if _, err := q.Exec(ctx, w.sql.replay, d.newID[:], seq, lane, d.id[:]); err != nil {
		return err
	}
	_, err := q.Exec(ctx, w.sql.audit, string(ops.ActionReplay), req.Actor, req.Reason, d.id[:], d.eventID, d.topic,
		d.newID[:])
	return err
}
