package walrelay

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
)

// verdict is where an event is published from.
type verdict uint8

const (
	fromLog verdict = iota + 1 // this process publishes the event from the log
	inFront                    // as fromLog; and an open row of its key is behind it
	inTable                    // the event's row is open, and a relay publishes it from the table
	// A relay has published the event from the table, or a person has discarded it. Or it is a
	// replay of an event that is in the table, which stands for both.
	ended
)

// move asks the table about an event, or gives it an open row.
type move struct {
	row    core.Claimed
	commit pglogrepl.LSN
	// ask: the event gets an open row only if an open row of its key is before it. Otherwise it
	// gets one in any case.
	ask bool
	// failure makes the open row a refused event's. Its zero value makes a new event's.
	failure core.Failure
}

// status is the status of the open row.
func (m *move) status() int {
	switch m.failure.Kind {
	case core.FailRetry:
		return 2
	case core.FailDead:
		return 3
	default:
		return 0
	}
}

func (m *move) attempts() int {
	if m.status() == 0 {
		return m.row.Attempts
	}
	return m.row.Attempts + 1
}

// repeats reports whether the event is a replay that was not sent yet.
func (m *move) repeats() bool { return !m.row.ReplayOf.IsZero() && m.failure.Kind == 0 }

// leaves reports whether the open row is outside of its key.
func (m *move) leaves() bool { return m.failure.Kind == core.FailDead && m.failure.SkipDead }

// here reports whether this process publishes the event.
func (v verdict) here() bool { return v == fromLog || v == inFront }

// spiller gives events open rows. It is the table of the database, or a simulation's.
type spiller interface {
	// spill decides about each event, and writes open rows, in one transaction. Nothing was written
	// if it returns an error, or the outcome is unknown: it may be called again. The error wraps
	// errNotLeading if another process has the slot.
	spill(ctx context.Context, moves []move) ([]verdict, error)
}

// errNotLeading: another process has taken over the slot, or a standby has taken over the database,
// or the database is a copy that was made before the session wrote into it.
var errNotLeading = errors.New("walrelay: another process reads the slot now, a standby has taken over, or the " +
	"database was restored")

// judge decides about an event. status is the status of its row, or nil if it has none. open is the
// number of the first open row of its key, if it has one. write: it gets an open row now.
//
// A row that is DONE although the event was spilled was published from the table. The event is
// published again nevertheless, as the events around it are. Without it, the event before it would
// be the last one that a consumer sees.
func judge(m *move, status *int, open *int64) (v verdict, write bool) {
	switch {
	case status != nil && isOpen(*status):
		return inTable, false
	case status != nil && *status != statusDone:
		return ended, false
	case m.ask && (m.row.KeyID.IsZero() || open == nil):
		return fromLog, false
	case m.ask && *open >= m.row.KeySeq:
		return inFront, false
	}
	return inTable, true
}

// isOpen reports whether a row with this status is published from the table, or is dead there.
func isOpen(status int) bool { return status == 0 || status == 2 || status == 3 }

// sqlSpiller is a spiller in PostgreSQL.
type sqlSpiller struct {
	db       *database
	slot     string
	epoch    int64
	timeline int32
	skipDead bool // dead rows do not block their keys
}

func (s *sqlSpiller) spill(ctx context.Context, moves []move) (verdicts []verdict, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, s.db.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		verdicts, err = s.in(ctx, tx, moves)
		return err
	})
	return verdicts, err
}

