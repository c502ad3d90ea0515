package cli

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// place is where the tables of one kind are.
type place struct {
	Dialect core.Dialect
	Schema  string
	Prefix  string
}

// store is what a kind of tables can do with its database.
type store interface {
	Migrate(ctx context.Context) error
	Check(ctx context.Context) error
}

// kind is a group of tables of ormoutbox.
type kind struct {
	name       string
	things     string // the tables in words
	command    string // that looks at them
	table      string // the table that always exists, after the prefix
	column     string // of it, by which a table of that name is recognised
	prefix     string // of the tables, unless it is set
	versions   string // the table of versions, after the prefix
	migrations func(place) ([]core.Migration, error)
	store      func(*sql.DB, place) (store, error)
}

var kinds = []kind{
	{
		name: "outbox", things: "an outbox", command: "status", table: "event", column: "claim_no",
		prefix: sqloutbox.DefaultPrefix, versions: "migration",
		migrations: func(p place) ([]core.Migration, error) {
			return sqloutbox.Migrations(sqloutbox.Config{Dialect: p.Dialect, Schema: p.Schema, Prefix: p.Prefix})
		},
		store: func(db *sql.DB, p place) (store, error) {
			return sqloutbox.New(db, sqloutbox.Config{Dialect: p.Dialect, Schema: p.Schema, Prefix: p.Prefix})
		},
	},
	{
		name: "inbox", things: "an inbox", command: "inbox", table: "inbox_failure", column: "handler",
		versions: "inbox_migration",
		migrations: func(p place) ([]core.Migration, error) {
			return sqlinbox.Migrations(sqlinbox.Config{Dialect: p.Dialect, Schema: p.Schema, Prefix: p.Prefix})
		},
		store: func(db *sql.DB, p place) (store, error) {
			return sqlinbox.New(db, sqlinbox.Config{Dialect: p.Dialect, Schema: p.Schema, Prefix: p.Prefix})
		},
	},
	{
		name: "keys", things: "idempotency keys", command: "idempotency", table: "idempotency_key",
		column: "fingerprint", versions: "once_migration",
		migrations: func(p place) ([]core.Migration, error) { return sqlonce.Migrations(sqlonce.Config(p)) },
		store:      func(db *sql.DB, p place) (store, error) { return sqlonce.New(db, sqlonce.Config(p)) },
	},
	{
		name: "effects", things: "effects", command: "effects", table: "side_effect_command",
		column: "external_ref", versions: "command_migration",
		migrations: func(p place) ([]core.Migration, error) { return sqlcommand.Migrations(sqlcommand.Config(p)) },
		store:      func(db *sql.DB, p place) (store, error) { return sqlcommand.New(db, sqlcommand.Config(p)) },
	},
}

func converted[A, B any](all []A, convert func(A) B) []B {
	list := make([]B, len(all))
	for i, v := range all {
		list[i] = convert(v)
	}
	return list
}

// kindsOf returns the kinds that --tables names.
func (a *app) kindsOf(names []string) (chosen []kind, err error) {
	for _, k := range kinds {
		if slices.Contains(names, k.name) || slices.Contains(names, "all") {
			chosen = append(chosen, k)
		}
	}
	for _, name := range names {
		if name != "all" && !slices.ContainsFunc(kinds, func(k kind) bool { return k.name == name }) {
			return nil, usage("--tables %q: the tables are outbox, inbox, keys, effects, or all", name)
		}
	}
	switch {
	case len(chosen) == 0:
		return nil, usage("--tables is empty")
	case len(chosen) > 1 && a.prefix != "":
		return nil, usage("--prefix is for one kind of tables: name it with --tables")
	}
	return chosen, nil
}

// placeOf is where the tables of a kind are.
func (a *app) placeOf(k kind, d core.Dialect) place {
	p := place{Dialect: d, Schema: a.schema, Prefix: a.prefix}
	p.Prefix = cmp.Or(p.Prefix, k.prefix)
	return p
}

