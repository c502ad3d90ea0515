package sqloutbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// relayStatements are the statements about relays.
type relayStatements struct {
	beat, remove, relays, forget string
	// All topics, but on the databases of rowwise: there it is a topic of the rows of the keys between
	// two bounds.
	pendingTopics string
}

const (
	relaysShown = "1000"
	rowsOfTopic = "100" // of keys, among which an open one is looked for
)

const (
	beatHead = "INSERT INTO {relay} (node, host, pid, program, version, all_topics, topics, seen_at, started_at, " +
		"claimed_at, published_at, state)\nVALUES "
	beatSets = "seen_at, started_at, claimed_at, published_at, state"

	selectRelays = "SELECT node, host, pid, program, version, all_topics, topics, {us:started_at}, {us:seen_at}, " +
		"{us:claimed_at}, {us:published_at}, state, {clock}\nFROM {relay} ORDER BY seen_at DESC, node LIMIT " +
		relaysShown

	postgresBeat = beatHead + "($1::text, $2::text, $3::bigint, $4::text, $5::text, $6::smallint, $7::text, {now}, " +
		"{now} - $8::bigint * interval '1 microsecond', {now} - $9::bigint * interval '1 microsecond', " +
		"{now} - $10::bigint * interval '1 microsecond', $11::text)\nON CONFLICT (node) DO UPDATE SET (" + beatSets +
		") = (excluded.seen_at, excluded.started_at, excluded.claimed_at, excluded.published_at, excluded.state)"
	sqliteBeat = beatHead + "(?, ?, ?, ?, ?, ?, ?, {now}, {ago}, {ago}, {ago}, ?)\nON CONFLICT (node) DO UPDATE SET (" +
		beatSets + ") = (excluded.seen_at, excluded.started_at, excluded.claimed_at, excluded.published_at, " +
		"excluded.state)"
	mysqlBeat = beatHead + "(?, ?, ?, ?, ?, ?, ?, {now}, {ago}, {ago}, {ago}, ?)\nON DUPLICATE KEY UPDATE " +
		"seen_at = VALUES(seen_at), started_at = VALUES(started_at), claimed_at = VALUES(claimed_at), " +
		"published_at = VALUES(published_at), state = VALUES(state)"

	// The keys of a topic have one prefix, so that both statements jump from topic to topic. In each
	// they look for an open row among the first ones: dead rows are in the same index.
	postgresPendingTopics = `WITH RECURSIVE topics AS (
  (SELECT e.topic FROM {event} e WHERE e.status IN (0,2) AND e.lane IS NULL ORDER BY e.topic LIMIT 1)
  UNION ALL
  SELECT n.topic FROM topics t CROSS JOIN LATERAL (SELECT e.topic FROM {event} e
    WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic > t.topic ORDER BY e.topic LIMIT 1) n
), prefixes AS (
  (SELECT substring(e.lane from 1 for 4) AS start, 1 AS n FROM {event} e
    WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL ORDER BY e.lane, e.key_seq LIMIT 1)
  UNION ALL
  SELECT n.start, p.n + 1 FROM prefixes p CROSS JOIN LATERAL (
    SELECT substring(e.lane from 1 for 4) AS start FROM {event} e
    WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane > p.start || '\xffffffffffffffffffffffff'::bytea
    ORDER BY e.lane, e.key_seq LIMIT 1) n WHERE p.n < $1::bigint
)
SELECT topic FROM topics UNION SELECT k.topic FROM prefixes p CROSS JOIN LATERAL (
  SELECT x.topic FROM (SELECT e.topic, e.status FROM {event} e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND
    e.lane >= p.start AND e.lane <= p.start || '\xffffffffffffffffffffffff'::bytea
    ORDER BY e.lane, e.key_seq LIMIT ` + rowsOfTopic + `) x WHERE x.status <> 3 LIMIT 1) k`
	rowwisePendingTopics = `SELECT x.topic FROM (SELECT e.topic AS topic, e.status AS status
  FROM {event} e{use:event_lanes} WHERE {inlane}{lane} >= ? AND {lane} <= ?
  ORDER BY {lane}, e.key_seq LIMIT ` + rowsOfTopic + `) x
WHERE x.status <> 3 LIMIT 1`
)

func newRelayStatements(n names) relayStatements {
	beat := outboxsql.ByDialect[string]{Postgres: postgresBeat, MySQL: mysqlBeat, SQLite: sqliteBeat}.Of(n.dialect)
	ago := outboxsql.ByDialect[string]{
		Postgres: "{now} - $1::bigint * interval '1 microsecond'", MySQL: "{ago}", SQLite: "{ago}",
	}.Of(n.dialect)
	pending := outboxsql.ByDialect[string]{
		Postgres: postgresPendingTopics, MySQL: rowwisePendingTopics, SQLite: rowwisePendingTopics,
	}.Of(n.dialect)
	return relayStatements{
		beat: n.expand(beat), relays: n.expand(selectRelays), pendingTopics: n.expand(pending),
		remove: n.expand("DELETE FROM {relay} WHERE node = " + n.params().Mark(1, "text")),
		forget: n.expand("DELETE FROM {relay} WHERE seen_at < " + ago),
	}
}