func (s *sqlSpiller) in(ctx context.Context, tx pgx.Tx, moves []move) ([]verdict, error) {
	var ids, lanes []string
	var last pglogrepl.LSN
	for i := range moves {
		m := &moves[i]
		ids = append(ids, m.row.ID.String())
		if m.repeats() {
			ids = append(ids, m.row.ReplayOf.String())
		}
		last = max(last, m.commit)
		if m.ask && !m.row.KeyID.IsZero() {
			lanes = append(lanes, hex.EncodeToString(m.row.KeyID[:]))
		}
	}
	// The lock on the row of the slot keeps a later reader from beginning before this is committed.
	tag, err := tx.Exec(ctx, s.db.text(`UPDATE {log} SET spilled = greatest(spilled, $3::text::pg_lsn)
WHERE `+leads(s.timeline)), s.slot, s.epoch, last.String())
	if err != nil {
		return nil, err
	}
	if tag.RowsAffected() == 0 {
		return nil, errNotLeading
	}
	rows, err := s.rowsOf(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	open, err := s.firstOpen(ctx, tx, lanes)
	if err != nil {
		return nil, err
	}
	verdicts := make([]verdict, len(moves))
	var update, insert []*move
	for i := range moves {
		m := &moves[i]
		if is, there := rows[m.row.ReplayOf]; m.repeats() && there && isOpen(is) {
			verdicts[i] = ended
			continue
		}
		var status *int
		if is, there := rows[m.row.ID]; there {
			status = &is
		}
		var first *int64
		if seq, is := open[m.row.KeyID]; is {
			first = &seq
		}
		v, write := judge(m, status, first)
		verdicts[i] = v
		switch {
		case !write:
			continue
		case status != nil:
			update = append(update, m)
		default:
			insert = append(insert, m)
		}
		if !m.row.KeyID.IsZero() && !m.leaves() && (first == nil || *first > m.row.KeySeq) {
			open[m.row.KeyID] = m.row.KeySeq
		}
	}
	if err := s.update(ctx, tx, update); err != nil {
		return nil, err
	}
	for _, m := range insert {
		if err := s.insert(ctx, tx, m); err != nil {
			return nil, err
		}
	}
	return verdicts, nil
}

// rowsOf locks the rows of events, and returns their statuses.
func (s *sqlSpiller) rowsOf(ctx context.Context, tx pgx.Tx, ids []string) (map[core.RowID]int, error) {
	rows, err := tx.Query(ctx, s.db.text("SELECT id, status FROM {event} WHERE id = ANY ($1::text[]::uuid[]) "+
		"ORDER BY id FOR UPDATE"), ids)
	if err != nil {
		return nil, err
	}
	found := map[core.RowID]int{}
	var id [16]byte
	var status int
	_, err = pgx.ForEachRow(rows, []any{&id, &status}, func() error {
		found[core.RowID(id)] = status
		return nil
	})
	return found, err
}

// firstOpen returns the number of the first row of each key that blocks the key.
func (s *sqlSpiller) firstOpen(ctx context.Context, tx pgx.Tx, lanes []string) (map[core.KeyID]int64, error) {
	open := map[core.KeyID]int64{}
	if len(lanes) == 0 {
		return open, nil
	}
	rows, err := tx.Query(ctx, s.db.text(`SELECT lane, min(key_seq) FROM {event}
WHERE lane = ANY (ARRAY(SELECT decode(l, 'hex') FROM unnest($1::text[]) l)) AND status IN (0,2,3)
  AND lane IS NOT NULL AND (status <> 3 OR NOT $2::boolean)
GROUP BY lane`), lanes, s.skipDead)
	if err != nil {
		return nil, err
	}
	var lane []byte
	var seq int64
	_, err = pgx.ForEachRow(rows, []any{&lane, &seq}, func() error {
		open[core.KeyID(lane)] = seq
		return nil
	})
	return open, err
}

// update opens rows that are in the table.
func (s *sqlSpiller) update(ctx context.Context, tx pgx.Tx, moves []*move) error {
	if len(moves) == 0 {
		return nil
	}
	var (
		ids                          []string
		statuses, attempts           []int32
		delays                       []int64
		codes, messages, fingerprint []string
		leave                        []bool
	)
	for _, m := range moves {
		f := &m.failure
		ids = append(ids, m.row.ID.String())
		statuses = append(statuses, int32(m.status()))
		attempts = append(attempts, int32(m.attempts()))
		delays = append(delays, f.Delay.Microseconds())
		codes, messages, fingerprint = append(codes, storable(f.Code)), append(messages, storable(f.Message)),
			append(fingerprint, storable(f.Group))
		leave = append(leave, m.leaves())
	}
	tag, err := tx.Exec(ctx, s.db.text(`UPDATE {event} e SET status = v.status, attempts = v.attempts, lost_claims = 0,
  claimed_by = NULL, claim_no = 0, lease_until = NULL, done_at = NULL, receipt = NULL,
  available_at = clock_timestamp() + v.delay * interval '1 microsecond',
  lane = CASE WHEN v.leave THEN NULL ELSE e.lane END,
  last_error_code = NULLIF(v.code, ''), last_error = NULLIF(v.message, ''), error_group = NULLIF(v.grp, '')
FROM unnest($1::text[]::uuid[], $2::integer[], $3::integer[], $4::bigint[], $5::text[], $6::text[], $7::text[],
  $8::boolean[]) v(id, status, attempts, delay, code, message, grp, leave)
WHERE e.id = v.id AND e.status = 1`), ids, statuses, attempts, delays, codes,
		messages, fingerprint, leave)
	if err == nil && tag.RowsAffected() != int64(len(moves)) {
		err = fmt.Errorf("walrelay: %d of %d rows became open", tag.RowsAffected(), len(moves))
	}
	return err
}

// insert writes a row again that was deleted, by the retention for example.
func (s *sqlSpiller) insert(ctx context.Context, tx pgx.Tx, m *move) error {
	e, f := &m.row.Event, &m.failure
	var lane []byte
	if !m.row.KeyID.IsZero() && !m.leaves() {
		lane = m.row.KeyID[:]
	}
	var seq any
	if !m.row.KeyID.IsZero() {
		seq = m.row.KeySeq
	}
	var headers any
	if len(e.Headers) > 0 {
		text, err := json.Marshal(e.Headers)
		if err != nil {
			return err
		}
		headers = string(text)
	}
	var replayOf any
	if !m.row.ReplayOf.IsZero() {
		replayOf = m.row.ReplayOf.String()
	}
	created := time.Now().Add(-m.row.Age)
	_, err := tx.Exec(ctx, s.db.text(`INSERT INTO {event} (id, event_id, event_type, schema_version, topic,
  aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, key_seq, payload, content_type,
  headers, status, attempts, available_at, occurred_at, created_at, last_error_code, last_error, error_group,
  replay_of)
VALUES ($1::text::uuid, $2::text, $3::text, $4::integer, $5::text, NULLIF($6::text, ''), NULLIF($7::text, ''),
  $8::bigint, NULLIF($9::text, ''), NULLIF($10::text, ''), $11::bytea, $12::bigint, $13::bytea,
  NULLIF($14::text, ''), $15::text::jsonb, $16::integer, $17::integer,
  clock_timestamp() + $18::bigint * interval '1 microsecond', $19::timestamptz, $20::timestamptz,
  NULLIF($21::text, ''), NULLIF($22::text, ''), NULLIF($23::text, ''), $24::text::uuid)`),
		m.row.ID.String(), e.ID, e.Type, e.SchemaVersion, e.Topic, e.AggregateType, e.AggregateID,
		e.AggregateVersion, e.TenantID, e.Key, lane, seq, e.Payload, e.ContentType, headers, m.status(), m.attempts(),
		f.Delay.Microseconds(), e.OccurredAt,
		created, storable(f.Code), storable(f.Message), storable(f.Group), replayOf)
	return err
}

// storable leaves out the one character that PostgreSQL cannot store.
func storable(s string) string { return strings.ReplaceAll(s, "\x00", "") }
