// Package sqlstore is what the tables of keys, of the inbox and of effects have in common: names
// and words of the databases, short transactions of their own, joining a caller's, migrations.
package sqlstore

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Config says where tables are, as the Config of each store does.
type Config struct {
	Dialect core.Dialect
	Schema  string
	Prefix  string
}

// Names are the checked identifiers of a configuration, ready for use in SQL.
type Names struct {
	dialect        core.Dialect
	schema, prefix string
	tables         map[string]string
}

// longest is the longest name that a prefix is put in front of. It limits the prefix of every
// store, so that one that is good for one of them is good for all.
const longest = "side_effect_command_parked"

// Names checks a configuration.
func (t *Tables) Names(c Config) (Names, error) {
	switch c.Dialect {
	case core.Postgres, core.MySQL, core.SQLite:
	default:
		return Names{}, fmt.Errorf("%s: Config.Dialect %q is not one of postgres, mysql, sqlite", t.Package, c.Dialect)
	}
	var problems []error
	if c.Prefix != "" {
		problems = append(problems, sqlkit.CheckIdent(c.Dialect, t.Package+": Config.Prefix", c.Prefix))
	}
	if limit := sqlkit.MaxIdent(c.Dialect) - len(longest); len(c.Prefix) > limit {
		problems = append(problems, fmt.Errorf("%s: Config.Prefix has %d bytes, more than %d",
			t.Package, len(c.Prefix), limit))
	}
	switch {
	case c.Schema == "":
	case c.Dialect == core.SQLite:
		problems = append(problems, errors.New(t.Package+": Config.Schema: SQLite has no schemas"))
	default:
		problems = append(problems, sqlkit.CheckIdent(c.Dialect, t.Package+": Config.Schema", c.Schema))
	}
	if err := errors.Join(problems...); err != nil {
		return Names{}, err
	}
	return Names{dialect: c.Dialect, schema: c.Schema, prefix: c.Prefix, tables: t.Words}, nil
}

// Dialect returns the dialect of the texts.
func (n Names) Dialect() core.Dialect { return n.dialect }

// table quotes the name of a table.
func (n Names) table(name string) string {
	t := n.name(name)
	if n.schema != "" {
		t = sqlkit.Quote(n.dialect, n.schema) + "." + t
	}
	return t
}

// name quotes a name that must not have a schema: of an index or a constraint.
func (n Names) name(name string) string { return sqlkit.Quote(n.dialect, n.prefix+name) }

var placeholder = regexp.MustCompile(`\{\{?([a-z_]+)(?::([a-z_.]+))?\}?\}`)

// Expand fills a text: the words of Tables are the tables, {name:x} is another name, and the words
// of the dialect say what each database says differently. Files of the schema double the braces.
// Parameters are ? in every text.
func (n Names) Expand(text string) string {
	words := vocabulary[n.dialect]
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

// Statement is Expand for a text with parameters.
func (n Names) Statement(text string) string { return sqlkit.Rebind(n.dialect, n.Expand(text)) }

// word is a piece of SQL that the dialects write differently; arg is what follows the colon in the
// text.
type word func(arg string) string

func fixed(s string) word { return func(string) string { return s } }

const sqliteNow = "(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)"

// vocabulary: now is the time of the statement by the database's clock; in and ago are now plus and
// minus a parameter in microseconds; left:x is how many microseconds are left until the instant x
// and us:x the instant x in microseconds since 1970; lock locks the rows of a SELECT until the
// transaction ends and skip those that nobody else has locked; max is the larger of two values.
var vocabulary = map[core.Dialect]map[string]word{
	core.Postgres: {
		"now": fixed("statement_timestamp()"),
		"in":  fixed("statement_timestamp() + ?::bigint * interval '1 microsecond'"),
		"ago": fixed("statement_timestamp() - ?::bigint * interval '1 microsecond'"),
		"left": func(arg string) string {
			return "(extract(epoch from " + arg + " - statement_timestamp())*1000000)::bigint"
		},
		"us":   func(arg string) string { return "(extract(epoch from " + arg + ")*1000000)::bigint" },
		"lock": fixed(" FOR UPDATE"),
		"skip": fixed(" FOR UPDATE SKIP LOCKED"),
		"max":  fixed("GREATEST"),
	},
	core.MySQL: {
		"now":  fixed("UTC_TIMESTAMP(6)"),
		"in":   fixed("UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND"),
		"ago":  fixed("UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND"),
		"left": func(arg string) string { return "TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6)," + arg + ")" },
		"us":   func(arg string) string { return "TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00'," + arg + ")" },
		"lock": fixed(" FOR UPDATE"),
		"skip": fixed(" FOR UPDATE SKIP LOCKED"),
		"max":  fixed("GREATEST"),
	},
	core.SQLite: {
		"now":  fixed(sqliteNow),
		"in":   fixed(sqliteNow + "+?"),
		"ago":  fixed(sqliteNow + "-?"),
		"left": func(arg string) string { return arg + "-" + sqliteNow },
		"us":   func(arg string) string { return arg },
		"lock": fixed(""),
		"skip": fixed(""),
		"max":  fixed("MAX"),
	},
}
