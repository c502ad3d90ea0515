package entschema

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	atlasmigrate "ariga.io/atlas/sql/migrate"
	"ariga.io/atlas/sql/postgres"
	atlas "ariga.io/atlas/sql/schema"
	"ariga.io/atlas/sql/sqlite"
	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql/schema"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// MigrateOptions returns the options with which Ent's migration creates the tables of the mixins
// exactly as the migrations of sqloutbox do: collations, the checks of SQLite, the generated
// columns of MySQL and MariaDB, the storage parameters of PostgreSQL. prefix is the Prefix of the
// mixins; empty means "outbox_".
//
//	err := client.Schema.Create(ctx, entschema.MigrateOptions("")...)
//
// The options leave existing tables unchanged, but for columns that a later version brought. So the
// migration can be repeated, and WithDropColumn and WithDropIndex drop nothing of them.
//
// Versioned migrations (Diff, NamedDiff) take the same options. Only storage parameters are missing
// in the files.
func MigrateOptions(prefix string) []schema.MigrateOption {
	prefix = cmp.Or(prefix, defaultPrefix)
	m := migration{prefix: prefix}
	return []schema.MigrateOption{schema.WithDiffHook(m.diff), schema.WithApplyHook(m.apply)}
}

type migration struct{ prefix string }

// diff completes new tables, and keeps Ent from changing existing ones, except for new columns.
func (m migration) diff(next schema.Differ) schema.Differ {
	return schema.DiffFunc(func(current, desired *atlas.Schema) ([]atlas.Change, error) {
		changes, err := next.Diff(current, desired)
		if err != nil {
			return nil, err
		}
		kept := changes[:0]
		for _, c := range changes {
			switch c := c.(type) {
			case *atlas.ModifyTable:
				if m.ours(c.T.Name) && !m.onlyNew(c) {
					continue
				}
			case *atlas.AddTable:
				if m.ours(c.T.Name) {
					m.complete(c.T)
				}
			}
			kept = append(kept, c)
		}
		return kept, nil
	})
}

// onlyNew leaves of a change the columns that a later version brought. It reports whether there are
// any.
func (m migration) onlyNew(c *atlas.ModifyTable) bool {
	c.Changes = slices.DeleteFunc(c.Changes, func(c atlas.Change) bool {
		_, ok := c.(*atlas.AddColumn)
		return !ok
	})
	for _, change := range c.Changes {
		add, ok := change.(*atlas.AddColumn)
		if !ok {
			continue
		}
		on := dialectOf(c.T)
		copyCause(on, add.C)
		if on == dialect.Postgres {
			collate(add.C)
		}
	}
	return len(c.Changes) > 0
}

func (m migration) ours(table string) bool {
	name, ok := strings.CutPrefix(table, m.prefix)
	switch name {
	case "event", "key", "audit", "relay", "plan", "pause", "group", "history":
		return ok
	}
	return false
}

// complete adds the parts that mixins cannot declare. The types of its columns show
// the dialect.
func (m migration) complete(t *atlas.Table) {
	name := strings.TrimPrefix(t.Name, m.prefix)
	on := dialectOf(t)
	for _, c := range t.Columns {
		copyCause(on, c)
	}
	switch on {
	case dialect.Postgres:
		completePostgres(name, t)
	case dialect.MySQL:
		m.completeMySQL(name, t)
	case dialect.SQLite:
		completeSQLite(name, t)
	}
}

// causes are the expressions by which each database copies the cause out of the headers.
var causes = map[string]atlas.GeneratedExpr{
	dialect.Postgres: {Expr: "NULLIF(left(headers ->> 'causation_id', 255), '')", Type: "STORED"},
	dialect.MySQL: {
		Expr: "NULLIF(LEFT(JSON_UNQUOTE(JSON_EXTRACT(headers, '$.causation_id')), 255), '')", Type: "STORED",
	},
	dialect.SQLite: {
		Expr: "CASE WHEN json_valid(headers) THEN " +
			"NULLIF(substr(json_extract(headers, '$.causation_id'), 1, 255), '') END",
		Type: "VIRTUAL",
	},
}

// copyCause makes the column of the cause a generated one.
func copyCause(on string, c *atlas.Column) {
	if c.Name == "causation_id" {
		expr := causes[on]
		c.SetGeneratedExpr(&expr)
	}
}

// dialectOf finds the dialect by the type of an id or of a time, which is different on each
// database.
func dialectOf(t *atlas.Table) string {
	for _, c := range t.Columns {
		switch typ := c.Type.Type.(type) { // not every table has ids of bytes
		case *atlas.TimeType:
			if strings.EqualFold(typ.T, "datetime") {
				return dialect.MySQL
			}
		case *atlas.IntegerType:
			if c.Name == "seen_at" || c.Name == "paused_at" || c.Name == "updated_at" {
				return dialect.SQLite
			}
		}
		if b, ok := c.Type.Type.(*atlas.BinaryType); ok && c.Name != "payload" {
			switch strings.ToLower(b.T) {
			case "binary":
				return dialect.MySQL
			case "blob":
				return dialect.SQLite
			}
		}
	}
	return dialect.Postgres
}

// diagnostic has the columns that only people read. Their texts need no comparison byte by byte.
var diagnostic = map[string]bool{
	"last_error": true, "last_error_code": true, "failures": true, "receipt": true, "action": true,
	"actor": true, "reason": true, "detail": true,
	"host": true, "program": true, "version": true, "topics": true,
	"state": true, "body": true, "note": true,
}

