package sqlkit

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

type postgres struct{ readCommitted }

// maxIdent returns 63, because PostgreSQL cuts longer names without an error.
func (postgres) maxIdent() int { return 63 }

func (postgres) quote(ident string) string { return `"` + ident + `"` }

func (postgres) schemas() bool { return true }

func (postgres) rebind(query string) string {
	var b strings.Builder
	b.Grow(len(query) + 32)
	n := 0
	for {
		i := strings.IndexByte(query, '?')
		if i < 0 {
			b.WriteString(query)
			return b.String()
		}
		n++
		b.WriteString(query[:i])
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		query = query[i+1:]
	}
}

func (postgres) askVersion() string { return "SELECT version()" }

func (postgres) readOnly() string {
	return "SELECT CASE WHEN current_setting('transaction_read_only') = 'on' THEN 1 ELSE 0 END"
}

func (postgres) tableOptions() string { return "" }

func (postgres) catalog(p Plan, table string) catalog {
	return catalog{
		columns: `SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a
WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped`,
		indexes: `SELECT c.relname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass($1::text) AND i.indisvalid`,
		args: []any{Qualify(p.Dialect, p.Schema, table)},
	}
}

// migrate takes a lock that belongs to the transaction, because such a lock also works behind a
// pooler.
func (d postgres) migrate(ctx context.Context, db *sql.DB, p Plan) error {
	return InTx(ctx, db, p.Dialect, func(c Conn) error { return d.migrateIn(ctx, onQuerier{On{c}}, p) })
}

// migrateIn migrates in a transaction.
func (d postgres) migrateIn(ctx context.Context, s session, p Plan) error {
	if err := s.exec(ctx, migrateLock, p.Schema); err != nil {
		return err
	}
	if err := d.createSchema(ctx, s, p); err != nil {
		return err
	}
	return p.apply(ctx, s)
}

// migrateLock is one lock for each schema, by the name that the database has for it. Tables of
// several kinds and prefixes share the schema and its types.
const migrateLock = "SELECT pg_advisory_xact_lock(hashtextextended('ormoutbox migrate ' || " +
	"COALESCE(NULLIF($1::text, ''), current_schema(), ''), 0))"

func (postgres) createSchema(ctx context.Context, s session, p Plan) error {
	if p.Schema == "" {
		return nil
	}
	// CREATE SCHEMA IF NOT EXISTS needs the right to create a schema even if the schema exists.
	found, err := s.ints(ctx, "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", p.Schema)
	if err != nil || len(found) > 0 {
		return err
	}
	return s.exec(ctx, "CREATE SCHEMA "+Quote(p.Dialect, p.Schema))
}

func (postgres) migrateTx(ctx context.Context, t core.Transactor, p Plan) error {
	return t.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		if err := (onQuerier{tx}).exec(ctx, migrateLock, p.Schema); err != nil {
			return err
		}
		return p.apply(ctx, onQuerier{tx})
	})
}
