package sqlops

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// destinationStatements are the statements about the backlogs of topics.
type destinationStatements struct {
	count  string
	limits int // how often the limit is a parameter of count
}

// The statements read events in the order of an index, so that a limit ends the scan, in each of
// three parts: open events without a key; open and dead events with a key, of which the open ones
// are counted; and dead events.
const (
	postgresDestinations = `SELECT part, topic, count(*), count(*) FILTER (WHERE status <> 3),
  count(*) FILTER (WHERE status <> 3 AND available_at <= now() AND NOT COALESCE(lease_until > now(), false)),
  count(*) FILTER (WHERE status <> 3 AND lease_until > now()), count(*) FILTER (WHERE status = 2),
  count(*) FILTER (WHERE part = 3),
  COALESCE(1000000 * extract(epoch FROM now() - min(created_at) FILTER (WHERE status <> 3)), 0)::bigint
FROM (
  SELECT * FROM (SELECT 1 AS part, topic, status, available_at, lease_until, created_at FROM {event}
    WHERE status IN (0,2) AND lane IS NULL ORDER BY topic, available_at LIMIT $1::bigint) a
  UNION ALL
  SELECT * FROM (SELECT 2, topic, status, available_at, lease_until, created_at FROM {event}
    WHERE status IN (0,2,3) AND lane IS NOT NULL ORDER BY lane, key_seq LIMIT $1::bigint) b
  UNION ALL
  SELECT * FROM (SELECT 3, topic, status, available_at, lease_until, created_at FROM {event}
    WHERE status = 3 ORDER BY id LIMIT $1::bigint) c
) e GROUP BY part, topic`

	mysqlDestinations = `SELECT part, topic, COUNT(*), SUM(status <> 3),
  SUM(status <> 3 AND available_at <= {now} AND NOT COALESCE(lease_until > {now}, 0)),
  SUM(status <> 3 AND COALESCE(lease_until > {now}, 0)), SUM(status = 2), SUM(part = 3),
  COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(CASE WHEN status <> 3 THEN created_at END), {now}), 0)
FROM (
  (SELECT 1 AS part, topic, status, available_at, lease_until, created_at FROM {event}
    WHERE open_lane IS NULL AND key_seq IS NULL AND ready_topic IS NOT NULL
    ORDER BY ready_topic, available_at LIMIT ?)
  UNION ALL
  (SELECT 2, topic, status, available_at, lease_until, created_at FROM {event}
    WHERE open_lane IS NOT NULL ORDER BY open_lane, key_seq LIMIT ?)
  UNION ALL
  (SELECT 3, topic, status, available_at, lease_until, created_at FROM {event}
    WHERE dead = 1 ORDER BY id LIMIT ?)
) e GROUP BY part, topic`

	sqliteDestinations = `SELECT part, topic, COUNT(*), SUM(status <> 3),
  SUM(status <> 3 AND available_at <= {now} AND NOT COALESCE(lease_until > {now}, 0)),
  SUM(status <> 3 AND COALESCE(lease_until > {now}, 0)), SUM(status = 2), SUM(part = 3),
  COALESCE({now} - MIN(CASE WHEN status <> 3 THEN created_at END), 0)
FROM (
  SELECT * FROM (SELECT 1 AS part, topic, status, available_at, lease_until, created_at FROM {event}
    WHERE status IN (0,2) AND lane IS NULL ORDER BY topic, available_at LIMIT ?) a
  UNION ALL
  SELECT * FROM (SELECT 2, topic, status, available_at, lease_until, created_at FROM {event}
    WHERE status IN (0,2,3) AND lane IS NOT NULL ORDER BY lane, key_seq LIMIT ?) b
  UNION ALL
  SELECT * FROM (SELECT 3, topic, status, available_at, lease_until, created_at FROM {event}
    WHERE status = 3 ORDER BY id LIMIT ?) c
) e GROUP BY part, topic`
)

func newDestinationStatements(t outboxsql.Tables) destinationStatements {
	s := outboxsql.ByDialect[destinationStatements]{
		Postgres: destinationStatements{postgresDestinations, 1},
		MySQL:    destinationStatements{mysqlDestinations, 3},
		SQLite:   destinationStatements{sqliteDestinations, 3},
	}.Of(t.Dialect)
	s.count = t.Expand(s.count)
	return s
}

// ReadDestinations implements ops.Store.
func (st *Store) ReadDestinations(ctx context.Context, limit int) (all []ops.Destination, more bool, err error) {
	args := slices.Repeat([]any{int64(limit)}, st.destinations.limits)
	byTopic, parts := map[string]*ops.Destination{}, map[int64]int64{}
	err = st.tables.Read(ctx, "backlog of topics", func(q sqlkit.Querier) error {
		clear(byTopic)
		clear(parts)
		return sqlkit.EachRow(ctx, q, st.destinations.count, args, func(res core.Rows) error {
			var d ops.Destination
			var part, n, oldest int64
			if err := res.Scan(&part, &d.Topic, &n, &d.Pending, &d.Due, &d.Leased, &d.Retrying, &d.Dead,
				&oldest); err != nil {
				return err
			}
			parts[part] += n
			to := byTopic[d.Topic]
			if to == nil {
				to = &ops.Destination{Topic: d.Topic}
				byTopic[d.Topic] = to
			}
			to.Pending, to.Due, to.Leased = to.Pending+d.Pending, to.Due+d.Due, to.Leased+d.Leased
			to.Retrying, to.Dead = to.Retrying+d.Retrying, to.Dead+d.Dead
			to.Oldest = max(to.Oldest, time.Duration(oldest)*time.Microsecond)
			return nil
		})
	})
	for _, n := range parts {
		more = more || n >= int64(limit)
	}
	all = []ops.Destination{}
	for _, d := range byTopic {
		all = append(all, *d)
	}
	slices.SortFunc(all, func(a, b ops.Destination) int { return strings.Compare(a.Topic, b.Topic) })
	return all, more, err
}
