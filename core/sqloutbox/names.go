package sqloutbox

import (
	"cmp"
	"regexp"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// names are the checked identifiers of a configuration, ready for use in SQL.
type names struct {
	dialect            dialect
	schema, prefix     string
	event, key, audit  string // quoted, with schema
	relay, plan, pause string
	group              string
	partitioned        bool
}

// longest is the longest name with the prefix, and longestPartition that of a partition.
const (
	longest          = "event_default"
	longestPartition = "event_p20060102t150405"
)

func (c Config) names() (names, error) {
	d, err := dialectOf(c.Dialect)
	if err != nil {
		return names{}, err
	}
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	if err := c.checkPartitions(d); err != nil {
		return names{}, err
	}
	name := longest
	if c.PartitionEvery > 0 {
		name = longestPartition
	}
	if err := sqlkit.CheckNames("sqloutbox", c.Dialect, c.Schema, c.Prefix, name); err != nil {
		return names{}, err
	}
	n := names{dialect: d, schema: c.Schema, prefix: c.Prefix, partitioned: c.PartitionEvery > 0}
	n.event, n.key, n.audit = n.table("event"), n.table("key"), n.table("audit")
	n.relay, n.plan, n.pause = n.table("relay"), n.table("plan"), n.table("pause")
	n.group = n.table("group")
	return n, nil
}

// table quotes the name of a table.
func (n names) table(name string) string {
	return sqlkit.Qualify(n.dialect.name, n.schema, n.prefix+name)
}

// name quotes a name that must not have a schema: of an index or a constraint.
func (n names) name(name string) string { return sqlkit.Quote(n.dialect.name, n.prefix+name) }

var placeholder = regexp.MustCompile(`\{\{?([a-z_0-9]+)(?::([a-z_.]+))?\}?\}`)

// expand fills a text: {event}, {key}, {audit}, {relay}, {plan}, {pause} and {group} are the
// tables, {name:x} is another name, and the other words are pieces of SQL of the dialect. Files of
// the schema double the braces.
func (n names) expand(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		sub := placeholder.FindStringSubmatch(m)
		switch sub[1] {
		case "event":
			return n.event
		case "key":
			return n.key
		case "audit":
			return n.audit
		case "relay":
			return n.relay
		case "plan":
			return n.plan
		case "pause":
			return n.pause
		case "group":
			return n.group
		case "name":
			return n.name(sub[2])
		}
		if f, ok := n.dialect.words[sub[1]]; ok {
			return f(n, sub[2])
		}
		return m
	})
}

// word is a piece of SQL that differs between databases; arg is the text after the colon. Every
// database has these: now is the time of the statement by the database's clock, clock the time now,
// and us:x the time x in microseconds since 1970. Those of rowwise are listed there.
type word func(n names, arg string) string

func fixed(s string) word { return func(names, string) string { return s } }
