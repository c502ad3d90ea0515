package sqlops

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// A copy for a replay names its row, and if it has a key, it carries the event's first number: its
// own number belongs to another sequence, which a consumer must not compare.
const (
	logReader = "'" + core.LogReader + "'"

	replayedColumns = `event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, ` +
		`aggregate_version, tenant_id, partition_key, `

	// The copy of a row of a reader of the log is one too.
	replayedByLog = `status = 1 AND claimed_by = ` + logReader
	replayedState = `CASE WHEN ` + replayedByLog + ` THEN 1 ELSE 0 END, CASE WHEN ` + replayedByLog + ` THEN ` +
		logReader + ` END, CASE WHEN ` + replayedByLog + ` THEN {now} END`

	postgresReplay = `INSERT INTO {event} (id, key_seq, available_at, created_at, ` + outboxsql.CopiedColumns +
		`, status, claimed_by, done_at)
SELECT $1::uuid, $2::bigint, clock_timestamp(), clock_timestamp(), ` + replayedColumns +
		`$3::bytea, payload, content_type, CASE WHEN key_seq IS NOT NULL AND (headers IS NULL OR ` +
		`jsonb_typeof(headers) = 'object') ` +
		`THEN jsonb_build_object('` + core.HeaderFirstKeySeq + `', key_seq::text) || COALESCE(headers, '{}') ELSE ` +
		`headers END, occurred_at, id, ` + replayedState + ` FROM {event} WHERE id = $4::uuid`

	postgresDone = `SELECT e.id, e.event_id, e.topic, COALESCE(e.tenant_id, ''), COALESCE(e.partition_key, ''),
  COALESCE(e.key_seq, 0), TRUE FROM {event} e
WHERE e.id = ANY ($1::uuid[]) AND e.status = 1 AND e.replay_of IS NULL ORDER BY e.id FOR UPDATE`

	otherReplay = `INSERT INTO {event} (id, key_seq, available_at, created_at, ` + outboxsql.CopiedColumns +
		`, status, claimed_by, done_at)
SELECT ?, ?, {now}, {now}, ` + replayedColumns +
		`?, payload, content_type, CASE WHEN key_seq IS NULL THEN headers ELSE {first_seq:` + core.HeaderFirstKeySeq +
		`} END, occurred_at, id, ` + replayedState + ` FROM {event} WHERE id = ?`

	otherDone = `SELECT e.id, e.event_id, e.topic, COALESCE(e.tenant_id, ''), COALESCE(e.partition_key, ''),
  COALESCE(e.key_seq, 0), 1 FROM {event} e{use:primary}
WHERE e.id IN ({ids}) AND e.status = 1 AND e.replay_of IS NULL ORDER BY e.id{wait}`
)

// replayStatements are the statements that replay rows. done locks the rows that can be replayed.
type replayStatements struct{ done, replay string }

func newReplayStatements(t outboxsql.Tables) replayStatements {
	others := replayStatements{otherDone, otherReplay}
	s := outboxsql.ByDialect[replayStatements]{
		Postgres: replayStatements{postgresDone, postgresReplay}, MySQL: others, SQLite: others,
	}.Of(t.Dialect)
	return replayStatements{done: t.Expand(s.done), replay: t.Expand(s.replay)}
}

// replay gives each done row a new row, in the order of its key. Like every writer of keys it takes
// the key rows in ascending order. The rows that are replayed are locked, so that no cleanup
// deletes them meanwhile.
func (st *Store) replay(ctx context.Context, q sqlkit.Querier, ids []core.RowID, c ops.PlanChange) (int, error) {
	text, args := st.params.Listed(st.replays.done, ids)
	rows, err := outboxsql.ReadSources(ctx, q, text, args)
	if err != nil {
		return 0, err
	}
	outboxsql.SortByKey(rows)
	for _, d := range rows {
		d.NewID = c.Plan.ReplayID(d.ID)
		if err := st.replayRow(ctx, q, d, c.Request); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

func (st *Store) replayRow(ctx context.Context, q sqlkit.Querier, d outboxsql.Source, req core.AdminRequest) error {
	var seq, lane any // both NULL without a key
	if !d.Lane.IsZero() {
		next, err := st.tables.NextKeySeq(ctx, q, d)
		if err != nil {
			return err
		}
		seq, lane = next, d.Lane[:]
	}
	if _, err := q.Exec(ctx, st.replays.replay, st.params.ID(d.NewID), seq, lane, st.params.ID(d.ID)); err != nil {
		return err
	}
	return st.tables.Audit(ctx, q, string(ops.ActionReplay), d, req)
}
