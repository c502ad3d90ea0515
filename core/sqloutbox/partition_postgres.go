package sqloutbox

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

const (
	postgresLayout = `SELECT c.relkind::text, COALESCE(pg_get_partkeydef(c.oid), ''), COALESCE(t.partdefid, 0) <> 0
FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_partitioned_table t ON t.partrelid = c.oid
WHERE c.oid = to_regclass('{event}')`

	// postgresPartitions lists the partitions, and the tables that were detached. $1 is how the
	// names of these begin.
	postgresPartitions = `SELECT c.oid::bigint, quote_ident(s.nspname) || '.',
		quote_ident(s.nspname) || '.' || quote_ident(c.relname),
  (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_attribute b ON b.attrelid = c.oid AND b.attname = a.attname
    WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''),
  c.relnamespace = t.relnamespace, COALESCE(pg_get_expr(c.relpartbound, c.oid), '')
FROM pg_catalog.pg_class t, pg_catalog.pg_class c JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
WHERE t.oid = to_regclass('{event}') AND t.relkind = 'p' AND (
  c.oid IN (SELECT i.inhrelid FROM pg_catalog.pg_inherits i WHERE i.inhparent = t.oid) OR
  c.relnamespace = t.relnamespace AND c.relkind = 'r' AND NOT c.relispartition AND
  starts_with(c.relname::text, $1::text))`

	// postgresBlocked asks the indexes of open and dead rows.
	postgresBlocked = `SELECT EXISTS (SELECT FROM {event} e WHERE e.status IN (0,2) AND e.lane IS NULL)
  OR EXISTS (SELECT FROM {event} e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL)
  OR EXISTS (SELECT FROM {event} e WHERE e.status = 3)`

	// postgresFilled is postgresBlocked where only an empty partition may go.
	postgresFilled = `SELECT EXISTS (SELECT FROM {event} e)`

	// postgresPartitionRead reads a page. It returns whether a row must stay whatever its age, and
	// how long ago the youngest one ended, in microseconds.
	postgresPartitionRead = `WITH p AS MATERIALIZED (
  SELECT e.id, e.status, e.done_at FROM {event} e WHERE e.id > $1::uuid ORDER BY e.id LIMIT $2::bigint
)
SELECT (SELECT count(*) FROM p), (SELECT id FROM p ORDER BY id DESC LIMIT 1),
  EXISTS (SELECT FROM p WHERE status NOT IN (1,4) OR done_at IS NULL),
  (SELECT (extract(epoch from statement_timestamp() - max(done_at))*1000000)::bigint FROM p)`

	// postgresRescue reads a page of a detached table and moves the rows that must stay. If the
	// table of events has such an id again, that event is the newer copy, and stays alone.
	postgresRescue = `WITH p AS MATERIALIZED (
  SELECT e.id, ` + postgresOld + ` AS old FROM {table} e WHERE e.id > $3::uuid ORDER BY e.id LIMIT $4::bigint
), m AS (DELETE FROM {table} e WHERE e.id = ANY (ARRAY(SELECT id FROM p WHERE old IS NOT TRUE)) RETURNING e.*
), i AS (INSERT INTO {event} ({columns}) SELECT {columns} FROM m ON CONFLICT (id) DO NOTHING)
SELECT (SELECT count(*) FROM p), (SELECT id FROM p ORDER BY id DESC LIMIT 1)`

	postgresLastIn = `SELECT e.id FROM {event} e WHERE e.id >= $1::uuid AND e.id < $2::uuid ORDER BY e.id DESC LIMIT 1`

	// postgresChange begins a transaction that changes partitions: nobody waits for it for long,
	// and only one process makes changes.
	postgresChange = `SELECT set_config('lock_timeout', '100ms', true), set_config('statement_timeout', '2s', true),
  pg_try_advisory_xact_lock($1::bigint)`

	postgresLockTable = `LOCK TABLE ONLY {event} IN ACCESS EXCLUSIVE MODE`
	postgresAttached  = `SELECT 1 FROM pg_catalog.pg_inherits WHERE inhrelid = $1::bigint::oid AND
  inhparent = to_regclass('{event}')`
	postgresDetached = `SELECT 1 FROM pg_catalog.pg_class WHERE oid = $1::bigint::oid AND NOT relispartition`
)

