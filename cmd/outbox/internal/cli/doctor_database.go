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
			levelFailure,
			"a crash of the machine may destroy the database",
		},
		{
			"full_page_writes", "SELECT current_setting('full_page_writes')",
			[]string{"on"},
			levelFailure,
			"a crash of the machine may destroy pages",
		},
		{
			"synchronous_commit", "SELECT current_setting('synchronous_commit')",
			[]string{"on", "local", "remote_write", "remote_apply"},
			levelWarning,
			"a crash loses the last commits, and with them events that were published already",
		},
	},
	core.MySQL: {
		{
			"innodb_flush_log_at_trx_commit", "SELECT @@innodb_flush_log_at_trx_commit",
			[]string{"1"},
			levelWarning,
			"a crash loses the commits of the last second, and with them events that were published already",
		},
		{
			"sync_binlog", "SELECT CASE WHEN @@log_bin = 0 THEN 1 ELSE @@sync_binlog END",
			[]string{"1"},
			levelWarning,
			"after a crash replicas may have other commits than the primary",
		},
	},
	core.SQLite: {
		{
			"synchronous", "PRAGMA synchronous",
			[]string{"2", "3"},
			levelWarning,
			"a loss of power may lose the last commits",
		},
		{
			"journal_mode", "PRAGMA journal_mode",
			[]string{"wal"},
			levelWarning,
			"readers and the relay wait for every writer",
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

func (x *examination) durability(ctx context.Context) (all []finding, err error) {
	for _, s := range durable[x.db.dialect] {
		var value string
		if err := x.db.QueryRowContext(ctx, s.query).Scan(&value); err != nil {
			return all, err
		}
		all = append(all, s.judge("durability", value))
	}
	return all, nil
}

func (x *examination) isolation(ctx context.Context) ([]finding, error) {
	query := map[core.Dialect]string{
		core.Postgres: "SELECT current_setting('default_transaction_isolation')",
		core.MySQL:    "SELECT @@tx_isolation",
	}[x.db.dialect]
	if query == "" {
		return nil, nil
	}
	var value string
	err := x.db.QueryRowContext(ctx, query).Scan(&value)
	if err != nil && x.db.dialect == core.MySQL { // MySQL has dropped the old name, and MariaDB 10 lacks the new one
		err = x.db.QueryRowContext(ctx, "SELECT @@transaction_isolation").Scan(&value)
	}
	if err != nil {
		return nil, err
	}
	value = strings.ToLower(strings.ReplaceAll(value, "-", " "))
	if value == "serializable" || value == "repeatable read" && x.db.dialect == core.Postgres {
		return []finding{{
			Check: "isolation", Level: levelWarning, Found: "the default isolation is " + value,
			Cause: "transactions that publish for the same key fail with serialization errors, and have to be repeated",
			Fix:   "use read committed for them, or repeat them when they fail",
		}}, nil
	}
	return []finding{fine("isolation", "the default isolation is "+value)}, nil
}

// silence says what the Repository knows that the database does and tells nobody.
func (x *examination) silence(ctx context.Context) (all []finding, err error) {
	w, ok := x.ob.Repository().(core.Warner)
	if !ok || x.db.dialect == core.SQLite {
		return nil, nil
	}
	warnings, err := w.Warnings(ctx)
	for _, one := range warnings {
		all = append(all, finding{"silence", levelWarning, one.Found, one.Cause, one.Fix})
	}
	if err == nil && len(all) == 0 {
		all = append(all, fine("silence", "nothing is hidden, and no transaction ends unnoticed"))
	}
	return all, err
}

func (x *examination) clock(ctx context.Context) ([]finding, error) {
	query := map[core.Dialect]string{
		core.Postgres: "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
		core.MySQL:    "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
		core.SQLite:   "SELECT " + sqliteNow,
	}[x.db.dialect]
	var us int64
	before := x.now()
	if err := x.db.QueryRowContext(ctx, query).Scan(&us); err != nil {
		return nil, err
	}
	after := x.now()
	// The answer was made between both: only what lies outside is a difference.
	there := time.UnixMicro(us)
	skew := max(before.Sub(there), there.Sub(after), 0)
	if skew > x.skew {
		return []finding{{
			Check: "clock", Level: levelWarning, Found: "the clocks differ by " + age(skew),
			Cause: "leases and due times are of the database's clock, times of events and logs of the services' clocks",
			Fix:   "synchronize both machines (chrony, systemd-timesyncd)",
		}}, nil
	}
	return []finding{fine("clock", "the clocks agree")}, nil
}

func (x *examination) transactions(ctx context.Context) ([]finding, error) {
	query := map[core.Dialect]string{
		core.Postgres: `SELECT COALESCE(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
AND backend_type = 'client backend'`,
		core.MySQL: `SELECT COALESCE(MAX(TIMESTAMPDIFF(MICROSECOND, t.trx_started, NOW(6))), 0) / 1e6
FROM information_schema.innodb_trx t JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
WHERE p.db = DATABASE() AND p.id <> CONNECTION_ID()`,
	}[x.db.dialect]
	if query == "" {
		return nil, nil
	}
	var secs float64
	if err := x.db.QueryRowContext(ctx, query).Scan(&secs); err != nil {
		return nil, err
	}
	oldest := seconds(secs)
	if oldest > x.transaction {
		return []finding{{
			Check: "transactions", Level: levelWarning, Found: "a transaction has been open for " + age(oldest),
			Cause: "its events are not published, the keys it has published for wait, and old versions of rows stay " +
				"in the table, which slows claims down",
			Fix: "find it in pg_stat_activity (xact_start) or information_schema.innodb_trx (trx_started), and end it",
		}}, nil
	}
	return []finding{fine("transactions", "none has been open for longer than "+age(x.transaction))}, nil
}

func (x *examination) vacuum(ctx context.Context) ([]finding, error) {
	if x.db.dialect != core.Postgres {
		return nil, nil
	}
	var on bool
	var tuples int64
	err := x.db.QueryRowContext(ctx, `SELECT current_setting('autovacuum') = 'on'
 AND NOT COALESCE('autovacuum_enabled=false' = ANY (c.reloptions) OR 'autovacuum_enabled=off' = ANY (c.reloptions),
  false),
 COALESCE(pg_stat_get_dead_tuples(c.oid), 0)
FROM pg_class c WHERE c.oid = to_regclass($1::text)`, x.db.quote(x.schema, x.prefix+"event")).Scan(&on, &tuples)
	if err != nil {
		return nil, err
	}
	var all []finding
	const cause = "every mark leaves an old version of its row; if nothing removes them, claims read them again " +
		"and again"
	if !on {
		all = append(all, finding{
			Check: "vacuum", Level: levelFailure, Found: "autovacuum is off", Cause: cause,
			Fix: "turn autovacuum on, for the server and for the table (ALTER TABLE ... RESET (autovacuum_enabled))",
		})
	}
	if tuples > x.deadTuples {
		all = append(all, finding{
			Check: "vacuum", Level: levelWarning, Found: fmt.Sprintf("the table of events has %d dead tuples", tuples),
			Cause: cause,
			Fix:   "end the oldest transaction, and see in pg_stat_user_tables when autovacuum came last",
		})
	}
	if len(all) == 0 {
		all = append(all, fine("vacuum", fmt.Sprintf("at most %d dead tuples", x.deadTuples)))
	}
	return all, nil
}

// pooler finds out whether sessions are shared between PostgreSQL and this program. A pooler gives
// its clients other process ids than the server has. In transaction mode a second client gets the
// session of a first one that is still connected.
func (x *examination) pooler(ctx context.Context) (all []finding, err error) {
	if x.db.dialect != core.Postgres {
		return nil, nil
	}
	first, err := x.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, first.Close()) }()
	second, err := x.db.Conn(ctx)
	if err != nil {
		return nil, err
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
		return nil, err
	}
	between := false
	for range 5 { // another client may have taken the session meanwhile
		one, err := backend(ctx, first)
		if err != nil {
			return nil, err
		}
		other, err := backend(ctx, second)
		if err != nil {
			return nil, err
		}
		between = between || one != told
		if one == other {
			return []finding{{
				Check: "pooler", Level: levelWarning, Found: "sessions are shared: a pooler in transaction mode",
				Cause: "LISTEN is not heard there, so that relays find events only when they poll; a driver that " +
					"names prepared statements fails",
				Fix: "give relays and pgxoutbox.Listen the address of PostgreSQL itself; services need a driver mode " +
					"without named statements (pgx: default_query_exec_mode=exec)",
			}}, nil
		}
	}
	if between {
		return []finding{fine("pooler", "one is between, and gives each client a session")}, nil
	}
	return []finding{fine("pooler", "none is between")}, nil
}

func backend(ctx context.Context, c *sql.Conn) (pid uint32, err error) {
	err = c.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid)
	return pid, err
}
