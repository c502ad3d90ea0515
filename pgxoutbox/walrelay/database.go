package walrelay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
)

// statementTimeout bounds each statement. A dead connection must not hold the relay without end.
const statementTimeout = 15 * time.Second

// database has the tables.
type database struct {
	pool           *pgxpool.Pool
	schema, prefix string
	words          *strings.Replacer
}

func newDatabase(pool *pgxpool.Pool, schema, prefix string) *database {
	d := &database{pool: pool, schema: schema, prefix: prefix}
	d.words = strings.NewReplacer("{event}", d.table("event"), "{log}", d.table("log"))
	return d
}

// table quotes the name of a table.
func (d *database) table(name string) string {
	id := pgx.Identifier{d.prefix + name}
	if d.schema != "" {
		id = pgx.Identifier{d.schema, d.prefix + name}
	}
	return id.Sanitize()
}

// text fills in the names of the tables.
func (d *database) text(query string) string { return d.words.Replace(query) }

// row runs a query that returns one row, and reports whether there was one.
func (d *database) row(ctx context.Context, query string, args []any, to ...any) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = d.pool.QueryRow(ctx, d.text(query), args...).Scan(to...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (d *database) exec(ctx context.Context, query string, args ...any) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	tag, err := d.pool.Exec(ctx, d.text(query), args...)
	return tag.RowsAffected(), err
}

// bookmark is the row of a slot in the table outbox_log: the relay's state across restarts.
type bookmark struct {
	// epoch grows with each process that takes over the slot. A late write of an earlier process
	// is refused.
	epoch int64
	// confirmed is never less than the position that was confirmed to the server.
	confirmed pglogrepl.LSN
	// spilled: no event that committed later has got an open row by a reader of the slot.
	spilled pglogrepl.LSN
	// checkpoint is a transaction id: the events of every transaction before it are published, or
	// open in the table.
	checkpoint   uint64
	checkpointAt time.Time
	system       string // the identity of the server
	repairing    bool   // a repair has begun and not ended
}

const bookmarkColumns = "epoch, confirmed::text, spilled::text, checkpoint::text::numeric::bigint, checkpoint_at, " +
	"system_id, repairing"

func (b *bookmark) dest() []any {
	return []any{
		&b.epoch, (*lsnText)(&b.confirmed), (*lsnText)(&b.spilled), &b.checkpoint, &b.checkpointAt, &b.system,
		&b.repairing,
	}
}

// lsnText scans the text of an LSN, or NULL as zero.
type lsnText pglogrepl.LSN

// Scan implements sql.Scanner.
func (l *lsnText) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*l = 0
		return nil
	case string:
		lsn, err := pglogrepl.ParseLSN(v)
		*l = lsnText(lsn)
		return err
	}
	return fmt.Errorf("walrelay: cannot read an LSN from %T", src)
}

// bookmark returns the row of the slot, or nil.
func (d *database) bookmark(ctx context.Context, slot string) (*bookmark, error) {
	var b bookmark
	found, err := d.row(ctx, "SELECT "+bookmarkColumns+" FROM {log} WHERE slot = $1::text", []any{slot}, b.dest()...)
	if err != nil || !found {
		return nil, err
	}
	return &b, nil
}

// otherSlots names the slots that have read the table, except for one.
func (d *database) otherSlots(ctx context.Context, slot string) (names string, err error) {
	_, err = d.row(ctx, "SELECT COALESCE(string_agg(slot, ', ' ORDER BY slot), '') FROM {log} WHERE slot <> $1::text",
		[]any{slot}, &names)
	return names, err
}

// takeOver makes this process the reader of the slot.
func (d *database) takeOver(ctx context.Context, slot, node string) (*bookmark, error) {
	var b bookmark
	found, err := d.row(ctx, `UPDATE {log} SET epoch = epoch + 1, node = $2::text, since = clock_timestamp()
WHERE slot = $1::text RETURNING `+bookmarkColumns, []any{slot, node}, b.dest()...)
	if err == nil && !found {
		err = fmt.Errorf("%w: the row of slot %s in %s is gone", ErrNotSetUp, slot, d.table("log"))
	}
	return &b, err
}

