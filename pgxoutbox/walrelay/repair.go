package walrelay

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
)

// repair makes the slot again, and prepares to publish from the table what committed since the last
// checkpoint. The snapshot in which that is read is the one at which the new slot begins: an event
// is in the snapshot, or comes from the slot.
func (s *session) repair(ctx context.Context) (err error) {
	if _, err := s.db.exec(ctx, "UPDATE {log} SET repairing = true WHERE slot = $1::text", s.cfg.Slot); err != nil {
		return err
	}
	// The role of the pool need not have the attribute REPLICATION.
	if err := pglogrepl.DropReplicationSlot(ctx, s.conn, `"`+s.cfg.Slot+`"`,
		pglogrepl.DropReplicationSlotOptions{}); err != nil && sqlState(err) != stateNoObject {
		return slotError(err)
	}
	start, snapshot, err := s.createSlot(ctx, s.conn, "export")
	if err != nil {
		return err
	}
	conn, err := s.cfg.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	s.repairTx = &repairRows{conn: conn}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	s.repairTx.tx = tx
	if _, err := tx.Exec(ctx, "SET TRANSACTION SNAPSHOT '"+strings.ReplaceAll(snapshot, "'", "''")+"'"); err != nil {
		return err
	}
	if err := untimed(ctx, tx); err != nil {
		return err
	}
	if err := s.startReplication(ctx, s.conn, start); err != nil {
		return slotError(err)
	}
	b, err := s.db.takeOver(ctx, s.cfg.Slot, s.node)
	if err != nil {
		return err
	}
	// The position of the old slot means nothing now. The new slot is where it begins. On another
	// server, its transactions and positions mean nothing either, also if this process dies and the
	// next one repairs again.
	if _, err := s.db.exec(ctx, `UPDATE {log} SET confirmed = $3::text::pg_lsn, system_id = $4::text,
  checkpoint = CASE WHEN system_id = $4::text THEN checkpoint ELSE '0' END,
  spilled = CASE WHEN spilled <= $3::text::pg_lsn THEN spilled ELSE '0/0' END
WHERE slot = $1::text AND epoch = $2::bigint`, s.cfg.Slot, b.epoch, start.String(), s.system); err != nil {
		return err
	}
	s.repairTx.from = b.checkpoint
	if b.system != s.system {
		s.repairTx.from = 0
	}
	if p := s.repaired.Load(); p != nil && p.epoch+1 == b.epoch && b.system == s.system {
		s.repairTx.done = *p // nobody else has had the slot since this process read the table before
	}
	if b.spilled > start {
		b.spilled = 0
	}
	s.window.beginRepair()
	return s.begin(ctx, b, start)
}

// repairOrder is an order in which the events of each key are in theirs.
const repairOrder = `COALESCE(e.key_seq, CASE WHEN isfinite(e.created_at)
  THEN (extract(epoch FROM e.created_at) * 1000000)::bigint END, 0)`

// repairQuery selects the events of readers of the log whose transaction is not before %d, except
// for events before a place: see repairPlace.
//
// xmin is the lower half of a transaction id. A row that is older than 2^32 transactions may seem
// to be newer, and is then published again; the other way round does not happen. The id may be a
// savepoint's, which a snapshot does not distinguish from an ended one. It is greater than the id
// of its transaction. So the checkpoint is the oldest transaction that ran, and not a snapshot.
const repairQuery = `SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type, ''),
  COALESCE(e.aggregate_id, ''), e.aggregate_version, COALESCE(e.tenant_id, ''), COALESCE(e.partition_key, ''), e.lane,
  COALESCE(e.key_seq, 0), e.payload, COALESCE(e.content_type, ''), e.headers::text,
  CASE WHEN isfinite(e.occurred_at) THEN e.occurred_at END,
  CASE WHEN isfinite(e.created_at) THEN e.created_at END,
  COALESCE(e.replay_of, '00000000-0000-0000-0000-000000000000'), ` + repairOrder + `
FROM {event} e, (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) now,
  LATERAL (SELECT (now.next - (((now.next & 4294967295) - e.xmin::text::bigint) & 4294967295)) AS xid) x
WHERE e.status = 1 AND e.claimed_by = '` + core.LogReader + `' AND x.xid >= %d
  AND NOT (x.xid < %d AND (` + repairOrder + `, e.id) <= (%d, '%s'::uuid))
ORDER BY ` + repairOrder + `, e.id`

// repairPlace is how far a repair has come. If it ends in an error, the next one goes on there: the
// rows up to the place are published whose transactions had ended when the first one began.
type repairPlace struct {
	epoch int64  // of the session
	ended uint64 // every transaction before it had ended when the table was read from its beginning
	order int64
	id    core.RowID
}

