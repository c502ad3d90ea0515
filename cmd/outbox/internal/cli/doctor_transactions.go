package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/ormoutbox/ormoutbox/core"
)

// maxHorizon is how many transactions a standby or a slot may be behind, unless another number is
// asked for.
const maxHorizon = 1_000_000

// transactions looks for transactions that are open or prepared for long, and on PostgreSQL for
// standbys and slots that keep old rows alive as an open transaction does.
func (x *examination) transactions(ctx context.Context) (err error) {
	looks := map[core.Dialect][]func(context.Context) error{
		core.Postgres: {x.preparedPostgres, x.horizon, x.sessionsPostgres},
		core.MySQL:    {x.transactionsMySQL},
	}[x.db.dialect]
	for _, look := range looks {
		err = errors.Join(err, look(ctx))
	}
	if looks != nil && err == nil {
		x.otherwise("none has been open for longer than " + age(x.transaction))
	}
	return err
}

// open warns of a transaction that has been open or prepared for too long.
func (x *examination) open(what string, secs float64, fix string) {
	if d := seconds(secs); d > x.transaction {
		x.warn(what+" for "+age(d), "its events are not published, the keys it has published for wait, and old "+
			"versions of rows stay in the table, which slows claims down", fix)
	}
}

// sessionsPostgres looks at the sessions of the database. Without the right to see it, a session of
// another role has no type and no times.
func (x *examination) sessionsPostgres(ctx context.Context) error {
	var secs float64
	var hidden int
	err := x.db.QueryRowContext(ctx, `SELECT COALESCE(max(extract(epoch FROM clock_timestamp() - xact_start))
 FILTER (WHERE backend_type = 'client backend'), 0)::float8, count(*) FILTER (WHERE backend_type IS NULL)
FROM pg_catalog.pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND usesysid IS NOT NULL`).Scan(&secs, &hidden)
	if err != nil {
		return err
	}
	x.open("a transaction has been open", secs, "find it in pg_stat_activity (xact_start), and end it")
	if hidden > 0 {
		return &hiddenError{
			what: "transactions of " + many(hidden, "session") + " of other roles", right: "pg_read_all_stats",
			grant: "GRANT pg_read_all_stats TO " + x.db.role(ctx),
		}
	}
	return nil
}

func (x *examination) preparedPostgres(ctx context.Context) error {
	var id string
	var secs float64
	err := x.db.QueryRowContext(ctx, `SELECT quote_literal(gid),
 extract(epoch FROM clock_timestamp() - prepared)::float8
FROM pg_catalog.pg_prepared_xacts WHERE database = current_database() ORDER BY prepared LIMIT 1`).Scan(&id, &secs)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	id = short(id)
	x.open("transaction "+id+" has been prepared", secs, "COMMIT PREPARED "+id+", or ROLLBACK PREPARED "+id+
		": the transaction manager that prepared it knows which")
	return err
}

// transactionsMySQL looks at the sessions of the database, and at prepared transactions, which have
// none and whose database is not known. The join begins with the table that is refused, and not
// empty, for a role without the right.
func (x *examination) transactionsMySQL(ctx context.Context) error {
	var open, prepared float64
	query := `SELECT COALESCE(MAX(CASE WHEN t.thread <> 0 THEN t.us END), 0) / 1e6,
 COALESCE(MAX(CASE WHEN t.thread = 0 THEN t.us END), 0) / 1e6
FROM (SELECT trx_mysql_thread_id AS thread, TIMESTAMPDIFF(MICROSECOND, trx_started, NOW(6)) AS us
 FROM information_schema.innodb_trx) t LEFT JOIN information_schema.processlist p ON p.id = t.thread
WHERE t.thread = 0 OR p.db = DATABASE() AND p.id <> CONNECTION_ID()`
	err := x.db.QueryRowContext(ctx, query).Scan(&open, &prepared)
	if m, ok := errors.AsType[*mysql.MySQLError](err); ok && m.Number == 3854 {
		// MySQL cannot show the binary text of somebody's statement in that table. MariaDB can, and
		// need not have the other one.
		query = strings.Replace(query, "information_schema.processlist", "performance_schema.processlist", 1)
		err = x.db.QueryRowContext(ctx, query).Scan(&open, &prepared)
	}
	if err != nil {
		return err
	}
	x.open("a transaction has been open", open, "find it in information_schema.innodb_trx (trx_started), and end it")
	x.open("a transaction of this server has been prepared", prepared, "XA RECOVER lists it; XA COMMIT or XA "+
		"ROLLBACK ends it: the transaction manager that prepared it knows which")
	return nil
}

// horizon looks for standbys and slots that keep old rows alive. Every role sees how far they are.
func (x *examination) horizon(ctx context.Context) error {
	const fromSlots = " FROM pg_catalog.pg_replication_slots WHERE COALESCE(wal_status, '') <> 'lost' AND "
	query := `SELECT 'standby', COALESCE(NULLIF(application_name, ''), pid::text), age(backend_xmin)::bigint AS n
FROM pg_catalog.pg_stat_replication WHERE backend_xmin IS NOT NULL
UNION ALL SELECT 'slot', slot_name, age(xmin)::bigint` + fromSlots + `xmin IS NOT NULL
UNION ALL SELECT 'catalogs', slot_name, age(catalog_xmin)::bigint` + fromSlots + `xmin IS NULL AND
 catalog_xmin IS NOT NULL
ORDER BY n DESC`
	return x.db.each(ctx, query, nil, func(rows *sql.Rows) error {
		var kind, name string
		var n int64
		if err := rows.Scan(&kind, &name, &n); err != nil || n <= x.horizonLimit {
			return err
		}
		name = short(name)
		old := "rows"
		cause := "no vacuum removes old versions of rows of events, which slows claims down"
		fix := "start what reads the slot, or drop it if nobody needs it: SELECT pg_drop_replication_slot('NAME')"
		switch kind {
		case "standby":
			fix = "end the oldest query there, or turn hot_standby_feedback off there"
		case "catalogs":
			kind, old = "slot", "rows of the catalogs"
			cause = "no vacuum removes them, and PostgreSQL stops at two billions"
		}
		x.warn(fmt.Sprintf("%s %s keeps the old %s of %d transactions alive", kind, name, old, n), cause, fix)
		return nil
	})
}
