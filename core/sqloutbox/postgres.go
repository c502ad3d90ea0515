package sqloutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// postgres implements database: most calls are one statement. Parameters are cast, so that every
// driver may send them as text. Lists are sent as the text of an array.
type postgres struct {
	pool
	sql *postgresStatements
}

func newPostgres(p pool, n names) database { return &postgres{pool: p, sql: newPostgresStatements(n)} }

type postgresStatements struct {
	names   names
	planner string

	insertOne, insertOneOrdered string
	insert                      [cachedRows + 1]*sized // by the number of lanes

	claimUnordered, claimHeads, claimLane, nextDue string

	done, doneReceipts, doneDelete, failed, beginSuspect, renew, release string

	unlocked, markable, held string

	backlog, listDead, redrive, discard, deadForAppend, keyNext, append, discardDead, audit string

	cleanup, collectLock, collectDelete, resetKeys string
}

func newPostgresStatements(n names) *postgresStatements {
	text := n.expand
	s := &postgresStatements{
		names:   n,
		planner: postgresPlanner,

		insertOne:        text(postgresInsertOne),
		insertOneOrdered: text(postgresInsertOneOrdered),

		claimUnordered: text(postgresClaimUnordered),
		claimHeads:     text(postgresClaimHeads),
		claimLane:      text(postgresClaimKey),
		nextDue:        text(postgresNextDue),

		done:         text(postgresDone),
		doneReceipts: text(postgresDoneReceipts),
		doneDelete:   text(postgresDoneDelete),
		failed:       text(postgresFailed),
		beginSuspect: text(postgresBeginSuspect),
		renew:        text(postgresRenew),
		release:      text(postgresRelease),

		unlocked: text(postgresUnlocked),
		markable: text(postgresMarkable),
		held:     text(postgresHeld),

		backlog:       text(postgresBacklog),
		listDead:      text(postgresListDead),
		redrive:       text(postgresRedrive),
		discard:       text(postgresDiscard),
		deadForAppend: text(postgresDeadForAppend),
		keyNext:       text(postgresUpsertKey),
		append:        text(postgresAppend),
		discardDead:   text(postgresDiscardDead),
		audit:         text(postgresAudit),

		cleanup:       text(postgresCleanup),
		collectLock:   text(postgresCollectLock),
		collectDelete: text(postgresCollectDelete),
		resetKeys:     text(postgresResetKeys),
	}
	for lanes := range s.insert {
		s.insert[lanes] = newSized(n, func(rows int) string { return postgresInsert(rows, lanes) })
	}
	return s
}

// insertText returns the INSERT for the given numbers of rows and lanes.
func (s *postgresStatements) insertText(rows, lanes int) string {
	if lanes > cachedRows {
		return s.names.expand(postgresInsert(rows, lanes))
	}
	return s.insert[lanes].text(rows)
}

var postgresWords = map[string]word{
	"now":   fixed("statement_timestamp()"),
	"us":    func(_ names, arg string) string { return "(extract(epoch from " + arg + ")*1000000)::bigint" },
	"clock": fixed("(extract(epoch from clock_timestamp())*1000000)::bigint"),
}

// scan runs statements that jump through an index, with a fixed plan. PostgreSQL's planner cannot
// know how short the jumps are. By its estimates it would compile the statement first, which takes
// a second, or read and sort all open rows. It would also plan the long statements again for each
// call, which takes longer than many a claim. On other databases the statements name their index.
func (p *postgres) scan(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	return p.inTx(ctx, what, func(q sqlkit.Querier) error {
		if _, err := q.Exec(ctx, postgresPlanner); err != nil {
			return err
		}
		return fn(q)
	})
}

const postgresPlanner = "SELECT set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true), " +
	"set_config('enable_bitmapscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)"
