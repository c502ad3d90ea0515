package ent_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	atlasmigrate "ariga.io/atlas/sql/migrate"
	"entgo.io/ent"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	entmigrate "entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/entc/gen"
	"entgo.io/ent/entc/load"
	"entgo.io/ent/schema/field"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/entoutbox/entschema"
	"github.com/ormoutbox/ormoutbox/integration/internal/entplain"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// describe has queries for every property of the outbox tables that must be equal for each way of
// creating them.
var describe = map[core.Dialect][]string{
	core.Postgres: {
		`SELECT concat_ws(' ', 'column', table_name, column_name, ordinal_position, data_type, is_nullable,
			column_default, collation_name,
		 is_identity, identity_generation, generation_expression) FROM information_schema.columns
		 WHERE table_name LIKE 'outbox%'`,
		`SELECT 'index ' || indexdef FROM pg_indexes WHERE tablename LIKE 'outbox%'`,
		`SELECT concat_ws(' ', 'constraint', conrelid::regclass, conname, pg_get_constraintdef(oid)) FROM ` +
			`pg_constraint WHERE conrelid::regclass::text LIKE 'outbox%'`,
		`SELECT concat_ws(' ', 'storage', relname, array_to_string(reloptions, ',')) FROM pg_class WHERE relname ` +
			`LIKE 'outbox%' AND relkind = 'r'`,
	},
	core.MySQL: {
		`SELECT concat_ws(' ', 'column', table_name, column_name, ordinal_position, column_type, is_nullable,
			column_default, collation_name, extra,
		 generation_expression) FROM information_schema.columns WHERE table_schema = DATABASE()
		   AND table_name LIKE 'outbox%'`,
		`SELECT concat_ws(' ', 'index', table_name, index_name, non_unique, seq_in_index, column_name)
			FROM information_schema.statistics
		 WHERE table_schema = DATABASE() AND table_name LIKE 'outbox%'`,
		`SELECT concat_ws(' ', 'check', t.table_name, c.constraint_name, c.check_clause)
			FROM information_schema.check_constraints c
		 JOIN information_schema.table_constraints t ON t.constraint_schema = c.constraint_schema
		   AND t.constraint_name = c.constraint_name
		 WHERE c.constraint_schema = DATABASE() AND t.constraint_type = 'CHECK' AND t.table_name LIKE 'outbox%'`,
		`SELECT concat_ws(' ', 'table', table_name, engine, row_format, table_collation) FROM information_schema.tables
		 WHERE table_schema = DATABASE() AND table_name LIKE 'outbox%'`,
	},
	core.SQLite: {
		`SELECT concat_ws(' ', 'column', m.name, c.cid, c.name, lower(c.type), c."notnull", c.dflt_value, c.pk,
			c.hidden) FROM sqlite_master m, pragma_table_xinfo(m.name) c
		 WHERE m.type = 'table' AND m.name LIKE 'outbox%'`,
		`SELECT 'index ' || sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL
			AND tbl_name LIKE 'outbox%'`,
		`SELECT 'table ' || sql FROM sqlite_master WHERE type = 'table' AND name LIKE 'outbox%'`,
	},
}

func description(t *testing.T, pool *sql.DB, d core.Dialect) []string {
	t.Helper()
	var all []string
	for _, query := range describe[d] {
		rows, err := pool.QueryContext(t.Context(), query)
		fixture.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var line string
			fixture.NoError(t, rows.Scan(&line))
			if strings.Contains(line, "outbox_migration") {
				continue
			}
			if d == core.SQLite {
				all = append(all, sqliteLines(line)...)
			} else {
				all = append(all, line)
			}
		}
		fixture.NoError(t, rows.Err())
	}
	slices.Sort(all)
	return all
}

// sqliteLines returns the comparable parts of a statement, because spellings differ.
func sqliteLines(line string) []string {
	line = strings.NewReplacer("`", "", `"`, "", "IF NOT EXISTS ", "").Replace(line)
	if !strings.HasPrefix(line, "table ") {
		return []string{strings.ReplaceAll(strings.Join(strings.Fields(line), " "), " (", "(")}
	}
	name := strings.Trim(strings.Fields(line)[3], "(")
	var lines []string
	for _, part := range strings.Split(line, "CHECK")[1:] {
		depth := 0
		for i, r := range part {
			switch r {
			case '(':
				depth++
			case ')':
				depth--
			}
			if depth == 0 && r == ')' {
				lines = append(lines, name+" CHECK"+part[:i+1])
				break
			}
		}
	}
	upper := strings.ToUpper(line)
	return append(lines, fmt.Sprint(name, " without rowid ", strings.Contains(upper, "WITHOUT ROWID"),
		" autoincrement ", strings.Contains(upper, "AUTOINCREMENT")))
}

