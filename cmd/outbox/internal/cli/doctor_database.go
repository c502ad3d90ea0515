package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ormoutbox/ormoutbox/core"
)

// setting is a setting of a server, with the values that are safe.
type setting struct {
	name, query string
	safe        []string
	level       string
	cause       string
}

var durable = map[core.Dialect][]setting{
	core.Postgres: {
		{
			"fsync", "SELECT current_setting('fsync')",
			[]string{"on"},
			levelFailure, "a crash of the machine may destroy the database",
		},
		{
			"full_page_writes", "SELECT current_setting('full_page_writes')",
			[]string{"on"},
			levelFailure, "a crash of the machine may destroy pages",
		},
		{
			"synchronous_commit", "SELECT current_setting('synchronous_commit')",
			[]string{"on", "local", "remote_write", "remote_apply"},
			levelWarning, "a crash loses the last commits, and with them events that were published already",
		},
	},
	core.MySQL: {
		{
			"innodb_flush_log_at_trx_commit", "SELECT @@innodb_flush_log_at_trx_commit",
			[]string{"1"},
			levelWarning, "a crash loses the commits of the last second, and with them events that were published " +
				"already",
		},
		{
			"sync_binlog", "SELECT CASE WHEN @@log_bin = 0 THEN 1 ELSE @@sync_binlog END",
			[]string{"1"},
			levelWarning, "after a crash replicas may have other commits than the primary",
		},
	},
	core.SQLite: {
		{
			"synchronous", "PRAGMA synchronous",
			[]string{"2", "3"},
			levelWarning, "a loss of power may lose the last commits",
		},
		{
			"journal_mode", "PRAGMA journal_mode",
			[]string{"wal"},
			levelWarning, "readers and the relay wait for every writer",
		},
	},
}

// judge compares the value of a setting with the safe ones.
func (s setting) judge(check, value string) finding {
	if slices.Contains(s.safe, strings.ToLower(value)) {
		return fine(check, s.name+" is "+value)
	}
	return finding{
		Check: check, Level: s.level, Found: s.name + " is " + value, Cause: s.cause,
		Fix: fmt.Sprintf("set %s to %s", s.name, s.safe[0]),
	}
}

func (x *examination) durability(ctx context.Context) error {
	for _, s := range durable[x.db.dialect] {
		var value string
		if err := x.db.QueryRowContext(ctx, s.query).Scan(&value); err != nil {
			return err
		}
		x.all = append(x.all, s.judge("durability", value))
	}
	return nil
}

func (x *examination) isolation(ctx context.Context) error {
	query := map[core.Dialect]string{
		core.Postgres: "SELECT current_setting('default_transaction_isolation')",
		core.MySQL:    "SELECT @@tx_isolation",
	}[x.db.dialect]
	if query == "" {
		return nil
	}
	var value string
	err := x.db.QueryRowContext(ctx, query).Scan(&value)
	if err != nil && x.db.dialect == core.MySQL { // MySQL has dropped the old name, and MariaDB 10 lacks the new one
		err = x.db.QueryRowContext(ctx, "SELECT @@transaction_isolation").Scan(&value)
	}
	if err != nil {
		return err
	}
	value = strings.ToLower(strings.ReplaceAll(value, "-", " "))
	if value == "serializable" || value == "repeatable read" && x.db.dialect == core.Postgres {
		x.warn("the default isolation is "+value,
			"transactions that publish for the same key fail with serialization errors, and have to be repeated",
			"use read committed for them, or repeat them when they fail")
	}
	x.otherwise("the default isolation is " + value)
	return nil
}

// silence reports the Repository's warnings.
func (x *examination) silence(ctx context.Context) error {
	if x.db.dialect == core.SQLite {
		return nil
	}
	warnings, err := x.ob.Repository().Warnings(ctx)
	for _, one := range warnings {
		x.warn(one.Found, one.Cause, one.Fix)
	}
	if err == nil {
		x.otherwise("nothing is hidden, and no transaction ends unnoticed")
	}
	return err
}

func (x *examination) clock(ctx context.Context) error {
	query := map[core.Dialect]string{
		core.Postgres: "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
		core.MySQL:    "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
		core.SQLite:   "SELECT " + sqliteNow,
	}[x.db.dialect]
	var us int64
	before := x.now()
	if err := x.db.QueryRowContext(ctx, query).Scan(&us); err != nil {
		return err
	}
	after := x.now()
	// The answer was made between the two times: only a time outside of them is a difference.
	there := time.UnixMicro(us)
	skew := max(before.Sub(there), there.Sub(after), 0)
	if skew > x.skew {
		x.warn("the clocks differ by "+age(skew),
			"leases and due times are of the database's clock, times of events and logs of the services' clocks",
			"synchronize both machines (chrony, systemd-timesyncd)")
	}
	if err := x.clocksOfRelays(ctx); err != nil {
		return err
	}
	x.otherwise("the clocks agree")
	return nil
}