// registry is the core.Registry of a Repository.
type registry component[relayStatements]

// Beat implements core.Repository.
func (r *registry) Beat(ctx context.Context, b core.Heartbeat) error {
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
	_, err = sqlkit.Change(ctx, r.database.write, "beat", r.sql.beat, args...)
	return err
}

// RemoveRelay implements core.Repository.
func (r *registry) RemoveRelay(ctx context.Context, node string) error {
	_, err := sqlkit.Change(ctx, r.database.write, "remove relay", r.sql.remove, clean(node, maxName))
	return err
}

// ForgetRelays implements core.Repository.
func (r *registry) ForgetRelays(ctx context.Context, unseen time.Duration) (int, error) {
	return sqlkit.Change(ctx, r.database.write, "forget relays", r.sql.forget, micros(unseen))
}

// Relays implements core.Repository.
func (r *registry) Relays(ctx context.Context) ([]core.RelayStatus, error) {
	return sqlkit.AskRows(ctx, r.pool.single, "relays", r.sql.relays, nil, scanRelay)
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
	s.Ahead = max(0, s.SeenAt.Sub(time.UnixMicro(now)))
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

// PendingTopics implements core.Repository.
func (r *registry) PendingTopics(ctx context.Context, sample int) ([]string, error) {
	if sample <= 0 {
		return nil, nil
	}
	var topics []string
	var err error
	switch db := r.database.(type) {
	case *postgres:
		args := []any{int64(sample)}
		topics, err = sqlkit.AskRows(ctx, db.scan, "pending topics", r.sql.pendingTopics, args, sqlkit.Text)
	case *rowwise:
		err = db.single(ctx, "pending topics", func(q sqlkit.Querier) (err error) {
			if topics, err = db.openTopics(ctx, q); err != nil {
				return err
			}
			ofKeys, err := r.topicsOfKeys(ctx, q, db.sql.firstLane, sample)
			topics = append(topics, ofKeys...)
			return err
		})
	}
	slices.Sort(topics)
	return slices.Compact(topics), err
}

// topicsOfKeys returns the topics of keys with open rows.
func (r *registry) topicsOfKeys(ctx context.Context, q sqlkit.Querier, firstLane string, sample int,
) (topics []string, err error) {
	last := core.KeyID{}
	for range sample {
		var lane outboxsql.ID
		found, err := sqlkit.FirstRow(ctx, q, firstLane, []any{last[:]}, &lane)
		if err != nil || !found {
			return topics, err
		}
		var first core.KeyID
		copy(first[:4], lane[:4])
		last = lastLane
		copy(last[:4], lane[:4])
		var topic string
		found, err = sqlkit.FirstRow(ctx, q, r.sql.pendingTopics, []any{first[:], last[:]}, &topic)
		if err != nil {
			return topics, err
		}
		if found {
			topics = append(topics, topic)
		}
	}
	return topics, nil
}

const maxName = 255

const (
	maxStopped   = 100  // destinations in the state of a relay
	maxStateText = 1000 // bytes of an error in it
)

// relayState is core.RelayState as the column state of the relays has it.
type relayState struct {
	Stopped []stoppedDestination `json:"stopped,omitempty"`
	Stuck   int                  `json:"stuck,omitempty"`
	HotFull bool                 `json:"hot_full,omitempty"`
	PollErr string               `json:"poll_error,omitempty"`
}

type stoppedDestination struct {
	Topic    string `json:"topic"`
	Micros   int64  `json:"us"` // since it was stopped
	Failures int    `json:"failures,omitempty"`
	Stuck    int    `json:"stuck,omitempty"`
	Err      string `json:"error,omitempty"`
}

func encodeState(s core.RelayState) (string, error) {
	state := relayState{Stuck: s.Stuck, HotFull: s.HotFull, PollErr: stateText(s.PollErr)}
	for _, d := range s.Stopped[:min(len(s.Stopped), maxStopped)] {
		state.Stopped = append(state.Stopped, stoppedDestination{
			Topic: d.Topic, Micros: time.Since(d.Since).Microseconds(), Failures: d.Failures, Stuck: d.Stuck,
			Err: stateText(d.Err),
		})
	}
	text, err := json.Marshal(state)
	return asciiJSON(string(text)), err
}

// asciiJSON escapes characters outside ASCII, so that a connection of any character set can store
// the text.
func asciiJSON(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

func stateText(err error) string {
	if err == nil {
		return ""
	}
	return clean(core.ErrorText(err), maxStateText)
}

// decodeState reads the state of a relay that was seen at that time. What cannot be read is left
// out, because it must not hide the relays.
func decodeState(text string, seen time.Time) (s core.RelayState) {
	var state relayState
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		return s
	}
	s.Stuck, s.HotFull = state.Stuck, state.HotFull
	if state.PollErr != "" {
		s.PollErr = errors.New(state.PollErr)
	}
	for _, d := range state.Stopped {
		s.Stopped = append(s.Stopped, core.StoppedDestination{
			Topic: d.Topic, Since: seen.Add(-time.Duration(d.Micros) * time.Microsecond), Failures: d.Failures,
			Stuck: d.Stuck, Err: errors.New(d.Err),
		})
	}
	return s
}
