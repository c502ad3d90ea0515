package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// sqliteFile is a database in a file of its own, whose every commit is synced.
type sqliteFile struct {
	dir, dsn string
	db       *sql.DB
}

func openSQLite() (*sqliteFile, error) {
	dir, err := os.MkdirTemp("", "outbox_bench")
	if err != nil {
		return nil, err
	}
	f := &sqliteFile{dir: dir, dsn: "file:" + filepath.Join(dir, "outbox.db") +
		"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"}
	if f.db, err = sql.Open("sqlite", f.dsn); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	f.db.SetMaxIdleConns(poolSize)
	return f, nil
}

func (f *sqliteFile) close() error { return errors.Join(f.db.Close(), os.RemoveAll(f.dir)) }

// sqliteLoop is the loop that a good engineer would write for the outbox's table on SQLite. It has
// one goroutine, so it never waits for another writer.
type sqliteLoop struct {
	db      *sql.DB
	table   string
	ordered bool
}

func (h *sqliteLoop) drain(ctx context.Context, l *ledger, limit time.Duration) (int, time.Duration, error) {
	return drainInTurn(ctx, l, limit, h.claim, h.mark)
}

// claim leases a batch in one statement.
func (h *sqliteLoop) claim(ctx context.Context, rows []handRow) ([]handRow, error) {
	where, order := "status IN (0, 2) AND lane IS NULL AND topic = '"+benchTopic+"'", "available_at, id"
	if h.ordered { // the condition of the partial index, word for word
		where, order = "status IN (0, 2, 3) AND lane IS NOT NULL AND status <> 3", "lane, key_seq"
	}
	now := time.Now().UnixMicro()
	res, err := h.db.QueryContext(ctx, fmt.Sprintf(`
UPDATE %[1]s SET claim_no = claim_no + 1, claimed_by = 'hand', lease_until = ? WHERE id IN (
  SELECT id FROM %[1]s WHERE %[2]s AND available_at <= ? AND (lease_until IS NULL OR lease_until <= ?)
  ORDER BY %[3]s LIMIT %[4]d)
RETURNING id, event_id, event_type, topic, partition_key, payload, headers, attempts, lane, key_seq`,
		h.table, where, order, handBatch), now+(30*time.Second).Microseconds(), now, now)
	if err != nil {
		return nil, err
	}
	defer res.Close()
	rows = rows[:0]
	for res.Next() {
		var r handRow
		var id []byte
		if err := res.Scan(&id, &r.eventID, &r.typ, &r.topic, &r.key, &r.payload, &r.headers, &r.attempts, &r.lane,
			&r.keySeq); err != nil {
			return nil, err
		}
		copy(r.id[:], id)
		rows = append(rows, r)
	}
	if h.ordered {
		sortRows(rows)
	}
	return rows, res.Err()
}

func (h *sqliteLoop) mark(ctx context.Context, rows []handRow) error {
	args := []any{time.Now().UnixMicro()}
	for i := range rows {
		args = append(args, rows[i].id[:])
	}
	marks := strings.TrimSuffix(strings.Repeat("?, ", len(rows)), ", ")
	res, err := h.db.ExecContext(ctx, "UPDATE "+h.table+" SET status = 1, done_at = ?, lease_until = NULL "+
		"WHERE id IN ("+marks+") AND status IN (0, 2)", args...)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n != int64(len(rows)) {
		return errors.Join(err, fmt.Errorf("marked %d of %d rows", n, len(rows)))
	}
	return nil
}