// partitionStatements are the statements that do not name a partition.
type partitionStatements struct {
	storage                           string // parameters of a partition
	list, rescue, lockTable, attached string
	lock                              int64 // number of the advisory lock
}

// detachedName begins the names of tables that were detached. The oid follows.
const detachedName = "event_drop_"

func newPartitionStatements(n names, storage string) partitionStatements {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "ormoutbox partitions %s", n.event)
	return partitionStatements{
		storage: storage, list: n.expand(postgresPartitions), rescue: n.expand(postgresRescue),
		lockTable: n.expand(postgresLockTable), attached: n.expand(postgresAttached),
		lock: int64(h.Sum64()),
	}
}

// of expands a text with a partition in place of the table of events.
func (p *partitions) of(table, text string) string {
	n := p.names
	n.event = table
	return n.expand(text)
}

// list returns the partitions in the order of their ids, and detached ones.
func (p *partitions) list(ctx context.Context) ([]partition, error) {
	return sqlkit.Ask(ctx, p.single, "partitions", func(q sqlkit.Querier) ([]partition, error) {
		return p.listOn(ctx, q)
	})
}

func (p *partitions) listOn(ctx context.Context, q sqlkit.Querier) (all []partition, err error) {
	args := []any{p.names.prefix + detachedName}
	all, err = sqlkit.Rows(ctx, q, p.sql.list, args, func(rows core.Rows) (part partition, err error) {
		var bound string
		if err = rows.Scan(&part.oid, &part.schema, &part.table, &part.columns, &part.ours, &bound); err == nil {
			err = part.setBound(bound)
		}
		return part, err
	})
	sortPartitions(all)
	return all, err
}

// lastIn returns the last id of a part of the default partition.
func (p *partitions) lastIn(ctx context.Context, part partition, low, high core.RowID,
) (last core.RowID, found bool, err error) {
	err = p.scan(ctx, "partitions", func(q sqlkit.Querier) error {
		args := []any{low.String(), high.String()}
		found, err = sqlkit.FirstRow(ctx, q, p.of(part.table, postgresLastIn), args, (*outboxsql.ID)(&last))
		return err
	})
	return last, found, err
}

// blockedText is the question whether a partition has a row that keeps it from being dropped.
func (c cleaning) blockedText() string {
	if c.hook != nil {
		return postgresFilled
	}
	return postgresBlocked
}

func (p *partitions) blocked(ctx context.Context, part partition, c cleaning) (blocked bool, err error) {
	err = p.scan(ctx, "partitions", func(q sqlkit.Querier) error {
		_, err := sqlkit.FirstRow(ctx, q, p.of(part.table, c.blockedText()), nil, &blocked)
		return err
	})
	return blocked, err
}

// read reads the next page of a partition in use.
func (p *partitions) read(ctx context.Context, part partition, w *partitionWalk) (blocked bool, err error) {
	err = p.scan(ctx, "partitions", func(q sqlkit.Querier) error {
		var seen int
		var last outboxsql.ID
		var age *int64
		_, err := sqlkit.FirstRow(ctx, q, p.of(part.table, postgresPartitionRead),
			[]any{w.after.String(), int64(partitionPage)}, &seen, &last, &blocked, &age)
		if err != nil {
			return err
		}
		w.after, w.done = core.RowID(last), seen < partitionPage
		if age != nil {
			w.newest = laterOf(w.newest, time.Now().Add(-time.Duration(*age)*time.Microsecond))
		}
		return nil
	})
	return blocked, err
}

// rescue reads the next page of a detached table, and moves the rows that must stay.
func (p *partitions) rescue(ctx context.Context, part partition, keep keeps, w *partitionWalk) error {
	text := strings.NewReplacer("{table}", part.table, "{columns}", part.columns).Replace(p.sql.rescue)
	return p.scan(ctx, "drop partition "+part.table, func(q sqlkit.Querier) error {
		var seen int
		var last outboxsql.ID
		args := append(keep.args(), w.after.String(), int64(partitionPage))
		_, err := sqlkit.FirstRow(ctx, q, text, args, &seen, &last)
		if err == nil {
			w.after, w.done = core.RowID(last), seen < partitionPage
		}
		return err
	})
}