// applied is a row of a table of versions.
type applied struct {
	version int
	at      time.Time
}

// appliedOf reads the table of versions. The list is nil if there is no such table: other tools
// made the tables, or nobody did.
func (db *database) appliedOf(ctx context.Context, k kind, p place) (list []applied, err error) {
	name := p.Prefix + k.versions
	there, err := db.hasTable(ctx, p.Schema, name)
	if err != nil || !there {
		return nil, err
	}
	// applied_at is a text in SQLite, and the time of the server in MySQL.
	at := map[core.Dialect]string{
		core.Postgres: "extract(epoch from applied_at AT TIME ZONE current_setting('TimeZone'))::bigint",
		core.MySQL:    "UNIX_TIMESTAMP(applied_at)",
		core.SQLite:   "CAST(strftime('%s', applied_at) AS INTEGER)",
	}[db.dialect]
	list = []applied{}
	query := "SELECT version, " + at + " FROM " + db.quote(p.Schema, name) + " ORDER BY version"
	err = db.each(ctx, query, nil, func(rows *sql.Rows) error {
		var v applied
		var seconds int64
		if err := rows.Scan(&v.version, &seconds); err != nil {
			return err
		}
		v.at = time.Unix(seconds, 0).UTC()
		list = append(list, v)
		return nil
	})
	return list, err
}

// hasTable reports whether a table is there. It fails if the role may not know that.
func (db *database) hasTable(ctx context.Context, schema, name string) (bool, error) {
	var n int
	var err error
	switch db.dialect {
	case core.Postgres:
		err = db.QueryRowContext(ctx, "SELECT count(*) FROM (SELECT to_regclass($1::text) AS c) t WHERE c IS NOT NULL",
			db.quote(schema, name)).Scan(&n)
	case core.MySQL: // information_schema does not have the tables that the role may not read
		err = db.QueryRowContext(ctx, "SELECT 1 FROM "+db.quote(schema, name)+" LIMIT 0").Scan(&n)
		if errors.Is(err, sql.ErrNoRows) {
			return true, nil
		}
		if e, ok := errors.AsType[*mysql.MySQLError](err); ok && (e.Number == 1146 || e.Number == 1049) {
			return false, nil
		}
	default:
		err = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?",
			name).Scan(&n)
	}
	return n > 0, err
}

// statements splits a migration: each statement ends with a semicolon at the end of a line.
func statements(text string) (all []string) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || strings.HasPrefix(trimmed, "--") {
			continue
		}
		if end, ok := strings.CutSuffix(trimmed, ";"); ok {
			all = append(all, b.String()+end)
			b.Reset()
			continue
		}
		b.WriteString(line)
	}
	return all
}

// revert undoes one migration, and forgets it. On PostgreSQL and SQLite this is a transaction. On
// MySQL every change of the schema is one, and each may be repeated.
func (db *database) revert(ctx context.Context, k kind, p place, m migrationState) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	versions := db.quote(p.Schema, p.Prefix+k.versions)
	forget := fmt.Sprintf("DELETE FROM %s WHERE version = %d", versions, m.Version)
	run := append(statements(m.down), forget)
	switch db.dialect {
	case core.Postgres: // a migration that begins now waits for this one
		lock := "LOCK TABLE " + versions + " IN ACCESS EXCLUSIVE MODE"
		run = slices.Concat([]string{"BEGIN", lock}, run, []string{"COMMIT"})
	case core.SQLite:
		run = slices.Concat([]string{"BEGIN IMMEDIATE"}, run, []string{"COMMIT"})
	case core.MySQL:
	}
	for _, stmt := range run {
		if _, err := conn.ExecContext(ctx, stmt); err != nil {
			if db.dialect != core.MySQL {
				_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
			}
			return fmt.Errorf("migration %04d_%s: %w", m.Version, m.Name, err)
		}
	}
	return nil
}
