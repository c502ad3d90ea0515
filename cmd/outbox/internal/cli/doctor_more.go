package cli

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// retention compares the oldest events that can still be replayed with the time for which consumers
// remember events. Each consumer may have declared that time, and --dedup-window is another one.
func (x *examination) retention(ctx context.Context) error {
	declared, err := x.api.Windows(ctx)
	if err != nil || x.noTables {
		return err
	}
	for _, w := range declared {
		if w.Keep == ops.Forever {
			continue
		}
		if err := x.kept(ctx, ops.Filter{Topic: w.Topic}, w.Keep, "consumer "+w.Consumer); err != nil {
			return err
		}
	}
	switch {
	case x.dedupWindow > 0:
		return x.kept(ctx, ops.Filter{}, x.dedupWindow, "--dedup-window")
	case len(declared) == 0:
		x.fine("no consumer has declared how long it remembers events")
	default:
		x.otherwise("the consumers that declared a window remember events for ever")
	}
	return nil
}

const maxLooks = 10 // pages of ops.MaxLook rows in which an event of a topic is looked for

// kept compares the age of the oldest done event that a filter selects with the time for which
// consumers remember events. who names the consumer or the flag from which this time comes.
func (x *examination) kept(ctx context.Context, f ops.Filter, remembers time.Duration, who string) error {
	of := ""
	if f.Topic != "" {
		of = " of " + f.Topic
	}
	f.Statuses = []ops.Status{ops.StatusDone}
	q := ops.ListQuery{Filter: f, Limit: 1}
	page, err := x.api.List(ctx, q)
	for looks := 1; looks < maxLooks && err == nil && len(page.Events) == 0 && page.Next != ""; looks++ {
		q.After = page.Next
		page, err = x.api.List(ctx, q)
	}
	if err != nil {
		return err
	}
	if len(page.Events) == 0 && page.Next != "" {
		x.fine(fmt.Sprintf("no event%s is among the %d oldest", of, maxLooks*ops.MaxLook))
		return nil
	}
	for _, e := range page.Events {
		if kept := e.ReadAt.Sub(e.DoneAt); kept > remembers {
			x.warn(fmt.Sprintf("an event%s that was published %s ago is still in the table, and %s says %s", of,
				age(kept), who, age(remembers)),
				"consumers that have forgotten an event would process it again when it is replayed; outbox "+
					"replay plan refuses it if a consumer has declared so",
				"keep events for a shorter time (Retention.Keep, --keep of the relay), or let consumers "+
					"remember longer (Retention of the inbox)")
			return nil
		}
	}
	x.fine(fmt.Sprintf("no event%s is kept for longer than %s (%s)", of, age(remembers), who))
	return nil
}

// maxOverdue is how many effects of a channel doctor looks at.
const maxOverdue = 100

// effects looks for effects that nothing will execute.
func (x *examination) effects(ctx context.Context) error {
	there, err := x.db.hasTable(ctx, x.schema, x.effectsPrefix+"side_effect_command")
	if err != nil || !there {
		return err
	}
	store, err := sqlcommand.New(x.db.DB, sqlcommand.Config{
		Dialect: x.db.dialect, Schema: x.schema, Prefix: x.effectsPrefix,
	})
	if err != nil {
		return err
	}
	shared, err := store.Shared(ctx)
	if err != nil {
		return err
	}
	for _, channel := range slices.Sorted(maps.Keys(shared)) {
		x.warn("the effects of channel "+channel+" are executed by "+strings.Join(shared[channel], " and "),
			"two services chose one name: each effect is executed by one of them",
			"give one of them another channel. A program that was renamed is forgotten after a week")
	}
	channels, err := store.Backlog(ctx, maxOverdue)
	if err != nil {
		return err
	}
	for _, b := range channels {
		if b.Dead > 0 {
			x.warn(fmt.Sprintf("dead effects: %d of %s", b.Dead, b.Channel),
				"their destination refused them, and the worker has given them up",
				"see `outbox effects list`, fix the cause, then `outbox effects redrive` or "+
					"`outbox effects discard`")
		}
		overdue, err := store.Overdue(ctx, b.Channel, x.overdue, maxOverdue)
		if err != nil {
			return err
		}
		alone, err := withoutEvent(ctx, x.api, overdue)
		if err != nil {
			return err
		}
		if len(alone) > 0 {
			x.fail(fmt.Sprintf("%d effects of %s have been due for %s, and no event wakes a worker: %s", len(alone),
				b.Channel, age(x.overdue), short(strings.Join(alone, ", "))),
				"their events were discarded or deleted, or are in another outbox; only Worker.Run executes "+
					"such effects",
				"let a process call Worker.Run, or `outbox effects redrive ID`")
		}
	}
	x.otherwise("none is dead, and an event wakes each that is due")
	return nil
}

