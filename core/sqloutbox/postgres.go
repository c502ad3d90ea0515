package sqloutbox

import (
	"context"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// postgres implements database: most calls are one statement. Parameters are cast, so that every
// driver may send them as text. Lists are sent as the text of an array.
type postgres struct {
	pool
	sql     *postgresStatements
	cursors cursors
}

func newPostgres(p pool, n names) database { return &postgres{pool: p, sql: newPostgresStatements(n)} }

type postgresStatements struct {
	names   names
	planner string

	insertOne *shaped
	insert    [2][cachedRows + 1]*sized // with rows of a reader of the log; by the number of lanes

	claimUnordered, claimHeads, claimLane, nextDue string

	done, doneReceipts, doneDelete, failed, beginSuspect, renew, release string

	unlocked, markable, held string

	backlog, listDead, redrive, discard, deadForAppend, keyNext, append, discardDead, audit string
	doneForReplay, replay                                                                   string

	cleanup, archivable, archiveRows, archiveDelete string
	collectLock, collectDelete, resetKeys           string
}

func newPostgresStatements(n names) *postgresStatements {
	text := n.expand
	mark := func(t string) string { return text(bounded(n, t)) }
	s := &postgresStatements{
		names:   n,
		planner: postgresPlanner,

		insertOne: newShaped(n, postgresInsertOne),

		claimUnordered: text(postgresClaimUnordered),
		claimHeads:     text(postgresClaimHeads),
		claimLane:      text(postgresClaimKey),
		nextDue:        text(postgresNextDue),

		done:         mark(postgresDone),
		doneReceipts: mark(postgresDoneReceipts),
		doneDelete:   mark(postgresDoneDelete),
		failed:       mark(postgresFailed),
		beginSuspect: mark(postgresBeginSuspect),
		renew:        mark(postgresRenew),
		release:      mark(postgresRelease),

		unlocked: mark(postgresUnlocked),
		markable: mark(postgresMarkable),
		held:     mark(postgresHeld),

		backlog:       text(postgresBacklog),
		listDead:      text(postgresListDead),
		redrive:       text(postgresRedrive),
		discard:       text(postgresDiscard),
		deadForAppend: text(postgresDeadForAppend),
		keyNext:       text(postgresUpsertKey),
		append:        text(postgresAppend),
		discardDead:   text(postgresDiscardDead),
		audit:         text(postgresAudit),
		doneForReplay: text(postgresDoneForReplay),
		replay:        text(postgresReplay),

		cleanup:       text(postgresCleanup),
		archivable:    text(postgresArchivable),
		archiveRows:   text(postgresArchiveRows),
		archiveDelete: text(postgresArchiveDelete),
		collectLock:   text(postgresCollectLock),
		collectDelete: text(postgresCollectDelete),
		resetKeys:     text(postgresResetKeys),
	}
	for lanes := range s.insert[0] {
		s.insert[0][lanes] = newSized(n, func(rows int) string { return postgresInsert(rows, lanes, false) })
		s.insert[1][lanes] = newSized(n, func(rows int) string { return postgresInsert(rows, lanes, true) })
	}
	return s
}

// insertText returns the INSERT for the given numbers of rows and lanes. byLog says whether a
// reader of the log publishes some of the rows.
func (s *postgresStatements) insertText(rows, lanes int, byLog bool) string {
	if lanes > cachedRows {
		return s.names.expand(postgresInsert(rows, lanes, byLog))
	}
	return s.insert[b2i(byLog)][lanes].text(rows)
}

var postgresWords = map[string]word{
	"now": fixed("statement_timestamp()"),
	// An infinite time, which only another program writes, is NULL: it must not fail the statement,
	// which reads other rows too.
	"us": func(_ names, arg string) string {
		return "CASE WHEN isfinite(" + arg + ") THEN (extract(epoch from " + arg + ")*1000000)::bigint END"
	},
	"clock": fixed("(extract(epoch from clock_timestamp())*1000000)::bigint"),

	// rows are those of a list of the same statement. An address is one of a row only within a
	// partition, so a partitioned table needs the ids. There the bounds of the list let PostgreSQL
	// leave out the other partitions.
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

// bounded bounds the ids of a mark, which come in ascending order, so that PostgreSQL can leave out
// the partitions that have none of them. A mark that joins its ids needs no bounds: PostgreSQL
// looks for each id in its own partition.
func bounded(n names, text string) string {
	const list = "e.id = ANY ($1::uuid[])"
	if !n.partitioned {
		return text
	}
	return strings.ReplaceAll(text, list,
		list+" AND e.id >= ($1::uuid[])[1] AND e.id <= ($1::uuid[])[cardinality($1::uuid[])]")
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

// scan runs a statement that jumps through an index, with a fixed plan. PostgreSQL's planner cannot
// know how short the jumps are. By its estimates it would compile the statement first, which takes
// a second, or read and sort all open rows. It would also plan the long statements again for each
// call, which takes longer than many a claim. On other databases the statements name their index.
func (p *postgres) scan(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	return p.wrap(what, p.planned(ctx, fn))
}

// read has a fixed plan too: its order must be that of the index.
func (p *postgres) read(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	return p.scan(ctx, what, fn)
}

func (p *postgres) write(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	return p.single(ctx, what, fn)
}

// plannerSettings are the settings of scan.
var plannerSettings = map[string]string{
	"jit": "off", "enable_seqscan": "off", "enable_bitmapscan": "off", "plan_cache_mode": "force_generic_plan",
}

// postgresPlanner makes plannerSettings for the rest of a transaction.
const postgresPlanner = "SELECT set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true), " +
	"set_config('enable_bitmapscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)"