// clocksOfRelays compares the clock with the heartbeats of relays. In a cluster they may have been
// written at other nodes of the database, each with a clock of its own. A heartbeat in the future
// tells at once. An old one tells if the next one is as old.
func (x *examination) clocksOfRelays(ctx context.Context) error {
	first, err := x.ob.Relays(ctx)
	if err != nil {
		return nil //nolint:nilerr // the tables may be missing, which is another check's finding
	}
	tell := func(node string, by time.Duration, way string) {
		x.warn(fmt.Sprintf("the database's clock at relay %s is %s %s", node, age(by), way),
			"the nodes of the database differ: leases end too early, or events come late, by that much",
			"synchronize the machines of the database (chrony, systemd-timesyncd)")
	}
	old := map[string]time.Time{}
	for _, r := range first {
		switch {
		case r.Ahead > x.skew:
			tell(r.Node, r.Ahead, "ahead")
		case r.Age > heartbeatLate+x.skew && r.Age < time.Minute: // else its process is gone
			old[r.Node] = r.SeenAt
		}
	}
	for end := x.now().Add(heartbeatLate); len(old) > 0 && x.now().Before(end); {
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		now, err := x.ob.Relays(ctx)
		if err != nil {
			return err
		}
		for _, r := range now {
			if before, ok := old[r.Node]; ok && !before.Equal(r.SeenAt) {
				delete(old, r.Node)
				if r.Age > x.skew {
					tell(r.Node, r.Age, "behind")
				}
			}
		}
	}
	return nil
}

// heartbeatLate is the longest time between two heartbeats of a relay, with some room.
const heartbeatLate = 13 * time.Second

func (x *examination) vacuum(ctx context.Context) error {
	if x.db.dialect != core.Postgres {
		return nil
	}
	var on bool
	var tuples int64
	err := x.db.QueryRowContext(ctx, `SELECT current_setting('autovacuum') = 'on'
 AND NOT COALESCE('autovacuum_enabled=false' = ANY (c.reloptions) OR 'autovacuum_enabled=off' = ANY (c.reloptions),
  false),
 COALESCE(pg_stat_get_dead_tuples(c.oid), 0)
FROM pg_class c WHERE c.oid = to_regclass($1::text)`, x.db.quote(x.schema, x.prefix+"event")).Scan(&on, &tuples)
	if err != nil {
		return err
	}
	const cause = "every mark leaves an old version of its row; if nothing removes them, claims read them again " +
		"and again"
	if !on {
		x.fail("autovacuum is off",
			cause,
			"turn autovacuum on, for the server and for the table (ALTER TABLE ... RESET (autovacuum_enabled))")
	}
	if tuples > x.deadTuples {
		x.warn(fmt.Sprintf("the table of events has %d dead tuples", tuples),
			cause,
			"end the oldest transaction, and see in pg_stat_user_tables when autovacuum came last")
	}
	x.otherwise(fmt.Sprintf("at most %d dead tuples", x.deadTuples))
	return nil
}

// pooler finds out whether sessions are shared between PostgreSQL and this program. A pooler gives
// its clients other process ids than the server has. In transaction mode a second client gets the
// session of a first client that is still connected.
func (x *examination) pooler(ctx context.Context) error {
	if x.db.dialect != core.Postgres {
		return nil
	}
	first, err := x.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first.Close()) }()
	second, err := x.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, second.Close()) }()
	var told uint32
	err = first.Raw(func(c any) error {
		conn, ok := c.(*stdlib.Conn)
		if !ok {
			return errors.ErrUnsupported
		}
		told = conn.Conn().PgConn().PID()
		return nil
	})
	if err != nil {
		return err
	}
	between := false
	for range 5 { // another client may have taken the session meanwhile
		one, err := backend(ctx, first)
		if err != nil {
			return err
		}
		other, err := backend(ctx, second)
		if err != nil {
			return err
		}
		between = between || one != told
		if one == other {
			x.warn("sessions are shared: a pooler in transaction mode",
				"LISTEN is not heard there, so that relays find events only when they poll; a driver that "+
					"names prepared statements fails",
				"give relays and pgxoutbox.Listen the address of PostgreSQL itself; services need a driver mode "+
					"without named statements (pgx: default_query_exec_mode=exec)")
			return nil
		}
	}
	if between {
		x.fine("a pooler in session mode")
		return nil
	}
	x.fine("direct connection")
	return nil
}

func backend(ctx context.Context, c *sql.Conn) (pid uint32, err error) {
	err = c.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid)
	return pid, err
}
