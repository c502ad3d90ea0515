package sqloutbox

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// DefaultPrefix starts the names of the tables: outbox_event, outbox_key, outbox_audit,
// outbox_relay, outbox_plan, outbox_pause, outbox_group, outbox_history, outbox_migration.
const DefaultPrefix = "outbox_"

// Config names the tables and their database.
type Config struct {
	// Dialect of the database. Empty: New asks the database, and refuses a server that is not
	// supported. Set, no server is refused, whatever it is.
	Dialect core.Dialect
	// Schema of the tables: a schema of PostgreSQL, a database of MySQL. Empty: the default of the
	// connection. SQLite has none.
	Schema string
	// Prefix of the names of tables, indexes and constraints. Default: DefaultPrefix.
	Prefix string
	// PartitionEvery makes outbox_event a table with partitions by row id, each for the events of
	// this time, so that old events leave with a partition instead of row by row. It is for many
	// millions of rows on PostgreSQL 14 or newer, with event ids that begin with their time, such
	// as this project's ids. Migrate makes a new table so. An existing table needs the steps in
	// docs/migrations.md. The janitor makes and drops the partitions: its database user must own
	// the table. Events stay up to this time longer than the retention. Every process that relays,
	// cleans up or migrates must have the same setting. At least an hour. Default: 0, no
	// partitions.
	PartitionEvery time.Duration
}

// longest is the longest name with the prefix, and longestPartition the longest name of a
// partition.
const (
	longest          = "event_default"
	longestPartition = "event_p20060102t150405"
)

func (c Config) names() (names, error) {
	if err := checkDialect(c.Dialect); err != nil {
		return names{}, err
	}
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	if err := c.checkPartitions(); err != nil {
		return names{}, err
	}
	name := longest
	if c.PartitionEvery > 0 {
		name = longestPartition
	}
	if err := sqlkit.CheckNames("sqloutbox", c.Dialect, c.Schema, c.Prefix, name); err != nil {
		return names{}, err
	}
	n := names{
		dialect: c.Dialect, words: words.Of(c.Dialect), schema: c.Schema, prefix: c.Prefix,
		partitioned: c.PartitionEvery > 0,
	}
	n.event = n.table("event")
	return n, nil
}

// checkPartitions checks Config.PartitionEvery.
func (c Config) checkPartitions() error {
	switch {
	case c.PartitionEvery == 0:
		return nil
	case layouts.Of(c.Dialect) == "":
		return fmt.Errorf("sqloutbox: Config.PartitionEvery is for PostgreSQL, not for %q: leave it 0",
			string(c.Dialect))
	case c.PartitionEvery < minPartition:
		return fmt.Errorf("sqloutbox: Config.PartitionEvery is %s, shorter than %s", c.PartitionEvery, minPartition)
	}
	return nil
}

// names are the checked identifiers of a configuration, ready for use in SQL.
type names struct {
	dialect        core.Dialect
	words          map[string]word
	schema, prefix string
	event          string // the table of events, or a partition; quoted, with schema
	partitioned    bool
}

// ownTables are the tables, by their names without the prefix.
var ownTables = []string{"event", "key", "audit", "relay", "plan", "pause", "group", "history"}

// params are how statements are written that are built when they are needed.
func (n names) params() *outboxsql.Params { return outboxsql.ParamsOf(n.dialect) }

// table quotes the name of a table.
func (n names) table(name string) string {
	return sqlkit.Qualify(n.dialect, n.schema, n.prefix+name)
}

// name quotes a name that must not have a schema: of an index or a constraint.
func (n names) name(name string) string { return sqlkit.Quote(n.dialect, n.prefix+name) }

var placeholder = regexp.MustCompile(`\{\{?([a-z_0-9]+)(?::([a-z_.]+))?\}?\}`)

// expand fills a text: {event}, {key}, {audit}, {relay}, {plan}, {pause}, {group} and {history} are
// the tables, {name:x} is another name, and the other words are pieces of SQL of the dialect. Files of
// the schema double the braces.
func (n names) expand(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		sub := placeholder.FindStringSubmatch(m)
		switch word := sub[1]; {
		case word == "event":
			return n.event
		case slices.Contains(ownTables, word):
			return n.table(word)
		case word == "name":
			return n.name(sub[2])
		}
		if f, ok := n.words[sub[1]]; ok {
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
