package sqloutbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

var _ core.RelayRegistry = (*Repository)(nil)

// relayStatements are the statements about relays.
type relayStatements struct {
	beat, remove, relays, forget string
	// On PostgreSQL the topics of rows without a key, on the others those of rows with one.
	pendingTopics string
}

const relaysShown = "1000"

const (
	beatHead = "INSERT INTO {relay} (node, host, pid, program, version, all_topics, topics, seen_at, started_at, " +
		"claimed_at, published_at, state)\nVALUES "
	beatSets = "seen_at, started_at, claimed_at, published_at, state"

	selectRelays = "SELECT node, host, pid, program, version, all_topics, topics, {us:started_at}, {us:seen_at}, " +
		"{us:claimed_at}, {us:published_at}, state, {clock}\nFROM {relay} ORDER BY seen_at DESC, node LIMIT " + relaysShown

	postgresBeat = beatHead + "($1::text, $2::text, $3::bigint, $4::text, $5::text, $6::smallint, $7::text, {now}, " +
		"{now} - $8::bigint * interval '1 microsecond', {now} - $9::bigint * interval '1 microsecond', " +
		"{now} - $10::bigint * interval '1 microsecond', $11::text)\nON CONFLICT (node) DO UPDATE SET (" + beatSets +
		") = (excluded.seen_at, excluded.started_at, excluded.claimed_at, excluded.published_at, excluded.state)"
	sqliteBeat = beatHead + "(?, ?, ?, ?, ?, ?, ?, {now}, {ago}, {ago}, {ago}, ?)\nON CONFLICT (node) DO UPDATE SET (" +
		beatSets + ") = (excluded.seen_at, excluded.started_at, excluded.claimed_at, excluded.published_at, excluded.state)"
	mysqlBeat = beatHead + "(?, ?, ?, ?, ?, ?, ?, {now}, {ago}, {ago}, {ago}, ?)\nON DUPLICATE KEY UPDATE " +
		"seen_at = VALUES(seen_at), started_at = VALUES(started_at), claimed_at = VALUES(claimed_at), " +
		"published_at = VALUES(published_at), state = VALUES(state)"

	postgresPendingTopics = `WITH RECURSIVE topics AS (
  (SELECT e.topic FROM {event} e WHERE e.status IN (0,2) AND e.lane IS NULL ORDER BY e.topic LIMIT 1)
  UNION ALL
  SELECT n.topic FROM topics t CROSS JOIN LATERAL (SELECT e.topic FROM {event} e
    WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic > t.topic ORDER BY e.topic LIMIT 1) n
)
SELECT topic FROM topics UNION SELECT k.topic FROM (SELECT e.topic FROM {event} e WHERE e.status IN (0,2,3) AND
  e.lane IS NOT NULL AND e.status <> 3 ORDER BY e.lane, e.key_seq LIMIT $1::bigint) k`
	rowwisePendingTopics = `SELECT DISTINCT x.topic FROM (SELECT e.topic FROM {event} e{use:event_lanes}
  WHERE {inlane}e.status <> 3 AND {lane} IS NOT NULL ORDER BY {lane} LIMIT ?) x`
)

func newRelayStatements(n names) relayStatements {
	beat := byDialect[string]{postgres: postgresBeat, mysql: mysqlBeat, sqlite: sqliteBeat}.of(n)
	ago := byDialect[string]{
		postgres: "{now} - $1::bigint * interval '1 microsecond'", mysql: "{ago}", sqlite: "{ago}",
	}.of(n)
	pending := byDialect[string]{
		postgres: postgresPendingTopics, mysql: rowwisePendingTopics, sqlite: rowwisePendingTopics,
	}.of(n)
	return relayStatements{
		beat: n.expand(beat), relays: n.expand(selectRelays), pendingTopics: n.expand(pending),
		remove: n.expand("DELETE FROM {relay} WHERE node = " + n.dialect.params.mark(1, "text")),
		forget: n.expand("DELETE FROM {relay} WHERE seen_at < " + ago),
	}
}

// noTables adds core.ErrNoTables to the error of a statement whose table is missing.
func noTables(err error) error {
	if err != nil && sqlerr.MissingTable(err) {
		return fmt.Errorf("%w: %w", core.ErrNoTables, err)
	}
	return err
}