// change runs statements that change partitions, unless another process does so.
func (p *partitions) change(ctx context.Context, what string, fn func(q sqlkit.Querier) error) (ours bool, err error) {
	err = p.inTx(ctx, what, func(q sqlkit.Querier) error {
		var ignored string
		_, err := sqlkit.FirstRow(ctx, q, postgresChange, []any{p.sql.lock}, &ignored, &ignored, &ours)
		if err != nil || !ours {
			return err
		}
		if _, err := q.Exec(ctx, postgresPlanner); err != nil {
			return err
		}
		return notBusy(fn(q))
	})
	return ours, err
}

// errTableBusy: a change of partitions would have waited too long. It must not be repeated at once,
// because others wait behind each try.
var errTableBusy = fmt.Errorf("transactions that used the table did not end within 100ms, it is tried again later: %w",
	&core.LockedError{})

func notBusy(err error) error {
	if sqlerr.State(err) == "55P03" {
		return errTableBusy
	}
	return err
}

func run(ctx context.Context, q sqlkit.Querier, texts ...string) error {
	for _, text := range texts {
		if _, err := q.Exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// create makes a table like the others and attaches it, if no partition has its ids by now.
func (p *partitions) create(ctx context.Context, schema string, first, last time.Time) error {
	table := schema + p.names.name("event_p"+strings.TrimSuffix(first.UTC().Format(partitionLayout), "t000000"))
	_, err := p.change(ctx, "create partition "+table, func(q sqlkit.Querier) error {
		all, err := p.listOn(ctx, q)
		if err != nil {
			return err
		}
		if low, high := uncovered(all, first, last); !low.Equal(first) || !high.Equal(last) {
			return nil // another process was faster
		}
		return run(ctx, q,
			"CREATE TABLE "+table+" (LIKE "+p.names.event+" INCLUDING ALL) WITH ("+p.sql.storage+")",
			"ALTER TABLE "+p.names.event+" ATTACH PARTITION "+table+" FOR VALUES FROM ('"+idOf(first).String()+
				"') TO ('"+idOf(last).String()+"')")
	})
	return err
}

// detach takes a partition out of the table, if nothing in it is open or dead. It returns the name
// that the partition then has. The lock on the table comes first: a producer has it before that on
// a partition.
func (p *partitions) detach(ctx context.Context, part partition, c cleaning) (table string, err error) {
	name := detachedName + strconv.FormatInt(part.oid, 10)
	_, err = p.change(ctx, "detach partition "+part.table, func(q sqlkit.Querier) error {
		table = ""
		if err := run(ctx, q, p.sql.lockTable); err != nil {
			return err
		}
		var blocked bool
		var one int
		attached, err := sqlkit.FirstRow(ctx, q, p.sql.attached, []any{part.oid}, &one)
		if err != nil || !attached { // another process was faster
			return err
		}
		_, err = sqlkit.FirstRow(ctx, q, p.of(part.table, c.blockedText()), nil, &blocked)
		if err != nil || blocked {
			return err
		}
		table = part.schema + p.names.name(name)
		return run(ctx, q, "ALTER TABLE "+p.names.event+" DETACH PARTITION "+part.table,
			"ALTER TABLE "+part.table+" RENAME TO "+p.names.name(name))
	})
	return table, err
}

// drop drops a table that was detached and read through. It reports false if another process
// changes partitions.
func (p *partitions) drop(ctx context.Context, part partition) (ours bool, err error) {
	return p.change(ctx, "drop partition "+part.table, func(q sqlkit.Querier) error {
		var one int
		detached, err := sqlkit.FirstRow(ctx, q, postgresDetached, []any{part.oid}, &one)
		if err != nil || !detached { // another process was faster, or a person has attached it
			return err
		}
		if err := run(ctx, q, "LOCK TABLE "+part.table+" IN ACCESS EXCLUSIVE MODE"); err != nil {
			return err
		}
		detached, err = sqlkit.FirstRow(ctx, q, postgresDetached, []any{part.oid}, &one)
		if err != nil || !detached {
			return err
		}
		return run(ctx, q, "DROP TABLE "+part.table)
	})
}

// swept is one partition, for the cleanup.
type swept struct {
	postgresArchive
	postgresJanitor
}

func (p *partitions) sweptOf(table string) swept {
	of := func(text string) string { return p.of(table, text) }
	return swept{
		postgresArchive{p.pool, newPostgresArchiveStatements(of)},
		postgresJanitor{p.pool, newPostgresJanitorStatements(of)},
	}
}
