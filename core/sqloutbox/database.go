package sqloutbox

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
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
	// claimHeads and claimLane also report whether a wanted key begins with a dead row.
	claimHeads(ctx context.Context, req core.ClaimRequest, f filter, after core.KeyID,
	) (rows []core.Claimed, next core.KeyID, dead bool, err error)
	claimLane(ctx context.Context, req core.ClaimRequest, f filter, lane core.KeyID,
	) (rows []core.Claimed, dead bool, err error)
	// leaveKeys looks at the keys at which claimHeads looks, and takes the dead rows out of them with
	// which they begin. It returns how many.
	leaveKeys(ctx context.Context, req core.ClaimRequest, f filter, after core.KeyID) (left int, err error)
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
	// lockDead locks the dead rows that have left their key, and with skipDead also dead rows that
	// are still in it. appendDead gives such a row a copy at the end of its key, and discards it.
	lockDead(ctx context.Context, q sqlkit.Querier, ids []core.RowID, skipDead bool) ([]outboxsql.Source, error)
	appendDead(ctx context.Context, q sqlkit.Querier, d outboxsql.Source, req core.AdminRequest) error
	// nextKeySeq takes the next number of d.Lane for the row d.NewID.
	nextKeySeq(ctx context.Context, q sqlkit.Querier, d outboxsql.Source) (seq int64, err error)

	sweeper
	// lockIdleKeys locks the idle keys in the next part of the key rows. It returns them, the last
	// key and the size of that part.
	lockIdleKeys(ctx context.Context, q sqlkit.Querier, idle time.Duration, after core.KeyID, limit int,
	) (locked []core.KeyID, last core.KeyID, seen int, err error)
	deleteEmptyKeys(ctx context.Context, q sqlkit.Querier, locked []core.KeyID) (deleted int, err error)
	resetKeys(ctx context.Context, q sqlkit.Querier) (changed int64, err error)
	// audit writes an audit row about d.
	audit(ctx context.Context, q sqlkit.Querier, action string, d outboxsql.Source, req core.AdminRequest) error
	// auditWhole writes an audit row that names no event, and a topic or none.
	auditWhole(ctx context.Context, q sqlkit.Querier, action, topic string, req core.AdminRequest) error
}

// component is a part of a Repository with statements of its own.
type component[S any] struct {
	pool     pool
	names    names
	database database
	sql      S
}