func completePostgres(name string, t *atlas.Table) {
	for _, c := range t.Columns {
		collate(c)
		for _, a := range c.Attrs {
			if id, ok := a.(*postgres.Identity); ok && name == "audit" {
				id.Generation = "ALWAYS"
			}
		}
	}
	if name == "key" {
		timeline := atlas.NewColumn("timeline").SetType(&atlas.StringType{T: "text"}).SetCollation("C")
		t.AddColumns(timeline.SetDefault(&atlas.RawExpr{X: "CASE WHEN to_regproc('aurora_version') IS NULL THEN " +
			"substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) ELSE '' END"}))
	}
}

// collate makes PostgreSQL compare a text byte by byte.
func collate(c *atlas.Column) {
	if _, ok := c.Type.Type.(*atlas.StringType); ok && !diagnostic[c.Name] {
		c.SetCollation("C")
	}
}

func completeSQLite(name string, t *atlas.Table) {
	switch name {
	case "event":
		t.AddChecks(atlas.NewCheck().SetExpr("length(id) = 16"), atlas.NewCheck().SetExpr("status BETWEEN 0 AND 4"),
			atlas.NewCheck().SetExpr("(lane IS NULL OR key_seq IS NOT NULL AND typeof(lane) = 'blob' AND "+
				"length(lane) = 16)"),
			atlas.NewCheck().SetExpr("(typeof(topic) = 'text')"),
			atlas.NewCheck().SetExpr("(typeof(status) = 'integer' AND typeof(claim_no) = 'integer' "+
				"AND typeof(available_at) = 'integer')"),
			atlas.NewCheck().SetExpr("(typeof(key_seq) IN ('integer', 'null') AND "+
				"typeof(done_at) IN ('integer', 'null'))"))
	case "key":
		t.AddChecks(atlas.NewCheck().SetExpr("length(lane) = 16"))
		t.AddAttrs(&sqlite.WithoutRowID{})
	}
}

func (m migration) completeMySQL(name string, t *atlas.Table) {
	if name != "event" {
		return
	}
	if c, ok := t.Column("event_id"); ok {
		c.SetCharset("ascii").SetCollation("ascii_bin")
	}
	// MySQL has no partial indexes. Generated columns are NULL for most rows, which keeps these
	// rows out of the ranges that claims read.
	generated := func(name, expr string, typ atlas.Type) {
		t.AddColumns(atlas.NewColumn(name).SetType(typ).SetNull(true).SetGeneratedExpr(&atlas.GeneratedExpr{
			Expr: expr,
			Type: "STORED",
		}))
	}
	topic, lane := 996, 16
	generated("ready_topic", "CASE WHEN status IN (0, 2) AND lane IS NULL THEN topic END",
		&atlas.BinaryType{T: "varbinary", Size: &topic})
	generated("open_lane", "CASE WHEN status IN (0, 2, 3) THEN lane END", &atlas.BinaryType{T: "binary", Size: &lane})
	generated("dead", "CASE WHEN status = 3 THEN 1 ELSE 0 END", &atlas.IntegerType{T: "tinyint"})
	t.Indexes = nil
	for _, c := range t.Columns {
		c.Indexes = nil
	}
	index := func(name string, columns ...string) {
		idx := atlas.NewIndex(m.prefix + name)
		for _, column := range columns {
			c, _ := t.Column(column)
			idx.AddColumns(c)
		}
		t.AddIndexes(idx)
	}
	index("event_work", "open_lane", "key_seq", "ready_topic", "available_at")
	index("event_dead", "dead", "id")
	index("event_cause", "causation_id")
}

// apply sets the storage parameters of tables that were created on PostgreSQL. Only plans for
// PostgreSQL quote names with ".
func (m migration) apply(next schema.Applier) schema.Applier {
	return schema.ApplyFunc(func(ctx context.Context, conn dialect.ExecQuerier, plan *atlasmigrate.Plan) error {
		if err := next.Apply(ctx, conn, plan); err != nil {
			return err
		}
		storage, err := m.storage()
		if err != nil {
			return err
		}
		for _, c := range plan.Changes {
			for table, parameters := range storage {
				if !strings.HasPrefix(c.Cmd, "CREATE TABLE "+table+" (") {
					continue
				}
				if err := conn.Exec(ctx, fmt.Sprintf("ALTER TABLE %s SET (%s)", table, parameters), []any{},
					nil); err != nil {
					return fmt.Errorf("entschema: storage parameters of %s: %w", table, err)
				}
			}
		}
		return nil
	})
}

var tableWith = regexp.MustCompile(`(?s)CREATE TABLE IF NOT EXISTS (\S+) \([^;]*\n\) WITH \(([^;]*)\);`)

// storage reads the storage parameters of each table from the migrations.
func (m migration) storage() (map[string]string, error) {
	migrations, err := sqloutbox.Migrations(sqloutbox.Config{Dialect: core.Postgres, Prefix: m.prefix})
	if err != nil {
		return nil, err
	}
	storage := map[string]string{}
	for _, up := range migrations {
		for _, found := range tableWith.FindAllStringSubmatch(up.Up, -1) {
			storage[found[1]] = strings.Join(strings.Fields(found[2]), " ")
		}
	}
	return storage, nil
}
