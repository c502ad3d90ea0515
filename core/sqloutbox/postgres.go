package sqloutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// postgres implements database: most calls are one statement. Parameters are cast, so that every
// driver may send them as text. Lists are sent as the text of an array.
type postgres struct {
	pool
	postgresInserts
	postgresClaims
	postgresLeaving
	postgresMarks
	postgresAdmin
	postgresArchive
	postgresJanitor
}

func newPostgres(p pool, n names) database {
	return &postgres{
		pool: p, postgresInserts: newPostgresInserts(n),
		postgresClaims:  postgresClaims{pool: p, sql: newPostgresClaimStatements(n)},
		postgresLeaving: postgresLeaving{p, postgresLeavingStatements{leaveKeys: n.expand(postgresLeaveKeys)}},
		postgresMarks:   postgresMarks{p, newPostgresMarkStatements(n)},
		postgresAdmin:   postgresAdmin{p, newPostgresAdminStatements(n)},
		postgresArchive: postgresArchive{p, newPostgresArchiveStatements(n.expand)},
		postgresJanitor: postgresJanitor{p, newPostgresJanitorStatements(n.expand)},
	}
}

// postgresSlot is the number of the slot of the history that lasts now.
const postgresSlot = "floor(extract(epoch from statement_timestamp()) / 300)::bigint"

var postgresWords = map[string]word{
	"now": fixed("statement_timestamp()"),
	// An infinite time, which only another program writes, is NULL: it must not fail the statement,
	// which reads other rows too.
	"us": func(_ names, arg string) string {
		return "CASE WHEN isfinite(" + arg + ") THEN (extract(epoch from " + arg + ")*1000000)::bigint END"
	},
	"clock": fixed("(extract(epoch from clock_timestamp())*1000000)::bigint"),

	"slot":  fixed("to_timestamp(" + postgresSlot + " * 300)"),
	"of":    func(_ names, arg string) string { return postgresSlot + "::text || ':' || " + ofTopic(arg) },
	"ofago": fixed("(" + postgresSlot + " - $1::bigint)::text || ':'"),
	"later": fixed("slot + interval '1 hour'"),
	"sum":   func(_ names, arg string) string { return "SUM(" + arg + ")::bigint" },

	// rows selects the rows of a list in the same statement. An address identifies a row only
	// within a partition, so a partitioned table needs the ids. There the bounds of the list let
	// PostgreSQL leave out the other partitions.
	"rows": func(n names, list string) string {
		if !n.partitioned {
			return "e.ctid = ANY (ARRAY(SELECT tid FROM " + list + "))"
		}
		return "e.id = ANY (ARRAY(SELECT id FROM " + list + ")) AND e.id >= (SELECT id FROM " + list +
			" ORDER BY id LIMIT 1) AND e.id <= (SELECT id FROM " + list + " ORDER BY id DESC LIMIT 1)"
	},
	// Words of rowwise, for statements that are written once for every database.
	"use":    fixed(""),
	"bin":    func(_ names, arg string) string { return arg },
	"topic":  fixed("e.topic"),
	"ready":  fixed("e.status IN (0,2) AND e.lane IS NULL AND "),
	"lane":   fixed("e.lane"),
	"inlane": fixed("e.status IN (0,2,3) AND e.lane IS NOT NULL AND "),
	"isdead": fixed("e.status = 3"),

	"row":    either("tid", "id"),
	"and_id": either("", "e.id, "),
	"same":   either("", "h.id = p.id AND "),
	// read is how many entries of an index a transaction has read.
	"read": func(n names, index string) string {
		index = "to_regclass('" + n.table(index) + "')"
		if !n.partitioned {
			return "pg_stat_get_xact_tuples_returned(" + index + ")"
		}
		return "(SELECT sum(pg_stat_get_xact_tuples_returned(i.inhrelid)) FROM pg_catalog.pg_inherits i " +
			"WHERE i.inhparent = " + index + ")::bigint"
	},
}

// either is a piece of a text for a table without partitions, and with them.
func either(without, with string) word {
	return func(n names, _ string) string {
		if n.partitioned {
			return with
		}
		return without
	}
}

// read has a fixed plan too, so that its order is the index's.
func (p *postgres) read(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	return p.scan(ctx, what, fn)
}

func (p *postgres) write(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	return p.single(ctx, what, fn)
}