// slotState is a row of pg_replication_slots.
type slotState struct {
	physical          bool
	plugin, database  string
	active            bool
	confirmed         pglogrepl.LSN
	wal               string // wal_status
	kept              bool   // it has a restart_lsn
	behind, keeps     int64  // bytes
	safe              int64
	hasSafe, failover bool
	lost              bool
	invalid           string // why the server has invalidated it, from PostgreSQL 17 on
}

// slot returns the state of the slot, or nil. It asks for columns of newer servers by their names
// in a record, which older servers leave out.
func (d *database) slot(ctx context.Context, name string) (*slotState, error) {
	var s slotState
	var safe *int64
	found, err := d.row(ctx, `SELECT slot_type = 'physical', COALESCE(plugin, ''), COALESCE(database, ''), active,
  confirmed_flush_lsn::text, COALESCE(wal_status, ''), restart_lsn IS NOT NULL,
  COALESCE(pg_wal_lsn_diff(now.lsn, confirmed_flush_lsn), 0)::bigint,
  COALESCE(pg_wal_lsn_diff(now.lsn, restart_lsn), 0)::bigint, safe_wal_size,
  COALESCE(to_jsonb(s) ->> 'invalidation_reason', ''), COALESCE((to_jsonb(s) ->> 'failover')::boolean, false)
FROM pg_catalog.pg_replication_slots s, (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn()
  ELSE pg_current_wal_lsn() END AS lsn) now WHERE slot_name = $1::text`, []any{name}, &s.physical, &s.plugin,
		&s.database, &s.active, (*lsnText)(&s.confirmed), &s.wal, &s.kept, &s.behind, &s.keeps, &safe, &s.invalid,
		&s.failover)
	if err != nil || !found {
		return nil, err
	}
	if safe != nil {
		s.safe, s.hasSafe = *safe, true
	}
	s.lost = s.wal == "lost" || s.invalid != "" || !s.kept
	return &s, nil
}

// openKeys returns the keys that have rows which block them. They may be many, so that the timeouts of
// the role do not hold.
func (d *database) openKeys(ctx context.Context, skipDead bool) (keys []core.KeyID, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, d.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := untimed(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, d.text(`SELECT DISTINCT lane FROM {event}
WHERE status IN (0,2,3) AND lane IS NOT NULL AND (status <> 3 OR NOT $1::boolean) AND octet_length(lane) = 16`),
			skipDead)
		keys, err = readKeys(rows, err)
		return err
	})
	return keys, err
}

// stillOpen returns the keys that have rows which block them.
func (d *database) stillOpen(ctx context.Context, keys []string, skipDead bool) ([]core.KeyID, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := d.pool.Query(ctx, d.text(`SELECT l FROM (SELECT decode(h, 'hex') AS l FROM unnest($1::text[]) h) k
WHERE EXISTS (SELECT FROM {event} WHERE lane = k.l AND status IN (0,2,3) AND lane IS NOT NULL
  AND (status <> 3 OR NOT $2::boolean))`), keys, skipDead)
	return readKeys(rows, err)
}

func readKeys(rows pgx.Rows, err error) (keys []core.KeyID, _ error) {
	if err != nil {
		return nil, err
	}
	var lane []byte
	_, err = pgx.ForEachRow(rows, []any{&lane}, func() error {
		keys = append(keys, core.KeyID(lane))
		return nil
	})
	return keys, err
}

// sqlState returns the code of an error of the server, or "".
func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// Codes of errors of the server.
const (
	stateInUse         = "55006" // object_in_use: another connection reads the slot
	stateNotUsable     = "55000" // object_not_in_prerequisite_state: wal_level, a slot that is invalidated
	stateNoObject      = "42704" // undefined_object
	stateDuplicate     = "23505" // unique_violation
	stateNoTable       = "42P01"
	stateNoRight       = "42501"
	stateNoLogin       = "28000"
	stateExists        = "42710"
	stateUnknownOption = "42601"
	stateShutdown      = "57P01" // admin_shutdown
	stateNotNow        = "57P03" // cannot_connect_now: the server shuts down or starts
)
