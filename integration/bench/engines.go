package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// engineEvents are the events of a drain on MariaDB and SQLite, at most.
const engineEvents = 10_000

var engineColumns = []Column{
	{"events/s", Count},
	{"÷ hand-written", Ratio},
	{"finished", Percent},
}

// otherDB is a database other than PostgreSQL, with statements of a hand-written loop for it.
type otherDB struct {
	name    string
	version string // the version and the durability
	db      *sql.DB
	dialect core.Dialect
	empty   string // statement that empties a table
	// claim takes a batch and returns its rows.
	claim func(ctx context.Context, h *engineLoop) (*sql.Rows, func(err error) error, error)
	close func() error
}

func runEngines(ctx context.Context, e *env, s *Section) error {
	events := min(engineEvents, e.opts.Events)
	s.note("The drain of %s events of section drain, on MariaDB and on SQLite. The hand-written loop claims %d rows "+
		"with a lease, publishes them, and marks them, through database/sql and the same driver as the relay. On "+
		"MariaDB it claims with SELECT ... FOR UPDATE SKIP LOCKED and an UPDATE by primary key, on SQLite with "+
		"UPDATE ... RETURNING.",
		thousands(float64(events)), handBatch)
	opens := []func(ctx context.Context, e *env) (*otherDB, error){openSQLite}
	if os.Getenv("OUTBOX_TEST_MARIADB") == "" {
		s.note("MariaDB is left out, because OUTBOX_TEST_MARIADB names no server.")
	} else {
		opens = append(opens, openMariaDB)
	}
	for _, open := range opens {
		if err := e.measureEngine(ctx, s, open, events); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) measureEngine(ctx context.Context, s *Section,
	open func(ctx context.Context, e *env) (*otherDB, error), events int,
) (err error) {
	g, err := open(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	s.note("%s %s", g.name, g.version)
	for _, ordered := range []bool{false, true} {
		kind := "unordered"
		if ordered {
			kind = "ordered"
		}
		b, err := g.backlog(ctx, e, kind+"_", ordered, events)
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		loop := &engineLoop{otherDB: g, table: b.prefix + "event", ordered: ordered}
		t, err := e.measureRelays(ctx, s, fmt.Sprintf("%s, %s events", g.name, kind), []relay{
			{name: oursName, seed: b.seed, drain: b.drain, check: b.check, events: events, ordered: ordered},
			{name: handName, seed: b.seed, drain: loop.drain, check: b.check, events: events, ordered: ordered},
		}, engineColumns)
		if err != nil {
			return err
		}
		t.divide("÷ hand-written", "events/s", func(*Row) *Row { return t.find(handName) })
		t.summarize()
		s.atLeast(t.value(oursName, "÷ hand-written"), 0.85, "%s, %s: at least 0.85 × the hand-written loop",
			g.name, kind)
	}
	return nil
}

// openMariaDB opens a database of its own.
func openMariaDB(ctx context.Context, e *env) (*otherDB, error) {
	cfg, err := mysql.ParseDSN(os.Getenv("OUTBOX_TEST_MARIADB"))
	if err != nil {
		return nil, fmt.Errorf("OUTBOX_TEST_MARIADB: %w", err)
	}
	cfg.DBName = ""
	server, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		return nil, err
	}
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+e.name); err != nil {
		return nil, errors.Join(fmt.Errorf("MariaDB: %w (is the server up? `make services-up`)", err), server.Close())
	}
	cfg.DBName = e.name
	g := &otherDB{name: "MariaDB", dialect: core.MySQL, empty: "TRUNCATE", claim: claimMariaDB}
	g.close = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // also after an interrupt
		defer cancel()
		_, err := server.ExecContext(ctx, "DROP DATABASE "+e.name)
		return errors.Join(g.db.Close(), err, server.Close())
	}
	if g.db, err = openEngine("mysql", cfg.FormatDSN()); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	err = g.db.QueryRowContext(ctx, `SELECT CONCAT(VERSION(), ' (innodb_flush_log_at_trx_commit=',
  @@innodb_flush_log_at_trx_commit, ' sync_binlog=', @@sync_binlog, ' log_bin=', @@log_bin, ')')`).Scan(&g.version)
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// openSQLite opens a file whose every commit is synced.
func openSQLite(ctx context.Context, _ *env) (*otherDB, error) {
	dir, err := os.MkdirTemp("", "outbox_bench")
	if err != nil {
		return nil, err
	}
	g := &otherDB{name: "SQLite", dialect: core.SQLite, empty: "DELETE FROM", claim: claimSQLite}
	g.close = func() error { return errors.Join(g.db.Close(), os.RemoveAll(dir)) }
	dsn := "file:" + filepath.Join(dir, "outbox.db") +
		"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"
	if g.db, err = openEngine("sqlite", dsn); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := g.db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&g.version); err != nil {
		return nil, errors.Join(err, g.close())
	}
	g.version += " (journal_mode=WAL synchronous=FULL)"
	return g, nil
}