// Ent's migration creates the tables that ours creates, down to the last index, and may be
// repeated.
func TestEntSchema(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		ours, theirs := db.Open(t), openEntTables(t, db.Another(t))
		repo, err := sqloutbox.New(ours, sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		fixture.NoError(t, repo.Migrate(t.Context()))
		want := description(t, ours, db.Dialect)
		for run := range 2 {
			theirs.migrate(t)
			got := description(t, theirs.pool, db.Dialect)
			for _, line := range want {
				if !slices.Contains(got, line) {
					t.Errorf("run %d: missing: %s", run, line)
				}
			}
			for _, line := range got {
				if !slices.Contains(want, line) {
					t.Errorf("run %d: only Ent's migration has: %s", run, line)
				}
			}
		}
		if len(want) < 40 {
			t.Errorf("only %d lines were compared", len(want))
		}
		check, err := sqloutbox.New(theirs.pool, sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		fixture.NoError(t, check.Check(t.Context()))
		fixture.NoError(t, check.Migrate(t.Context())) // both migrations may run on one database
	})
}

// Ent's migration brings the new columns to tables that an older version made.
func TestEntSchemaUpgrade(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		e := openEntTables(t, db)
		e.migrate(t)
		want := description(t, e.pool, db.Dialect)
		fixture.MustExec(t, e.pool, "ALTER TABLE outbox_event DROP COLUMN failures")
		repo, err := sqloutbox.New(e.pool, sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		fixture.WantDrift(t, repo.Check(t.Context()))
		e.migrate(t)
		fixture.NoError(t, repo.Check(t.Context()))
		// A new column is the last one, and PostgreSQL numbers it past the dropped ones.
		if got := description(t, e.pool, db.Dialect); db.Dialect == core.SQLite && !slices.Equal(got, want) {
			t.Errorf("the tables are %q, want %q", got, want)
		}
	})
}

// The column of the cause that Ent's migration adds to a table is a copy of the header, as it is in
// a new table.
func TestEntSchemaUpgradeCause(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		e := openEntTables(t, db)
		e.migrate(t)
		cause := func() (parts []string) {
			for _, line := range description(t, e.pool, db.Dialect) {
				if p := strings.Fields(line); p[0] == "column" && slices.Contains(p, "causation_id") {
					return slices.DeleteFunc(p, func(s string) bool { return s >= "10" && s <= "99" }) // its place
				}
			}
			return nil
		}
		want := cause()
		drop := "DROP INDEX outbox_event_cause"
		if db.Dialect == core.MySQL {
			drop += " ON outbox_event"
		}
		fixture.MustExec(t, e.pool, drop)
		fixture.MustExec(t, e.pool, "ALTER TABLE outbox_event DROP COLUMN causation_id")
		e.migrate(t)
		if got := cause(); len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("the column is %q, want %q", got, want)
		}
	})
}

// The types that an application declares in its schema folder.
type (
	OutboxEvent   struct{ ent.Schema }
	OutboxKey     struct{ ent.Schema }
	OutboxAudit   struct{ ent.Schema }
	OutboxRelay   struct{ ent.Schema }
	OutboxPlan    struct{ ent.Schema }
	OutboxPause   struct{ ent.Schema }
	OutboxGroup   struct{ ent.Schema }
	OutboxHistory struct{ ent.Schema }
)

func (OutboxEvent) Mixin() []ent.Mixin   { return []ent.Mixin{entschema.Event{}} }
func (OutboxKey) Mixin() []ent.Mixin     { return []ent.Mixin{entschema.Key{}} }
func (OutboxAudit) Mixin() []ent.Mixin   { return []ent.Mixin{entschema.Audit{}} }
func (OutboxRelay) Mixin() []ent.Mixin   { return []ent.Mixin{entschema.Relay{}} }
func (OutboxPlan) Mixin() []ent.Mixin    { return []ent.Mixin{entschema.Plan{}} }
func (OutboxPause) Mixin() []ent.Mixin   { return []ent.Mixin{entschema.Pause{}} }
func (OutboxGroup) Mixin() []ent.Mixin   { return []ent.Mixin{entschema.Group{}} }
func (OutboxHistory) Mixin() []ent.Mixin { return []ent.Mixin{entschema.History{}} }

// outboxTables returns the tables that Ent would write into the generated package migrate.
func outboxTables() []*entmigrate.Table {
	var schemas []*load.Schema
	for _, declared := range []ent.Interface{
		OutboxEvent{},
		OutboxKey{},
		OutboxAudit{},
		OutboxRelay{},
		OutboxPlan{},
		OutboxPause{},
		OutboxGroup{},
		OutboxHistory{},
	} {
		text, err := load.MarshalSchema(declared)
		must(err)
		s, err := load.UnmarshalSchema(text)
		must(err)
		schemas = append(schemas, s)
	}
	storage, err := gen.NewStorage("sql")
	must(err)
	graph, err := gen.NewGraph(&gen.Config{
		Package: "ent", Storage: storage, IDType: &field.TypeInfo{Type: field.TypeInt},
	}, schemas...)
	must(err)
	tables, err := graph.Tables()
	must(err)
	return tables
}

