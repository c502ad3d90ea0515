// Package sqlstore is what the stores of keys, of the inbox and of effects share: names, SQL words,
// short transactions, statements in a caller's transaction, migrations.
package sqlstore

import (
	"fmt"
	"regexp"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Config names the tables and their database. The Config of each store has the same fields.
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

// word is a piece of SQL that the dialects write differently; arg is what follows the colon in the
// text.
type word func(arg string) string

func fixed(s string) word { return func(string) string { return s } }

// epoch is an expression of PostgreSQL about a time, in microseconds; it is NULL where the time is.
// Only another program writes an infinite time, or a time in the year 200,000. It counts as the
// nearest time within the bounds, so that it fails no statement that reads other rows too.
func epoch(at, from, to, since string) string {
	return "CASE WHEN " + at + " IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(" + at + ", " + from + "), " + to +
		")" + since + ")*1000000)::bigint END"
}

// leftOf and microsOf have bounds that fit a time.Duration and the JSON of a time.Time.
func leftOf(at string) string {
	const now, most = "statement_timestamp()", " interval '36500 days'"
	return epoch(at, now+" -"+most, now+" +"+most, " - "+now)
}

func microsOf(at string) string {
	return epoch(at, "'0001-01-01 00:00:00+00'", "'9999-12-31 00:00:00+00'", "")
}

// The words of each database. now is the time of the statement by the database's clock. in and ago
// are now plus and minus a parameter in microseconds. left:x is how many microseconds are left
// until the instant x. us:x is the instant x in microseconds since 1970, and at is the instant that
// a parameter gives in this way. lock locks the rows of a
// SELECT until the transaction ends. skip does the same and passes over rows that another
// transaction has locked. max is the larger of two values.
var (
	postgresWords = map[string]word{
		"now":  fixed("statement_timestamp()"),
		"in":   fixed("statement_timestamp() + ?::bigint * interval '1 microsecond'"),
		"ago":  fixed("statement_timestamp() - ?::bigint * interval '1 microsecond'"),
		"at":   fixed("timestamptz 'epoch' + ?::bigint * interval '1 microsecond'"),
		"left": leftOf,
		"us":   microsOf,
		"lock": fixed(" FOR UPDATE"),
		"skip": fixed(" FOR UPDATE SKIP LOCKED"),
		"max":  fixed("GREATEST"),
	}

	mysqlWords = map[string]word{
		"now":  fixed("UTC_TIMESTAMP(6)"),
		"in":   fixed("UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND"),
		"ago":  fixed("UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND"),
		"at":   fixed("CAST('1970-01-01 00:00:00' AS DATETIME(6)) + INTERVAL ? MICROSECOND"),
		"left": func(arg string) string { return "TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6)," + arg + ")" },
		"us":   func(arg string) string { return "TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00'," + arg + ")" },
		"lock": fixed(" FOR UPDATE"),
		"skip": fixed(" FOR UPDATE SKIP LOCKED"),
		"max":  fixed("GREATEST"),
	}

	sqliteWords = map[string]word{
		"now":  fixed(sqliteNow),
		"in":   fixed(sqliteNow + "+?"),
		"ago":  fixed(sqliteNow + "-?"),
		"at":   fixed("?"),
		"left": func(arg string) string { return arg + "-" + sqliteNow },
		"us":   func(arg string) string { return arg },
		"lock": fixed(""),
		"skip": fixed(""),
		"max":  fixed("MAX"),
	}
)

const sqliteNow = "(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)"