func openEngine(driver, dsn string) (*sql.DB, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	const connections = 10
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// engineBacklog is a backlog on another engine.
type engineBacklog struct {
	outboxBacklog

	engine *otherDB
}

// engineCopied has the columns that a backlog fills. The others keep their defaults.
const engineCopied = "id, event_id, event_type, topic, partition_key, lane, key_seq, payload, content_type, " +
	"available_at, occurred_at, created_at"

func (g *otherDB) backlog(ctx context.Context, e *env, prefix string, ordered bool, events int,
) (*engineBacklog, error) {
	e.progress.show("%s: preparing %s events", g.name, thousands(float64(events)))
	repo, err := sqloutbox.New(g.db, sqloutbox.Config{Dialect: g.dialect, Prefix: prefix})
	if err != nil {
		return nil, err
	}
	if err := repo.Migrate(ctx); err != nil {
		return nil, err
	}
	b := &engineBacklog{outboxBacklog{e: e, prefix: prefix, repo: repo, events: events}, g}
	if err := b.publish(ctx, g.db, g.dialect, ordered); err != nil {
		return nil, err
	}
	return b, g.exec(ctx,
		"CREATE TABLE "+prefix+"seed AS SELECT "+engineCopied+" FROM "+prefix+"event",
		"CREATE TABLE "+prefix+"seed_key AS SELECT * FROM "+prefix+"key")
}

func (b *engineBacklog) seed(ctx context.Context) error {
	event, key := b.prefix+"event", b.prefix+"key"
	statements := []string{
		b.engine.empty + " " + event, b.engine.empty + " " + key,
		"INSERT INTO " + event + " (" + engineCopied + ") SELECT " + engineCopied + " FROM " + b.prefix + "seed",
		"INSERT INTO " + key + " SELECT * FROM " + b.prefix + "seed_key",
	}
	if b.engine.dialect == core.SQLite {
		statements = append(statements, "ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)")
	} else {
		statements = append(statements, "ANALYZE TABLE "+event+", "+key)
	}
	return b.engine.exec(ctx, statements...)
}

func (b *engineBacklog) check(ctx context.Context, finished int) error {
	if finished < b.events {
		return nil
	}
	var open int
	err := b.engine.db.QueryRowContext(ctx, "SELECT count(*) FROM "+b.prefix+"event WHERE status <> 1").Scan(&open)
	if err == nil && open > 0 {
		err = fmt.Errorf("%d events are not DONE", open)
	}
	return err
}

func (g *otherDB) exec(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := g.db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// engineLoop is the loop that a good engineer would write for the outbox's table on this engine.
type engineLoop struct {
	*otherDB

	table   string
	ordered bool
}

const engineReturned = "id, event_id, event_type, topic, partition_key, payload, headers, attempts, lane, key_seq"

// claimMariaDB locks and leases a batch in one transaction. Its caller calls commit after it has
// read the rows.
func claimMariaDB(ctx context.Context, h *engineLoop) (*sql.Rows, func(err error) error, error) {
	tx, err := h.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, nil, err
	}
	where, order := "open_lane IS NULL AND key_seq IS NULL AND ready_topic = '"+benchTopic+"'", "available_at"
	if h.ordered {
		where, order = "open_lane IS NOT NULL AND status IN (0, 2)", "open_lane, key_seq"
	}
	ids, err := queryIDs(ctx, tx, fmt.Sprintf(`SELECT id FROM %s WHERE %s AND available_at <= UTC_TIMESTAMP(6)
  AND (lease_until IS NULL OR lease_until <= UTC_TIMESTAMP(6)) ORDER BY %s LIMIT %d FOR UPDATE SKIP LOCKED`, h.table,
		where, order, handBatch))
	if err == nil && len(ids) > 0 {
		_, err = tx.ExecContext(ctx, "UPDATE "+h.table+" SET claim_no = claim_no + 1, claimed_by = 'hand', "+
			"lease_until = UTC_TIMESTAMP(6) + INTERVAL 30 SECOND WHERE id IN ("+marks(len(ids))+")", ids...)
	}
	if err != nil || len(ids) == 0 {
		return nil, nil, errors.Join(err, tx.Rollback())
	}
	rows, err := tx.QueryContext(ctx, "SELECT "+engineReturned+" FROM "+h.table+" WHERE id IN ("+marks(len(ids))+")",
		ids...)
	if err != nil {
		return nil, nil, errors.Join(err, tx.Rollback())
	}
	return rows, func(err error) error {
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}, nil
}

func queryIDs(ctx context.Context, tx *sql.Tx, query string) (ids []any, err error) {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// claimSQLite leases a batch in one statement.
func claimSQLite(ctx context.Context, h *engineLoop) (*sql.Rows, func(err error) error, error) {
	where, order := "status IN (0, 2) AND lane IS NULL AND topic = '"+benchTopic+"'", "available_at, id"
	if h.ordered { // the condition of the partial index, word for word
		where, order = "status IN (0, 2, 3) AND lane IS NOT NULL AND status <> 3", "lane, key_seq"
	}
	now := time.Now().UnixMicro()
	rows, err := h.db.QueryContext(ctx, fmt.Sprintf(`
UPDATE %[1]s SET claim_no = claim_no + 1, claimed_by = 'hand', lease_until = ? WHERE id IN (
  SELECT id FROM %[1]s WHERE %[2]s AND available_at <= ? AND (lease_until IS NULL OR lease_until <= ?)
  ORDER BY %[3]s LIMIT %[4]d) RETURNING %[5]s`, h.table, where, order, handBatch, engineReturned),
		now+(30*time.Second).Microseconds(), now, now)
	return rows, func(err error) error { return err }, err
}

func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

// take claims a batch and reads it.
func (h *engineLoop) take(ctx context.Context) ([]handRow, error) {
	res, commit, err := h.claim(ctx, h)
	if err != nil || res == nil {
		return nil, err
	}
	defer res.Close()
	var rows []handRow
	for res.Next() {
		var r handRow
		var id []byte
		if err := res.Scan(&id, &r.eventID, &r.typ, &r.topic, &r.key, &r.payload, &r.headers, &r.attempts, &r.lane,
			&r.keySeq); err != nil {
			return nil, commit(err)
		}
		copy(r.id[:], id)
		rows = append(rows, r)
	}
	if err := errors.Join(res.Err(), res.Close()); err != nil {
		return nil, commit(err)
	}
	if h.ordered { // neither statement promises an order
		slices.SortFunc(rows, func(a, b handRow) int {
			return cmp.Or(bytes.Compare(a.lane, b.lane), cmp.Compare(*a.keySeq, *b.keySeq))
		})
	}
	return rows, commit(nil)
}

func (h *engineLoop) mark(ctx context.Context, rows []handRow) error {
	now, args := "UTC_TIMESTAMP(6)", make([]any, 0, len(rows)+1)
	if h.dialect == core.SQLite {
		now, args = "?", append(args, time.Now().UnixMicro())
	}
	for i := range rows {
		args = append(args, rows[i].id[:])
	}
	res, err := h.db.ExecContext(ctx, "UPDATE "+h.table+" SET status = 1, done_at = "+now+", lease_until = NULL "+
		"WHERE id IN ("+marks(len(rows))+") AND status IN (0, 2)", args...)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n != int64(len(rows)) {
		return errors.Join(err, fmt.Errorf("marked %d of %d rows", n, len(rows)))
	}
	return nil
}

// drain claims, publishes and marks in turn.
func (h *engineLoop) drain(ctx context.Context, l *ledger,
	limit time.Duration,
) (finished int, took time.Duration, err error) {
	start := time.Now()
	for time.Since(start) < limit {
		rows, err := h.take(ctx)
		if err != nil {
			return 0, 0, err
		}
		if len(rows) == 0 {
			break
		}
		for i := range rows {
			l.see(payloadNumber(rows[i].payload))
		}
		if err := h.mark(ctx, rows); err != nil {
			return 0, 0, err
		}
		finished += len(rows)
	}
	return finished, time.Since(start), nil
}