// repairRows are the rows that a repair publishes from the table.
type repairRows struct {
	tx   pgx.Tx
	conn interface{ Release() }
	from uint64
	done repairPlace // what an earlier repair has published
	read atomic.Bool // all rows were read
}

func (r *repairRows) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if r.tx != nil {
		_ = r.tx.Rollback(ctx)
		r.tx = nil
	}
	if r.conn != nil {
		r.conn.Release()
		r.conn = nil
	}
}

// repairPiece is how many rows are read at once.
const repairPiece = 1000

// readRepair puts the rows of a repair into the window.
func (s *session) readRepair(ctx context.Context) error {
	r := s.repairTx
	defer r.close()
	place := r.done
	place.epoch = s.epoch
	if place.ended == 0 {
		if err := r.tx.QueryRow(ctx, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint").
			Scan(&place.ended); err != nil {
			return err
		}
	}
	if _, err := r.tx.Exec(ctx, "DECLARE repair NO SCROLL CURSOR FOR "+fmt.Sprintf(s.db.text(repairQuery), r.from,
		r.done.ended, r.done.order, r.done.id)); err != nil {
		return err
	}
	n := 0
	for {
		rows, err := s.readPiece(ctx, &place)
		if err != nil || rows == nil {
			return err
		}
		if n += *rows; *rows < repairPiece {
			break
		}
	}
	s.log.InfoContext(ctx, "outbox: what committed before the slot was made is published from the table", "events", n)
	s.window.endRepair()
	r.read.Store(true)
	return nil
}

// readPiece puts the next rows into the window, and notes the place behind them. The result is nil if
// ctx has ended.
func (s *session) readPiece(ctx context.Context, place *repairPlace) (n *int, err error) {
	rows, err := s.repairTx.tx.Query(ctx, fmt.Sprintf("FETCH %d FROM repair", repairPiece))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	read := 0
	for rows.Next() {
		row, order, err := scanRow(rows)
		if err != nil {
			return nil, err
		}
		for !s.window.hasRoom(time.Now()) {
			if ctx.Err() != nil {
				return nil, nil
			}
			sleep(ctx, tick/10)
		}
		s.window.addRepaired(row)
		// Events that an earlier repair has published up to its place stay published.
		if p := (repairPlace{place.epoch, place.ended, order, row.ID}); p.after(s.repairTx.done) {
			*place = p
		}
		read++
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if at := *place; read > 0 {
		s.window.repairedTo(func() { s.repaired.Store(&at) })
	}
	return &read, nil
}

// after reports whether a place is behind another one.
func (p repairPlace) after(o repairPlace) bool {
	return p.order > o.order || p.order == o.order && bytes.Compare(p.id[:], o.id[:]) > 0
}

// untimed takes the timeouts of the role away from a transaction whose duration has no bound.
func untimed(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(noTimeouts, true))
	return err
}

// noTimeouts ends the timeouts for a transaction (true) or a connection (false).
const noTimeouts = `SELECT set_config(name, '0', %t) FROM pg_catalog.pg_settings WHERE name IN
  ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')`

func scanRow(rows pgx.Rows) (row core.Claimed, order int64, err error) {
	var r logRow
	var id, replayOf [16]byte
	var lane []byte
	var headers *string
	var occurred, created *time.Time // nil: infinite
	e := &r.row.Event
	if err := rows.Scan(&id, &e.ID, &e.Type, &e.SchemaVersion, &e.Topic, &e.AggregateType, &e.AggregateID,
		&e.AggregateVersion, &e.TenantID, &e.Key, &lane, &r.row.KeySeq, &e.Payload, &e.ContentType, &headers,
		&occurred, &created, &replayOf, &order); err != nil {
		return core.Claimed{}, 0, fmt.Errorf("walrelay: read the table: %w", err)
	}
	r.row.ID, r.row.ReplayOf = core.RowID(id), core.RowID(replayOf)
	if occurred == nil || created == nil {
		r.row.Err = errInfinite
	} else {
		e.OccurredAt, r.created = occurred.UTC(), *created
	}
	if lane != nil {
		r.readLane(lane)
	}
	if headers != nil {
		r.setHeaders([]byte(*headers))
	}
	return r.event(time.Now()), order, nil
}

func hexKeys(keys []core.KeyID) []string {
	texts := make([]string, len(keys))
	for i := range keys {
		texts[i] = hex.EncodeToString(keys[i][:])
	}
	return texts
}