// entTables is a database whose outbox tables belong to Ent's migration.
type entTables struct {
	*entplain.Client
	pool   *sql.DB
	ob     *entoutbox.Outbox
	tables []*entmigrate.Table
}

func openEntTables(t *testing.T, db testdb.DB) *entTables {
	t.Helper()
	if db.Dialect == core.SQLite {
		db.DSN += "&_pragma=foreign_keys(1)"
	}
	e := &entTables{pool: db.Open(t), tables: outboxTables()}
	var err error
	e.ob, err = entoutbox.New(entsql.OpenDB(adapters.EntDialect(db), e.pool), entoutbox.Config{})
	fixture.NoError(t, err)
	e.Client = entplain.NewClient(entplain.Driver(e.ob.Driver()))
	return e
}

func (e *entTables) migrate(t *testing.T) {
	t.Helper()
	options := append(entschema.MigrateOptions(""), entmigrate.WithDropColumn(true), entmigrate.WithDropIndex(true))
	e.create(t, options...)
}

// create does what Schema.Create of a generated client does.
func (e *entTables) create(t *testing.T, options ...entmigrate.MigrateOption) {
	t.Helper()
	m, err := entmigrate.NewMigrate(e.ob.Driver(), options...)
	fixture.NoError(t, err)
	fixture.NoError(t, m.Create(t.Context(), e.tables...))
}

// The tables work, and the generated types read them.
func TestEntSchemaIsUsable(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		e := openEntTables(t, db)
		e.migrate(t)
		before := time.Now().Add(-time.Hour)
		fixture.NoError(t, entoutbox.WithTx(t.Context(), e.Tx, func(ctx context.Context, _ *entplain.Tx) error {
			return e.ob.Publish(ctx, nil, core.Event{
				Type: "order.placed", AggregateType: "order", AggregateID: "7",
				Headers: map[string]string{"trace": "x"}, Payload: []byte("{}"),
			})
		}))
		row := e.OutboxEvent.Query().OnlyX(t.Context())
		if row.EventType != "order.placed" || *row.AggregateID != "7" || row.Headers["trace"] != "x" ||
			string(row.Payload) != "{}" ||
			row.Status != 0 || row.OccurredAt.Before(before) || row.DoneAt != nil ||
			row.ID.String() == (entschema.ID{}).String() {
			t.Fatalf("read %v", row)
		}
		var keys int
		fixture.NoError(t, e.pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_key k "+
			"JOIN outbox_event e ON e.key_seq = k.last_seq AND e.id = k.last_id").Scan(&keys))
		fixture.Check(t, keys == 1, "%d keys", keys)
		if again := e.OutboxEvent.GetX(t.Context(), row.ID); again.EventType != row.EventType {
			t.Fatalf("read %v", again)
		}
	})
}

// Without the options, Ent's migration makes usable tables on SQLite. On the servers they lack
// something, and Check reports it.
func TestEntSchemaWithoutOptions(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		e := openEntTables(t, db)
		e.create(t)
		repo, err := sqloutbox.New(e.pool, sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		err = repo.Check(t.Context())
		if adapters.EntDialect(db) == dialect.SQLite {
			fixture.NoError(t, err)
			return
		}
		fixture.WantDrift(t, err)
	})
}

// Versioned migrations write the same tables into files, and a second run writes no more.
func TestEntSchemaVersioned(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		clean, applied := openEntTables(t, db.Another(t)), openEntTables(t, db.Another(t))
		dir, err := atlasmigrate.NewLocalDir(t.TempDir())
		fixture.NoError(t, err)
		for range 2 { // the second run has nothing left to write
			m, err := entmigrate.NewMigrate(clean.ob.Driver(), append(entschema.MigrateOptions(""),
				entmigrate.WithDir(dir), entmigrate.WithMigrationMode(entmigrate.ModeReplay),
				entmigrate.WithFormatter(atlasmigrate.DefaultFormatter))...)
			fixture.NoError(t, err)
			if err := m.NamedDiff(t.Context(), "outbox", clean.tables...); !errors.Is(err, atlasmigrate.ErrNoPlan) {
				fixture.NoError(t, err)
			}
		}
		files, err := dir.Files()
		fixture.NoError(t, err)
		if len(files) != 1 {
			t.Fatalf("%d files", len(files))
		}
		stmts, err := files[0].Stmts()
		fixture.NoError(t, err)
		for _, stmt := range stmts {
			fixture.MustExec(t, applied.pool, stmt)
		}
		repo, err := sqloutbox.New(applied.pool, sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		fixture.NoError(t, repo.Check(t.Context()))

		ours := db.Another(t).Open(t)
		repo, err = sqloutbox.New(ours, sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		fixture.NoError(t, repo.Migrate(t.Context()))
		got, want := description(t, applied.pool, db.Dialect), description(t, ours, db.Dialect)
		for _, line := range want {
			if !slices.Contains(got, line) && !strings.HasPrefix(line, "storage ") {
				t.Errorf("missing: %s", line)
			}
		}
	})
}
