// Package sqlstore is shared by the stores of keys, of the inbox and of effects: names and words of
// the databases, short transactions of its own, statements in a caller's transaction, migrations.
package sqlstore

import (
	"fmt"
	"regexp"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Config says where the tables are. The Config of each store has the same fields.
type Config struct {
	Dialect core.Dialect
	Schema  string
	Prefix  string
}

// Names are the checked identifiers of a configuration, ready for use in SQL.
type Names struct {
	dialect        core.Dialect
	database       database
	schema, prefix string
	tables         map[string]string
}

// longest is the longest name that follows a prefix. It limits the prefix of every store, so that a
// prefix that one store accepts is accepted by all.
const longest = "side_effect_command_parked"

// Names checks a configuration.
func (t *Tables) Names(c Config) (Names, error) {
	db, known := databaseOf(c.Dialect)
	if !known {
		return Names{}, fmt.Errorf("%s: Config.Dialect %q is not one of postgres, mysql, sqlite", t.Package, c.Dialect)
	}
	if err := sqlkit.CheckNames(t.Package, c.Dialect, c.Schema, c.Prefix, longest); err != nil {
		return Names{}, err
	}
	return Names{dialect: c.Dialect, database: db, schema: c.Schema, prefix: c.Prefix, tables: t.Words}, nil
}

// Dialect returns the dialect of the statements.
func (n Names) Dialect() core.Dialect { return n.dialect }

// table quotes the name of a table.
func (n Names) table(name string) string { return sqlkit.Qualify(n.dialect, n.schema, n.prefix+name) }

// name quotes a name that must not have a schema: the name of an index or a constraint.
func (n Names) name(name string) string { return sqlkit.Quote(n.dialect, n.prefix+name) }

var placeholder = regexp.MustCompile(`\{\{?([a-z_]+)(?::([a-z_.]+))?\}?\}`)

// Expand fills in a text. The words of Tables become the names of the tables, and {name:x} becomes
// another name. The words of the dialect become the SQL of the database. Files of the schema double
// the braces. Parameters are ? in every text.
func (n Names) Expand(text string) string {
	words := n.database.words()
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		sub := placeholder.FindStringSubmatch(m)
		if t, ok := n.tables[sub[1]]; ok {
			return n.table(t)
		}
		if sub[1] == "name" {
			return n.name(sub[2])
		}
		if f, ok := words[sub[1]]; ok {
			return f(sub[2])
		}
		return m
	})
}

// Statement is like Expand, and turns ? into the placeholders of the dialect.
func (n Names) Statement(text string) string { return sqlkit.Rebind(n.dialect, n.Expand(text)) }
