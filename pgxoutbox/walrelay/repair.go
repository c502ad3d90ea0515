package walrelay

import (
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
	if err := s.startReplication(ctx, s.conn, start); err != nil {
		return slotError(err)
	}
	b, err := s.db.takeOver(ctx, s.cfg.Slot, s.node)
	if err != nil {
		return err
	}
	// The position of the old slot means nothing now. The new slot is where it begins. Of another
	// server, neither its transactions nor its positions say anything here, also if this process
	// dies and the next one repairs again.
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
	if b.spilled > start {
		b.spilled = 0
	}
	s.window.beginRepair()
	return s.begin(ctx, b, start)
}

// repairQuery selects the events of readers of the log whose transaction is not before $1, in an
// order in which those of each key are in theirs.
//
// xmin is the lower half of a transaction id. A row that is older than 2^32 transactions may seem
// to be newer, and is then published again; the other way round does not happen. The id may be that
// of a savepoint, which no snapshot tells from one that has ended. It is greater than the id of its
// transaction. So the checkpoint is the oldest transaction that ran, and not a snapshot.
const repairQuery = `SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type, ''),
  COALESCE(e.aggregate_id, ''), e.aggregate_version, COALESCE(e.tenant_id, ''), COALESCE(e.partition_key, ''), e.lane,
  COALESCE(e.key_seq, 0), e.payload, COALESCE(e.content_type, ''), e.headers::text, e.occurred_at, e.created_at,
  COALESCE(e.replay_of, '00000000-0000-0000-0000-000000000000')
FROM {event} e, (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) now,
  LATERAL (SELECT (now.next - (((now.next & 4294967295) - e.xmin::text::bigint) & 4294967295)) AS xid) x
WHERE e.status = 1 AND e.claimed_by = '` + core.LogReader + `' AND x.xid >= $1::bigint
ORDER BY COALESCE(e.key_seq, (extract(epoch FROM e.created_at) * 1000000)::bigint), e.id`

// repairRows are the rows that a repair publishes from the table.
type repairRows struct {
	tx   pgx.Tx
	conn interface{ Release() }
	from uint64
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

// readRepair puts the rows of a repair into the window.
func (s *session) readRepair(ctx context.Context) error {
	defer s.repairTx.close()
	rows, err := s.repairTx.tx.Query(ctx, s.db.text(repairQuery), int64(s.repairTx.from))
	if err != nil {
		return err
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		row, err := scanRow(rows)
		if err != nil {
			return err
		}
		for !s.window.hasRoom(time.Now()) {
			if ctx.Err() != nil {
				return nil
			}
			sleep(ctx, tick/10)
		}
		s.window.addRepaired(row)
		n++
	}
	if err := rows.Err(); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "outbox: what committed before the slot was made is published from the table", "events", n)
	s.window.endRepair()
	s.repairTx.read.Store(true)
	return nil
}

func scanRow(rows pgx.Rows) (core.Claimed, error) {
	var r logRow
	var id, replayOf [16]byte
	var lane []byte
	var headers *string
	e := &r.row.Event
	if err := rows.Scan(&id, &e.ID, &e.Type, &e.SchemaVersion, &e.Topic, &e.AggregateType, &e.AggregateID,
		&e.AggregateVersion, &e.TenantID, &e.Key, &lane, &r.row.KeySeq, &e.Payload, &e.ContentType, &headers,
		&e.OccurredAt, &r.created, &replayOf); err != nil {
		return core.Claimed{}, fmt.Errorf("walrelay: read the table: %w", err)
	}
	r.row.ID, r.row.ReplayOf = core.RowID(id), core.RowID(replayOf)
	e.OccurredAt = e.OccurredAt.UTC()
	if lane != nil {
		r.readLane(lane)
	}
	if headers != nil {
		r.setHeaders([]byte(*headers))
	}
	return r.event(time.Now()), nil
}

func hexKeys(keys []core.KeyID) []string {
	texts := make([]string, len(keys))
	for i := range keys {
		texts[i] = hex.EncodeToString(keys[i][:])
	}
	return texts
}
