package sqloutbox

import (
	"cmp"
	"context"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// typeStatements are the statements about types of events.
type typeStatements struct {
	backlog string
	limits  int // how many parameters of backlog are the limit
}

const (
	maxTypes = 1000 // types that TypeBacklog returns at most

	// Every part is ordered as its index, so that a limit ends the scan. The index of keys has dead
	// rows too: they are looked at there, and counted in the last part.
	postgresTypeBacklog = `SELECT x.event_type, x.status::bigint, count(*) FROM (
  (SELECT e.event_type, e.status FROM {event} e WHERE e.status IN (0,2) AND e.lane IS NULL ORDER BY e.topic,
    e.available_at LIMIT $1::bigint)
  UNION ALL
  SELECT * FROM (SELECT e.event_type, e.status FROM {event} e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL
    ORDER BY e.lane, e.key_seq LIMIT $1::bigint) k WHERE k.status <> 3
  UNION ALL
  (SELECT e.event_type, e.status FROM {event} e WHERE e.status = 3 ORDER BY e.id LIMIT $1::bigint)
) x GROUP BY x.event_type, x.status`

	rowwiseTypeBacklog = `SELECT x.event_type, x.status, COUNT(*) FROM (
  SELECT * FROM (SELECT {bin:e.event_type} AS event_type, e.status AS status FROM {event} e{use:event_ready}
    WHERE {ready}{topic} IS NOT NULL ORDER BY {topic} LIMIT ?) a
  UNION ALL
  SELECT * FROM (SELECT {bin:e.event_type} AS event_type, e.status AS status FROM {event} e{use:event_lanes}
    WHERE {inlane}{lane} IS NOT NULL ORDER BY {lane} LIMIT ?) b WHERE b.status <> 3
  UNION ALL
  SELECT * FROM (SELECT {bin:e.event_type} AS event_type, e.status AS status FROM {event} e{use:event_dead}
    WHERE {isdead} LIMIT ?) c
) x GROUP BY x.event_type, x.status`
)

func newTypeStatements(n names) typeStatements {
	others := typeStatements{backlog: rowwiseTypeBacklog, limits: 3}
	s := outboxsql.ByDialect[typeStatements]{
		Postgres: typeStatements{backlog: postgresTypeBacklog, limits: 1}, MySQL: others, SQLite: others,
	}.Of(n.dialect)
	s.backlog = n.expand(s.backlog)
	return s
}

// typeCounts counts the events of a Repository by their type.
type typeCounts component[typeStatements]

// TypeBacklog implements core.Repository.
func (r *typeCounts) TypeBacklog(ctx context.Context, limit int) ([]core.TypeBacklog, error) {
	if limit <= 0 {
		return nil, nil
	}
	args := slices.Repeat([]any{int64(limit)}, r.sql.limits)
	types := map[string]core.TypeBacklog{}
	err := r.database.read(ctx, "backlog of types", func(q sqlkit.Querier) error {
		clear(types)
		return sqlkit.EachRow(ctx, q, r.sql.backlog, args, func(res core.Rows) error {
			var name string
			var status, n int64
			err := res.Scan(&name, &status, &n)
			t := types[name]
			switch t.Type = name; status {
			case 0:
				t.New += n
			case 2:
				t.Retry += n
			default:
				t.Dead += n
			}
			types[name] = t
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return largestTypes(types), nil
}

func largestTypes(types map[string]core.TypeBacklog) (all []core.TypeBacklog) {
	for _, t := range types {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b core.TypeBacklog) int {
		return cmp.Or(cmp.Compare(b.New+b.Retry+b.Dead, a.New+a.Retry+a.Dead), cmp.Compare(a.Type, b.Type))
	})
	return all[:min(len(all), maxTypes)]
}
