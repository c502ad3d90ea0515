package sqloutbox

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// database has the operations that differ between databases. It has two implementations. postgres
// does most calls in one statement. rowwise does them in several, for MariaDB, MySQL and SQLite,
// whose few differences are fields of a variant.
//
// The statements of an implementation are fields of a struct, which New makes once.
type database interface {
	// insert writes a batch in a caller's transaction and fills in its places.
	insert(ctx context.Context, tx core.Tx, b *batch) error

	// claimTopics gives every topic an equal part of the limit and returns the number of topics.
	// With oversize the first row may have more bytes than the limit: the claim has no rows yet.
	claimTopics(ctx context.Context, req core.ClaimRequest, f filter, oversize bool,
	) (rows []core.Claimed, topics int, err error)
	claimHeads(ctx context.Context, req core.ClaimRequest, f filter, after core.KeyID,
	) (rows []core.Claimed, next core.KeyID, err error)
	claimLane(ctx context.Context, req core.ClaimRequest, f filter, lane core.KeyID) ([]core.Claimed, error)
	nextDue(ctx context.Context, req core.ClaimRequest, f filter) (d time.Duration, ok bool, err error)

	// Mark methods get at most markChunk rows, each once, in ascending order of their ids. They
	// return the rows that they changed. A *core.LockedError names the rows that other transactions
	// hold.
	markDone(ctx context.Context, done []core.Done, deleteRows bool) (changed int, err error)
	markFailed(ctx context.Context, node string, failures []core.Failure) (map[core.RowID]bool, error)
	beginSuspect(ctx context.Context, node string, claims []core.ClaimRef,
		wait time.Duration) (map[core.RowID]bool, error)
	renew(ctx context.Context, node string, claims []core.ClaimRef, lease time.Duration) (map[core.RowID]bool, error)
	release(ctx context.Context, node string, claims []core.ClaimRef) (map[core.RowID]bool, error)

	// read runs one statement that only reads, as a transaction of its own.
	read(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error
	// write runs one statement that changes rows, as a transaction of its own.
	write(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error

	backlog(ctx context.Context, limit int64) (core.Backlog, error)
	listDead(ctx context.Context, q core.DeadQuery) ([]core.DeadEvent, error)
	// redrive and discard change and audit the rows with these ids, as far as their status allows.
	redrive(ctx context.Context, q sqlkit.Querier, ids []core.RowID, req core.AdminRequest) (changed int, err error)
	discard(ctx context.Context, q sqlkit.Querier, ids []core.RowID, req core.AdminRequest) (changed int, err error)
	// lockDead locks those of the rows that are dead and left their key, and with skipDead those
	// too that are still in it. appendDead gives such a row a copy at the end of its key, and
	// discards it.
	lockDead(ctx context.Context, q sqlkit.Querier, ids []core.RowID, skipDead bool) ([]sourceRow, error)
	appendDead(ctx context.Context, q sqlkit.Querier, d sourceRow, req core.AdminRequest) error
	// lockDone locks those of the rows that are done and no replays. Their lanes are those of the
	// replays. replay inserts the row that replays such a row.
	lockDone(ctx context.Context, q sqlkit.Querier, ids []core.RowID) ([]sourceRow, error)
	replay(ctx context.Context, q sqlkit.Querier, d sourceRow, req core.AdminRequest) error

	// cleanup reads the next limit rows behind the id after, and deletes those that are old.
	cleanup(ctx context.Context, keep keeps, after core.RowID, limit int) (page, error)
	// archivable reads the same rows and returns those that are old. archive gives rows to the hook
	// and deletes them if it returns nil. It leaves out rows that another transaction holds, and
	// those that are not old.
	archivable(ctx context.Context, keep keeps, after core.RowID, limit int) (old []archivable, found page, err error)
	archive(ctx context.Context, keep keeps, ids []core.RowID, hook archiver) (deleted int, err error)
	// lockIdleKeys locks the idle keys in the next part of the key rows. It returns them, the last
	// key and the size of that part.
	lockIdleKeys(ctx context.Context, q sqlkit.Querier, idle time.Duration, after core.KeyID, limit int,
	) (locked []core.KeyID, last core.KeyID, seen int, err error)
	deleteEmptyKeys(ctx context.Context, q sqlkit.Querier, locked []core.KeyID) (deleted int, err error)
	resetKeys(ctx context.Context, q sqlkit.Querier) (changed int64, err error)
	// auditWhole writes an audit row that names no event, and a topic or none.
	auditWhole(ctx context.Context, q sqlkit.Querier, action, topic string, req core.AdminRequest) error
}

// dialect has the parts of a dialect.
type dialect struct {
	name  core.Dialect
	words map[string]word // pieces of its SQL; see names.expand
	open  func(p pool, n names) database
	// place is a SELECT of two texts for a place: the database, and on PostgreSQL the table that
	// the connection finds.
	place func(n names) string
	// placeHasTable says that a place has a table, unless there is none yet.
	placeHasTable bool
	// inMemory reports whether a pool certainly has a database of its own, in memory.
	inMemory func(pool any) bool
	wake     func(p pool, n names) waker
	// params is how statements are written that are built when they are needed.
	params *params
	// layout is the statement that reads the partitions of the table. Empty: it can have none.
	layout string
	// blankEnd is written behind a text that ends with a blank, because comparisons of texts ignore
	// blanks at the end. Empty: they do not.
	blankEnd string
}

func onServer(any) bool { return false }

// dialectOf and byDialect.of are the only places that tell the dialects apart.
func dialectOf(d core.Dialect) (dialect, error) {
	switch d {
	case core.Postgres:
		return dialect{
			name: d, words: postgresWords, open: newPostgres, place: postgresPlace, placeHasTable: true,
			inMemory: onServer, wake: newPostgresWaker, params: &postgresParams, layout: postgresLayout,
		}, nil
	case core.MySQL:
		return dialect{
			name: d, words: mysqlWords, open: newMySQL, place: mysqlPlace, inMemory: onServer, wake: newBell,
			params: &mysqlParams, blankEnd: mysqlBlankEnd,
		}, nil
	case core.SQLite:
		return dialect{
			name: d, words: sqliteWords, open: newSQLite, place: sqlitePlace, inMemory: privateMemory,
			wake: newFileVersion, params: &sqliteParams,
		}, nil
	default:
		return dialect{}, fmt.Errorf("sqloutbox: Config.Dialect %q is not one of postgres, mysql, sqlite", string(d))
	}
}

// byDialect has one value for each dialect.
type byDialect[T any] struct{ postgres, mysql, sqlite T }

// of returns the value for the dialect of the names.
func (b byDialect[T]) of(n names) T {
	switch n.dialect.name {
	case core.Postgres:
		return b.postgres
	case core.MySQL:
		return b.mysql
	default: // dialectOf accepts no other one
		return b.sqlite
	}
}
