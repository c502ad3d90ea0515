package outboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// CommitFault is a way in which COMMIT can go wrong.
type CommitFault uint8

// The ways in which COMMIT can go wrong.
const (
	// CommitSucceeds: COMMIT does not fail.
	CommitSucceeds CommitFault = iota
	// CommitRefused: the database answers with an error and has committed nothing.
	CommitRefused
	// CommitAnswerLost: the transaction committed, and the answer was lost.
	CommitAnswerLost
	// CommitNotSent: the connection broke before COMMIT arrived. Nothing is committed, and the
	// caller cannot distinguish this from CommitAnswerLost.
	CommitNotSent
)

// Tx is a transaction of a Repository. Like any core.Tx, it must be used by one goroutine at a
// time.
type Tx struct {
	repo    *Repository
	tracker *sqltx.Tracker

	// Guarded by repo.mu.
	inserted   []*Row
	undo       []func()
	savepoints []txSavepoint
	locks      []lockKey
	waiting    *rowLock
	state      txState
	fault      CommitFault
	faultSet   bool
}

type txState uint8

const (
	txOpen    txState = iota
	txAborted         // the database refuses everything but a rollback
	txEnded
)

// Begin opens a transaction. It is tracked; see Tx.Untracked.
func (r *Repository) Begin(ctx context.Context) (*Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &Tx{repo: r, tracker: sqltx.NewTracker(r.dialect)}, nil
}

// FailCommit makes Commit end in the given way.
func (t *Tx) FailCommit(f CommitFault) {
	t.repo.mu.Lock()
	defer t.repo.mu.Unlock()
	t.fault, t.faultSet = f, true
}

// Commit makes the inserted rows visible at once, releases the locks, and reports the outcome to
// the callbacks. The error wraps core.ErrCommitUnknown if the answer was lost and a callback is
// registered.
func (t *Tx) Commit() error { return t.tracker.Commit(t.commit) }

func (t *Tx) commit() error {
	r := t.repo
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.state == txEnded {
		return sql.ErrTxDone
	}
	fault := t.fault
	if !t.faultSet && len(r.commitFaults) > 0 {
		fault, r.commitFaults = r.commitFaults[0], r.commitFaults[1:]
	}
	if t.state == txAborted {
		t.end(false)
		if r.dialect == core.MySQL { // it was rolled back before, and an empty COMMIT succeeds
			return nil
		}
		return databaseError(r.dialect, errTxAborted)
	}
	switch fault {
	case CommitRefused:
		t.end(false)
		return databaseError(r.dialect, errCommitRefused)
	case CommitAnswerLost:
		t.end(true)
		return databaseError(r.dialect, errConnection)
	case CommitNotSent:
		t.end(false)
		return databaseError(r.dialect, errConnection)
	case CommitSucceeds:
	}
	t.end(true)
	return nil
}

// Rollback undoes all changes, releases the locks and reports the outcome to the callbacks. After
// the end of the transaction it returns sql.ErrTxDone and does nothing.
func (t *Tx) Rollback() error {
	t.repo.mu.Lock()
	ended := t.state == txEnded
	if !ended {
		t.end(false)
	}
	t.repo.mu.Unlock()
	t.tracker.RolledBack()
	if ended {
		return sql.ErrTxDone
	}
	return nil
}

// end ends the transaction in the database. The caller holds the mutex.
func (t *Tx) end(commit bool) {
	if commit {
		for _, row := range t.inserted {
			t.repo.table.insert(row)
		}
	} else {
		t.undoTo(0)
	}
	t.state, t.inserted, t.undo, t.savepoints = txEnded, nil, nil, nil
	t.repo.unlock(t)
}

// abort changes the transaction as an error does that is more serious than a violated constraint.
// The caller holds the mutex.
func (t *Tx) abort() {
	t.state = txAborted
	if t.repo.dialect == core.MySQL { // on MySQL a deadlock ends the transaction
		t.undoTo(0)
		t.savepoints = nil
		t.repo.unlock(t)
	}
}

// undoTo undoes the changes since the mark. The caller holds the mutex.
func (t *Tx) undoTo(mark int) {
	for i := len(t.undo) - 1; i >= mark; i-- {
		t.undo[i]()
	}
	t.undo = t.undo[:mark]
}

// Exec runs SAVEPOINT, RELEASE, ROLLBACK TO, COMMIT and ROLLBACK. It passes every other statement
// to the function of WithExec. Without one such a statement does nothing, so code under test can
// run SQL beside Publish.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (affected int64, err error) {
	if err = ctx.Err(); err == nil {
		affected, err = t.statement(query, args)
	}
	t.tracker.Observe(query, err)
	return affected, err
}

func (t *Tx) statement(query string, args []any) (int64, error) {
	if known, err := t.control(query); known || err != nil {
		return 0, err
	}
	affected, err := t.repo.exec(query, args)
	if err != nil && t.repo.dialect == core.Postgres {
		t.repo.mu.Lock()
		t.state = txAborted
		t.repo.mu.Unlock()
	}
	return affected, err
}

// Query returns no rows. It calls the function of WithExec, as Exec does.
func (t *Tx) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	_, err := t.Exec(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return noRows{}, nil
}

// Dialect returns the dialect of the repository.
func (t *Tx) Dialect() core.Dialect { return t.repo.dialect }

// Tracked returns true.
func (t *Tx) Tracked() bool { return true }

// OnOutcome registers fn as core.Tx describes.
func (t *Tx) OnOutcome(fn func(core.Outcome)) { t.tracker.OnOutcome(fn) }

// Err returns an error wrapping core.ErrTxAborted if the transaction can no longer be trusted, as
// core.Tx describes.
func (t *Tx) Err() error { return t.tracker.Err() }

// Untracked returns a view of t that reports no outcome, like the transaction of an adapter that
// does not see COMMIT.
func (t *Tx) Untracked() core.Tx { return untracked{t} }

type untracked struct{ *Tx }

func (untracked) Tracked() bool                { return false }
func (untracked) OnOutcome(func(core.Outcome)) {}

// fake finds the transaction behind types that embed *Tx too.
func (t *Tx) fake() *Tx { return t }

// txOf returns the transaction of this repository that is behind tx.
func (r *Repository) txOf(tx core.Tx) (*Tx, error) {
	f, ok := tx.(interface{ fake() *Tx })
	if !ok || f.fake() == nil {
		return nil, fmt.Errorf("outboxtest: %T is not a transaction of this package: use Repository.Begin", tx)
	}
	t := f.fake()
	if t.repo != r {
		return nil, fmt.Errorf("%w: the transaction belongs to another Repository", core.ErrOtherDatabase)
	}
	return t, nil
}

// CheckTx implements core.Repository. It refuses transactions of another Repository.
func (r *Repository) CheckTx(_ context.Context, tx core.Tx) error {
	if _, err := r.txOf(tx); errors.Is(err, core.ErrOtherDatabase) {
		return err
	}
	return nil
}

type noRows struct{}

func (noRows) Next() bool        { return false }
func (noRows) Scan(...any) error { return sql.ErrNoRows }
func (noRows) Err() error        { return nil }
func (noRows) Close() error      { return nil }