// Beat implements core.RelayRegistry.
func (r *Repository) Beat(ctx context.Context, b core.Heartbeat) error {
	topics, err := json.Marshal(append([]string{}, b.Topics...))
	if err != nil {
		return fmt.Errorf("sqloutbox: beat: %w", err)
	}
	state, err := encodeState(b.RelayState)
	if err != nil {
		return fmt.Errorf("sqloutbox: beat: %w", err)
	}
	since := func(d time.Duration) any {
		if d < 0 {
			return nil
		}
		return micros(d)
	}
	args := []any{
		clean(b.Node, maxName), clean(b.Host, maxName), int64(b.PID), clean(b.Program, maxName),
		clean(b.Version, maxName), b2i(b.AllTopics), string(topics), micros(b.SinceStart), since(b.SinceClaim),
		since(b.SincePublish), state,
	}
	_, err = r.change(ctx, "beat", r.relays.beat, args...)
	return err
}

// RemoveRelay implements core.RelayRegistry.
func (r *Repository) RemoveRelay(ctx context.Context, node string) error {
	_, err := r.change(ctx, "remove relay", r.relays.remove, clean(node, maxName))
	return err
}

// ForgetRelays implements core.RelayRegistry.
func (r *Repository) ForgetRelays(ctx context.Context, unseen time.Duration) (int, error) {
	return r.change(ctx, "forget relays", r.relays.forget, micros(unseen))
}

// Relays implements core.RelayRegistry.
func (r *Repository) Relays(ctx context.Context) (relays []core.RelayStatus, err error) {
	err = r.single(ctx, "relays", func(q sqlkit.Querier) error {
		relays = nil
		return sqlkit.EachRow(ctx, q, r.relays.relays, nil, func(res core.Rows) error {
			s, err := scanRelay(res)
			relays = append(relays, s)
			return err
		})
	})
	return relays, noTables(err)
}

func scanRelay(res core.Rows) (s core.RelayStatus, err error) {
	var all, started, seen, now int64
	var claimed, published *int64
	var topics string
	var state *string
	err = res.Scan(&s.Node, &s.Host, &s.PID, &s.Program, &s.Version, &all, &topics, &started, &seen, &claimed,
		&published, &state, &now)
	if err != nil {
		return s, err
	}
	s.AllTopics = all != 0
	s.StartedAt, s.SeenAt = time.UnixMicro(started).UTC(), time.UnixMicro(seen).UTC()
	if claimed != nil {
		s.ClaimedAt = time.UnixMicro(*claimed).UTC()
	}
	if published != nil {
		s.PublishedAt = time.UnixMicro(*published).UTC()
	}
	if s.Age = time.Duration(now-seen) * time.Microsecond; s.Age < 0 && s.Age >= -core.RelayAlive {
		s.Age = 0 // another process wrote it since the statement began
	}
	if err := json.Unmarshal([]byte(topics), &s.Topics); err != nil {
		return s, fmt.Errorf("the topics of relay %s: %w", s.Node, err)
	}
	if state != nil {
		s.RelayState = decodeState(*state, s.SeenAt)
	}
	return s, nil
}

// PendingTopics implements core.RelayRegistry.
func (r *Repository) PendingTopics(ctx context.Context, sample int) ([]string, error) {
	if sample <= 0 {
		return nil, nil
	}
	var topics []string
	read := func(q sqlkit.Querier) error {
		return sqlkit.EachRow(ctx, q, r.relays.pendingTopics, []any{int64(sample)}, func(res core.Rows) error {
			var topic string
			err := res.Scan(&topic)
			topics = append(topics, topic)
			return err
		})
	}
	var err error
	switch db := r.database.(type) {
	case *postgres:
		err = db.scan(ctx, "pending topics", func(q sqlkit.Querier) error {
			topics = nil
			return read(q)
		})
	case *rowwise:
		err = db.single(ctx, "pending topics", func(q sqlkit.Querier) error {
			topics = nil
			for last := ""; ; {
				found, err := sqlkit.FirstRow(ctx, q, db.sql.nextTopic, []any{last}, &last)
				if err != nil {
					return err
				}
				if !found {
					return read(q)
				}
				topics = append(topics, last)
			}
		})
	}
	slices.Sort(topics)
	return slices.Compact(topics), noTables(err)
}

// change runs one statement that changes rows.
func (r *Repository) change(ctx context.Context, what, text string, args ...any) (n int, err error) {
	err = r.database.write(ctx, what, func(q sqlkit.Querier) error {
		changed, err := q.Exec(ctx, text, args...)
		n = int(changed)
		return err
	})
	return n, noTables(err)
}

const maxName = 255
