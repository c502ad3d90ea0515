package sqlonce

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// names are the checked identifiers of a configuration, ready for use in SQL.
type names struct {
	dialect        core.Dialect
	schema, prefix string
}

// tables are the words for the tables in texts.
var tables = map[string]string{
	"key": "idempotency_key", "inbox": "inbox_event", "inbox_key": "inbox_key", "command": "side_effect_command",
}

// longest is the longest name that a prefix is put in front of.
const longest = "side_effect_command_parked"

func (c Config) names() (names, error) {
	switch c.Dialect {
	case core.Postgres, core.MySQL, core.SQLite:
	default:
		return names{}, fmt.Errorf("sqlonce: Config.Dialect %q is not one of postgres, mysql, sqlite", c.Dialect)
	}
	var problems []error
	if c.Prefix != "" {
		problems = append(problems, sqlkit.CheckIdent(c.Dialect, "sqlonce: Config.Prefix", c.Prefix))
	}
	if limit := sqlkit.MaxIdent(c.Dialect) - len(longest); len(c.Prefix) > limit {
		problems = append(problems, fmt.Errorf("sqlonce: Config.Prefix has %d bytes, more than %d", len(c.Prefix),
			limit))
	}
	switch {
	case c.Schema == "":
	case c.Dialect == core.SQLite:
		problems = append(problems, errors.New("sqlonce: Config.Schema: SQLite has no schemas"))
	default:
		problems = append(problems, sqlkit.CheckIdent(c.Dialect, "sqlonce: Config.Schema", c.Schema))
	}
	if err := errors.Join(problems...); err != nil {
		return names{}, err
	}
	return names{dialect: c.Dialect, schema: c.Schema, prefix: c.Prefix}, nil
}

// table quotes the name of a table.
func (n names) table(name string) string {
	t := n.name(name)
	if n.schema != "" {
		t = sqlkit.Quote(n.dialect, n.schema) + "." + t
	}
	return t
}

// name quotes a name that must not have a schema: of an index or a constraint.
func (n names) name(name string) string { return sqlkit.Quote(n.dialect, n.prefix+name) }

var placeholder = regexp.MustCompile(`\{\{?([a-z_]+)(?::([a-z_.]+))?\}?\}`)

// expand fills a text: {key}, {inbox}, {inbox_key} and {command} are the tables, {name:x} another
// name, and the words of the dialect say what each database says differently. Files of the schema
// double the braces. Parameters are ? in every text.
func (n names) expand(text string) string {
	words := vocabulary[n.dialect]
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		sub := placeholder.FindStringSubmatch(m)
		if t, ok := tables[sub[1]]; ok {
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

// statement is expand for a text with parameters.
func (n names) statement(text string) string { return sqlkit.Rebind(n.dialect, n.expand(text)) }

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