// withoutEvent returns the ids of the effects that have no event any more.
func withoutEvent(ctx context.Context, api *ops.API, effects []command.Record) (ids []string, err error) {
	for _, e := range effects {
		n, err := api.Count(ctx, ops.Filter{
			Statuses: []ops.Status{ops.StatusNew, ops.StatusRetry, ops.StatusDead}, Topic: command.Topic(e.Channel),
			AggregateID: e.ID,
		})
		if err != nil {
			return nil, err
		}
		if n.N == 0 && !n.More {
			ids = append(ids, e.ID)
		}
	}
	return ids, nil
}

// versions looks for tables of several versions: migrations that are missing or that this program
// does not know, and tables of other prefixes.
func (x *examination) versions(ctx context.Context) error {
	for _, k := range kinds {
		p := place{Dialect: x.db.dialect, Schema: x.schema, Prefix: k.prefix}
		switch k.name {
		case "outbox":
			p.Prefix = x.prefix
		case "effects":
			p.Prefix = x.effectsPrefix
		}
		if err := x.migrated(ctx, k, p); err != nil {
			return err
		}
	}
	others, err := x.db.outboxTables(ctx)
	if err != nil {
		return err
	}
	for _, prefix := range others {
		if prefix == x.prefix {
			continue
		}
		before := len(x.all)
		if err := x.migrated(ctx, kinds[0], place{x.db.dialect, x.schema, prefix}); err != nil {
			return err
		}
		if len(x.all) == before {
			x.fine(fmt.Sprintf("another outbox has the prefix %q", prefix))
		}
	}
	if !x.noTables {
		x.otherwise("all tables are of this version")
	}
	return nil
}

// migrated compares the recorded migrations with this program's. It finds nothing if no migration
// was recorded.
func (x *examination) migrated(ctx context.Context, k kind, p place) error {
	list, err := x.db.appliedOf(ctx, k, p)
	if err != nil || len(list) == 0 {
		return err
	}
	known, err := k.migrations(p)
	if err != nil {
		return err
	}
	newest := known[len(known)-1].Version
	for _, v := range list {
		if v.version > newest {
			x.warn(fmt.Sprintf("the tables %s of the prefix %q are of version %d, and this program knows %d", k.name,
				p.Prefix, v.version, newest),
				"a newer version made them: what this program finds and does may be wrong",
				"use the program and the module of that version")
			return nil
		}
	}
	for _, m := range known {
		if !slices.ContainsFunc(list, func(v applied) bool { return v.version == m.Version }) {
			x.warn(fmt.Sprintf("the tables %s of the prefix %q lack migration %04d_%s", k.name, p.Prefix, m.Version,
				m.Name),
				"processes of this version do not start there, or lack what the migration brings; if a service "+
					"uses another prefix, these tables are left over, and nobody relays them",
				"`outbox migrate up --tables "+k.name+"` with that --prefix, or drop tables that nobody uses")
			return nil
		}
	}
	return nil
}

// outboxTables returns the prefixes of the tables of events in the database. On MySQL it fails for
// a role that may not see all tables.
func (db *database) outboxTables(ctx context.Context) (prefixes []string, err error) {
	query := map[core.Dialect]string{
		core.Postgres: "SELECT c.relname FROM pg_catalog.pg_class c " +
			"JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace " +
			"JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = 'claim_no' AND NOT a.attisdropped " +
			"WHERE c.relkind IN ('r', 'p') AND n.nspname = current_schema() ORDER BY 1",
		core.MySQL: "SELECT table_name FROM information_schema.columns WHERE column_name = 'claim_no' " +
			"AND table_schema = DATABASE() ORDER BY 1",
		core.SQLite: "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%claim_no%' ORDER BY 1",
	}[db.dialect]
	if db.dialect == core.MySQL {
		if _, err := db.hasTable(ctx, "", "outbox_of_nobody"); err != nil { // it is refused, and not missing
			return nil, err
		}
	}
	err = db.each(ctx, query, nil, func(rows *sql.Rows) error {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		if prefix, ok := strings.CutSuffix(name, "event"); ok {
			prefixes = append(prefixes, prefix)
		}
		return nil
	})
	return prefixes, err
}

// recentTopics returns the topics of the newest events.
func (x *examination) recentTopics(ctx context.Context) (topics []string, err error) {
	query := "SELECT DISTINCT topic FROM (SELECT topic FROM " + x.db.quote(x.schema, x.prefix+"event") +
		" ORDER BY id DESC LIMIT 1000) e ORDER BY topic"
	err = x.db.each(ctx, query, nil, func(rows *sql.Rows) error {
		var topic string
		if err := rows.Scan(&topic); err != nil {
			return err
		}
		if !strings.HasPrefix(topic, core.ServedTopicPrefix) {
			topics = append(topics, topic)
		}
		return nil
	})
	return topics, err
}

// overdueAfter is how long an effect may be due before doctor looks for its event.
const overdueAfter = 15 * time.Minute
