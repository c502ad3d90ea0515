package sqloutbox

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// names are the checked identifiers of a configuration, ready for use in SQL.
type names struct {
	dialect           core.Dialect
	schema, prefix    string
	event, key, audit string // quoted, with schema
}

// longest is the longest name that is made of the prefix.
const longest = "event_blocked"

func (c Config) names() (names, error) {
	switch c.Dialect {
	case core.Postgres, core.MySQL, core.SQLite:
	default:
		return names{}, fmt.Errorf("sqloutbox: Config.Dialect %q is not one of postgres, mysql, sqlite",
			string(c.Dialect))
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	problems := []error{sqlkit.CheckIdent(c.Dialect, "sqloutbox: Config.Prefix", c.Prefix)}
	if limit := sqlkit.MaxIdent(c.Dialect) - len(longest); len(c.Prefix) > limit {
		problems = append(problems, fmt.Errorf("sqloutbox: Config.Prefix has %d bytes, more than %d", len(c.Prefix),
			limit))
	}
	switch {
	case c.Schema == "":
	case c.Dialect == core.SQLite:
		problems = append(problems, errors.New("sqloutbox: Config.Schema: SQLite has no schemas"))
	default:
		problems = append(problems, sqlkit.CheckIdent(c.Dialect, "sqloutbox: Config.Schema", c.Schema))
	}
	if err := errors.Join(problems...); err != nil {
		return names{}, err
	}
	n := names{dialect: c.Dialect, schema: c.Schema, prefix: c.Prefix}
	n.event, n.key, n.audit = n.table("event"), n.table("key"), n.table("audit")
	return n, nil
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

var placeholder = regexp.MustCompile(`\{\{?([a-z_0-9]+)(?::([a-z_.]+))?\}?\}`)

// expand fills a text: {event}, {key} and {audit} are the tables, {name:x} another name, and the
// words of the dialect say what each database says differently. Files of the schema double the
// braces.
func (n names) expand(text string) string {
	words := vocabulary[n.dialect]
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		sub := placeholder.FindStringSubmatch(m)
		switch sub[1] {
		case "event":
			return n.event
		case "key":
			return n.key
		case "audit":
			return n.audit
		case "name":
			return n.name(sub[2])
		}
		if f, ok := words[sub[1]]; ok {
			return f(n, sub[2])
		}
		return m
	})
}

// word is a piece of SQL that the dialects write differently; arg is what follows the colon in the
// text.
type word func(n names, arg string) string

func fixed(s string) word { return func(names, string) string { return s } }

const sqliteNow = "(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)"

// vocabulary: now is the time of the statement by the database's clock; in and ago are now plus and
// minus a parameter in microseconds; us is a time in microseconds since 1970 and clock the time now
// in them; first_seq is the headers with the key_seq of the row under the name arg, unless it is
// there; lock is the row lock of a SELECT.
var vocabulary = map[core.Dialect]map[string]word{
	core.Postgres: {
		"now":   fixed("statement_timestamp()"),
		"us":    func(_ names, arg string) string { return "(extract(epoch from " + arg + ")*1000000)::bigint" },
		"clock": fixed("(extract(epoch from clock_timestamp())*1000000)::bigint"),
	},
	core.MySQL: {
		"now":   fixed("UTC_TIMESTAMP(6)"),
		"in":    fixed("UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND"),
		"ago":   fixed("UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND"),
		"clock": fixed("TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))"),
		"us": func(_ names, arg string) string {
			return "TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00'," + arg + ")"
		},
		"first_seq": func(_ names, arg string) string {
			return "CASE WHEN headers IS NULL OR JSON_TYPE(headers) = 'OBJECT' THEN JSON_INSERT(COALESCE(headers, " +
				"'{}'), '$." + arg + "', CAST(key_seq AS CHAR)) ELSE headers END"
		},
		"lock": fixed(" FOR UPDATE SKIP LOCKED"),
		"wait": fixed(" FOR UPDATE"),
		"use":  func(n names, arg string) string { return " FORCE INDEX (" + n.indexOrPrimary(arg) + ")" },
		"max":  fixed("GREATEST"),
		"bin":  func(_ names, arg string) string { return "CAST(" + arg + " AS BINARY)" },

		"topic":  fixed("e.ready_topic"),
		"ready":  fixed(""),
		"lane":   fixed("e.open_lane"),
		"open":   fixed(""),
		"live":   fixed("e.dead = 0 AND "),
		"dead":   fixed("e.dead"),
		"order":  fixed("e.open_lane, e.dead"),
		"openof": fixed("d.open_lane = e.open_lane AND d.dead = 0"),
		"deadof": fixed("d.open_lane = e.open_lane AND d.dead = 1"),
		"ended1": fixed("e.ended = 1"),
		"ended3": fixed("e.ended = 3 AND e.done_at IS NULL"),
		"octets": fixed("OCTET_LENGTH(e.payload)"),
		"noneof": func(n names, _ string) string {
			return "NOT EXISTS (SELECT 1 FROM " + n.event + " e FORCE INDEX (" + n.name("event_open") +
				") WHERE e.open_lane = k.lane)"
		},
	},
	core.SQLite: {
		"now":   fixed(sqliteNow),
		"in":    fixed(sqliteNow + "+?"),
		"ago":   fixed(sqliteNow + "-?"),
		"clock": fixed(sqliteNow),
		"us":    func(_ names, arg string) string { return arg },
		"first_seq": func(_ names, arg string) string {
			return "CASE WHEN headers IS NULL OR json_valid(headers) AND json_type(headers) = 'object' THEN " +
				"json_insert(COALESCE(headers, '{}'), '$." + arg + "', CAST(key_seq AS TEXT)) ELSE headers END"
		},
		"lock": fixed(""),
		"wait": fixed(""),
		"use":  fixed(""),
		"max":  fixed("MAX"),
		"bin":  func(_ names, arg string) string { return arg },

		"topic":  fixed("e.topic"),
		"ready":  fixed("e.status IN (0,2) AND e.lane IS NULL AND "),
		"lane":   fixed("e.lane"),
		"open":   fixed("e.status IN (0,2) AND e.lane IS NOT NULL AND "),
		"live":   fixed("e.status IN (0,2) AND e.lane IS NOT NULL AND "),
		"dead":   fixed("0"),
		"order":  fixed("e.lane"),
		"openof": fixed("d.lane = e.lane AND d.status IN (0,2) AND d.lane IS NOT NULL"),
		"deadof": fixed("d.lane = e.lane AND d.status = 3 AND d.lane IS NOT NULL"),
		"ended1": fixed("e.status IN (1,4)"),
		"ended3": fixed("e.status = 3"),
		"octets": fixed("LENGTH(e.payload)"),
		"noneof": func(n names, _ string) string {
			const none = "NOT EXISTS (SELECT 1 FROM %s e WHERE e.lane = k.lane AND e.lane IS NOT NULL AND e.status %s)"
			return fmt.Sprintf(none, n.event, "IN (0,2)") + " AND " + fmt.Sprintf(none, n.event, "= 3")
		},
	},
}

func (n names) indexOrPrimary(arg string) string {
	if arg == "primary" {
		return "PRIMARY"
	}
	return n.name(arg)
}
