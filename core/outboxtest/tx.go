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
	// CommitSucceeds is none.
	CommitSucceeds CommitFault = iota
	// CommitRefused: the database answers with an error and has committed nothing.
	CommitRefused
	// CommitAnswerLost: the transaction committed, its answer was lost.
	CommitAnswerLost
	// CommitNotSent: the connection broke before COMMIT arrived: nothing is committed, and the
	// caller cannot tell this from CommitAnswerLost.
	CommitNotSent
)

// Tx is a transaction of a Repository. Like every core.Tx it is used by one goroutine at a time.
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

// Commit makes what was inserted visible, at once and as a whole, gives its locks back, and reports
// the outcome to the callbacks. Its error wraps core.ErrCommitUnknown when the answer was lost and
// somebody waits for the outcome.
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
		if r.dialect == core.MySQL { // it was rolled back then, and an empty COMMIT succeeds
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

// Rollback undoes everything, gives the locks back and reports the outcome to the callbacks. After
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

// abort does what an error that is worse than a violated constraint does. The caller holds the
// mutex.
func (t *Tx) abort() {
	t.state = txAborted
	if t.repo.dialect == core.MySQL { // there a deadlock ends the transaction
		t.undoTo(0)
		t.savepoints = nil
		t.repo.unlock(t)
	}
}

// undoTo undoes what was done since the mark. The caller holds the mutex.
func (t *Tx) undoTo(mark int) {
	for i := len(t.undo) - 1; i >= mark; i-- {
		t.undo[i]()
	}
	t.undo = t.undo[:mark]
}

// Exec understands SAVEPOINT, RELEASE, ROLLBACK TO, COMMIT and ROLLBACK. Every other statement does
// what WithExec says, by default nothing, so that code under test can run SQL beside Publish.
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

// Query returns no rows. It exists to implement core.Tx.
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

// Err returns an error wrapping core.ErrTxAborted when the transaction can no longer be trusted, as
// core.Tx describes.
func (t *Tx) Err() error { return t.tracker.Err() }

// Untracked returns a view of t whose end cannot be heard, as an adapter has it that does not see
// COMMIT.
func (t *Tx) Untracked() core.Tx { return untracked{t} }

type untracked struct{ *Tx }

func (untracked) Tracked() bool                { return false }
func (untracked) OnOutcome(func(core.Outcome)) {}

// fake finds the transaction also behind types that embed *Tx.
func (t *Tx) fake() *Tx { return t }

// txOf returns the transaction of this repository behind tx.
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

// CheckTx implements core.TxChecker: transactions of another Repository are refused.
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
