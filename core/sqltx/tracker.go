package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqltext"
)

// Tracker reports how a transaction ended. It is for authors of adapters: create one when a
// transaction begins, call Before before every statement, show it the result with Observe, and end
// it with Commit or RolledBack. It follows savepoints. Any doubt means core.Unknown. Not reporting
// Committed is always safe, because the poller finds the row. Reporting Committed for a row that is
// not in the table would publish an event that never happened.
//
// The Tracker reads from the text of a statement its possible effect on the transaction. A text
// that it cannot read counts as a doubt. After a failed statement the transaction may be gone,
// which Doubt reports. A caller that can ask the database ends the doubt with Resolve.
//
// A Tracker is safe for use by several goroutines.
type Tracker struct {
	mu         sync.Mutex
	dialect    core.Dialect
	syntax     sqltext.Dialect
	callbacks  []func(core.Outcome)
	savepoints []savepoint
	unsure     bool // set once, never cleared: a successful COMMIT is reported as Unknown
	bypassed   bool // transaction control went past the tracker: not even a rollback is certain
	// a savepoint name was spelled in two ways: the database may have fewer savepoints than the
	// tracker
	ambiguous bool
	doubt     error // the error after which the transaction may be gone
	likely    bool  // the transaction probably exists: doubt is a violated constraint
	gone      error // the server has rolled back: nothing more may be sent
	aborted   error
	done      bool
	began     core.RecorderMark
	undo      map[any]func(core.RecorderMark)

	// The result of reading the latest text in Before, for Observe.
	text string
	kind sqltext.Kind
	name sqltext.Name
}

type savepoint struct {
	name  sqltext.Name
	mark  int // len(callbacks) when the savepoint was set
	began core.RecorderMark
}

// NewTracker returns the Tracker of a transaction that has just begun.
func NewTracker(d core.Dialect) *Tracker {
	t := &Tracker{dialect: d, text: noText, began: core.MarkRecorders()}
	switch d {
	case core.Postgres:
		t.syntax = sqltext.Postgres
	case core.MySQL:
		t.syntax = sqltext.MySQL
	case core.SQLite:
		t.syntax = sqltext.SQLite
	}
	return t
}

const noText = "\x00"

// OnOutcome registers fn as core.Tx.OnOutcome describes. After the end of the transaction fn is
// called at once with Unknown.
func (t *Tracker) OnOutcome(fn func(core.Outcome)) {
	t.mu.Lock()
	if t.done {
		t.mu.Unlock()
		fn(core.Unknown)
		return
	}
	t.callbacks = append(t.callbacks, fn)
	t.mu.Unlock()
}

// OnRollback makes fn be called for each known rollback: of the transaction, and to a savepoint. fn
// gets the mark at which the changes began that are rolled back. A second function of the same key
// replaces the first one.
func (t *Tracker) OnRollback(key any, fn func(to core.RecorderMark)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.undo == nil {
		t.undo = map[any]func(core.RecorderMark){}
	}
	t.undo[key] = fn
}

// Err returns an error wrapping core.ErrTxAborted if a statement failed in a way after which the
// database may have rolled the transaction back. It returns an error wrapping core.ErrNoTransaction
// if the transaction has ended.
func (t *Tracker) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.done:
		return fmt.Errorf("%w: this one has ended already", core.ErrNoTransaction)
	case t.gone != nil:
		return t.gone
	case t.aborted == nil && t.doubt != nil && !t.likely && (t.dialect == core.MySQL || t.dialect == core.SQLite):
		// PostgreSQL itself refuses it
		return errtext.Errorf("%w: %w", core.ErrTxAborted, t.doubt)
	}
	return t.aborted
}

// Before is called before each statement. Its error wraps core.ErrTxAborted: the server has rolled
// the transaction back. The statement would run outside of the transaction, so do not send it, nor
// COMMIT. opaque means that the statement's effect on the transaction is not clear from its text.
// The caller may then set a savepoint before the statement. If the caller can release the savepoint
// after it, the statement did nothing to the transaction; the caller passes an empty text to
// Observe then.
func (t *Tracker) Before(query string) (opaque bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return false, nil // the driver refuses it
	}
	t.read(query)
	return t.kind == sqltext.Opaque, t.gone
}

func (t *Tracker) read(query string) (sqltext.Kind, sqltext.Name) {
	if t.text != query { // often the same string, and then comparing is cheap
		t.text = query
		t.kind, t.name = sqltext.Read(t.syntax, query)
	}
	return t.kind, t.name
}

// Doubt returns the error of a statement after which the transaction may no longer be open. On
// MySQL, MariaDB and SQLite the database may have rolled it back. On PostgreSQL the transaction is
// aborted, unless the error did not come from the database. Ask the database then, and call
// Resolve: before the next statement, or on PostgreSQL before COMMIT.
func (t *Tracker) Doubt() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done || t.gone != nil {
		return nil
	}
	return t.doubt
}

// Resolve ends a doubt. open: the database still has the transaction and will commit it. If not,
// nothing is left of the transaction, and Before refuses every statement.
func (t *Tracker) Resolve(open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return
	}
	if !open && t.gone == nil {
		cause := t.doubt
		if cause == nil {
			cause = errors.New("the database no longer has it")
		}
		if t.bypassed && !errors.Is(cause, core.ErrCommitUnknown) { // perhaps by COMMIT
			cause = errtext.Errorf("%w: %w", core.ErrCommitUnknown, cause)
		}
		t.abort(cause)
		t.gone = t.aborted
	}
	t.doubt, t.likely = nil, false
}

// Unseen makes the outcome Unknown unless the transaction is rolled back, because the tracker may
// have missed savepoints. It does not doubt that the transaction is open.
func (t *Tracker) Unseen() {
	t.mu.Lock()
	t.unsure = true
	t.mu.Unlock()
}

// Abort is Unseen, and also makes Err return an error wrapping core.ErrTxAborted and cause.
func (t *Tracker) Abort(cause error) {
	t.mu.Lock()
	t.abort(cause)
	t.mu.Unlock()
}

func (t *Tracker) abort(cause error) {
	t.unsure = true
	if t.aborted == nil {
		t.aborted = errtext.Errorf("%w: %w", core.ErrTxAborted, cause)
	}
}

// Observe is called after every statement of the transaction, with its result. query may be empty
// if the text is not known and cannot have transaction control in it.
func (t *Tracker) Observe(query string, err error) {
	// the driver asks database/sql to try another way; nothing was executed
	if errors.Is(err, driver.ErrSkip) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return
	}
	kind, name := t.read(query)
	if kind >= sqltext.End { // also if it failed: perhaps only the answer was lost
		t.unsure, t.bypassed = true, true
	}
	if err != nil {
		t.fail(query, err)
		return
	}
	if t.dialect == core.Postgres && kind != sqltext.Empty && kind < sqltext.End {
		t.doubt = nil // an aborted transaction would have refused it
	}
	switch kind {
	case sqltext.Savepoint:
		t.savepoints = append(t.savepoints, savepoint{name: name, mark: len(t.callbacks), began: core.MarkRecorders()})
	case sqltext.Release:
		t.release(name)
	case sqltext.RollbackTo:
		t.rollbackTo(name)
	case sqltext.End:
		// COMMIT, ROLLBACK or BEGIN as text, or a statement before which MySQL commits: the
		// transaction that the tracker follows is over.
		t.savepoints = nil
		t.abort(fmt.Errorf("%w: a statement ended the transaction behind the driver", core.ErrCommitUnknown))
	case sqltext.Opaque:
		if t.dialect != core.Postgres && t.doubt == nil {
			t.doubt, t.likely = fmt.Errorf("%w: a statement may have ended the transaction behind the driver",
				core.ErrCommitUnknown), false
		}
	case sqltext.Harmless, sqltext.Empty, sqltext.Hidden:
	}
}

// fail notes a failed statement. It may have rolled back more than itself. A violated constraint
// undoes only the statement on MySQL, and on SQLite too unless the statement or the table asks for
// more. PostgreSQL then refuses every statement until a rollback to a savepoint.
func (t *Tracker) fail(query string, err error) {
	likely := false
	switch t.dialect {
	case core.MySQL:
		if sqlerr.MySQLConstraint(err) {
			return
		}
	case core.SQLite:
		likely = sqlerr.SQLiteConstraint(err) && !strings.Contains(strings.ToUpper(query), "OR ROLLBACK")
	case core.Postgres:
	}
	if t.doubt == nil || t.likely {
		t.doubt, t.likely = err, likely
	}
}

// find returns the first and the last savepoint that name may mean, or -1 and -1.
func (t *Tracker) find(name sqltext.Name) (first, last int) {
	first, last = -1, -1
	for i, s := range t.savepoints {
		if s.name.Folded == name.Folded {
			last = i
			if first < 0 {
				first = i
			}
		}
	}
	return first, last
}

// exact reports whether name certainly means savepoint i, the last one that it may mean. Every
// database takes the latest savepoint of one spelling.
func (t *Tracker) exact(name sqltext.Name, i int) bool {
	return !t.ambiguous && t.savepoints[i].name.Spelled == name.Spelled
}

// release forgets the savepoint and later ones. In doubt it keeps more savepoints than the database
// does.
func (t *Tracker) release(name sqltext.Name) {
	first, last := t.find(name)
	if last < 0 {
		t.unsure = true
		return
	}
	if first != last && !t.exact(name, last) {
		t.ambiguous = true
	}
	t.savepoints = t.savepoints[:last]
}

// rollbackTo removes the callbacks registered since the savepoint. If it is not certain which
// savepoint that is, it removes the callbacks since the earliest one and keeps the savepoints up to
// the last one. So it may remove too many callbacks, whose rows the poller finds, but never too
// few.
func (t *Tracker) rollbackTo(name sqltext.Name) {
	first, last := t.find(name)
	if last < 0 {
		t.unsure = true
		return
	}
	at, outcome := last, core.RolledBack
	if first != last && !t.exact(name, last) {
		t.ambiguous = true
		at, outcome = first, core.Unknown // some of them may still exist
	}
	if t.bypassed {
		outcome = core.Unknown
	}
	mark := t.savepoints[at].mark
	dropped := append([]func(core.Outcome){}, t.callbacks[mark:]...)
	t.callbacks = t.callbacks[:mark:mark]
	t.savepoints = t.savepoints[:last+1]
	for i := range t.savepoints { // a mark beyond the end would bring removed callbacks back
		t.savepoints[i].mark = min(t.savepoints[i].mark, mark)
	}
	to := t.savepoints[last].began
	t.call(dropped, outcome)
	t.rolledBack(outcome, to)
}

// rolledBack calls the functions of OnRollback. It comes after the callbacks.
func (t *Tracker) rolledBack(o core.Outcome, to core.RecorderMark) {
	if o != core.RolledBack {
		return
	}
	fns := slices.Collect(maps.Values(t.undo))
	if len(fns) == 0 {
		return
	}
	t.mu.Unlock()
	defer t.mu.Lock()
	for _, fn := range fns {
		fn(to)
	}
}

// Commit runs commit, which must send COMMIT, and reports the outcome. It returns commit's error.
// The error also wraps core.ErrCommitUnknown if a callback waits for the outcome and the outcome is
// unknown: the answer was lost, or COMMIT succeeded but may have committed something else. If the
// server has rolled back before, commit is not run: the error wraps core.ErrTxAborted, and the
// caller rolls back.
func (t *Tracker) Commit(commit func() error) error {
	if _, gone := t.Before(""); gone != nil {
		t.RolledBack()
		return gone
	}
	err := commit()
	switch {
	case err == nil:
		return t.End(core.Committed, nil)
	case sqlerr.CommitRefused(err):
		return t.End(core.RolledBack, err)
	default:
		return t.End(core.Unknown, err)
	}
}

// End reports the outcome of a transaction for callers that have it from the server's answer to
// COMMIT, which is more exact than an error. err is the error of COMMIT. The result is err, changed
// as by Commit. If a statement may have ended the transaction before, Unknown is reported in place
// of outcome. After the end of the transaction End returns err and does nothing else.
func (t *Tracker) End(outcome core.Outcome, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return err
	}
	waiting := len(t.callbacks) > 0
	switch {
	case outcome == core.RolledBack:
	case outcome != core.Committed:
		outcome = core.Unknown
		switch {
		case !waiting || errors.Is(err, core.ErrCommitUnknown):
		case err == nil:
			err = t.reason()
		default:
			err = errtext.Errorf("%w: %w", core.ErrCommitUnknown, err)
		}
	case t.bypassed, t.aborted != nil, t.doubt != nil && !t.likely:
		outcome = core.Unknown
		if waiting {
			err = t.reason()
		}
	case t.unsure: // it committed, but perhaps without the changes that a callback waits for
		outcome = core.Unknown
	}
	t.end(outcome)
	return err
}

// reason returns why the outcome is unknown although COMMIT succeeded.
func (t *Tracker) reason() error {
	cause := errors.New("a statement may have ended the transaction behind the driver")
	switch {
	case errors.Is(t.aborted, core.ErrCommitUnknown):
		return t.aborted
	case t.aborted != nil:
		cause = t.aborted
	case t.doubt != nil:
		cause = t.doubt
	}
	return errtext.Errorf("%w: %w", core.ErrCommitUnknown, cause)
}

// RolledBack reports that the transaction was rolled back, or that its connection was lost before
// COMMIT was sent. After Commit it does nothing. If a statement ended the transaction before,
// behind the driver's back, the outcome is Unknown.
func (t *Tracker) RolledBack() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.done {
		t.end(core.RolledBack)
	}
}

func (t *Tracker) end(o core.Outcome) {
	t.done = true
	if t.bypassed {
		o = core.Unknown
	}
	fns := t.callbacks
	t.callbacks, t.savepoints = nil, nil
	t.call(fns, o)
	t.rolledBack(o, t.began)
	t.undo = nil
}

// call runs callbacks without the lock, so that they may register others. The caller holds the lock
// before and after.
func (t *Tracker) call(fns []func(core.Outcome), o core.Outcome) {
	if len(fns) == 0 {
		return
	}
	t.mu.Unlock()
	defer t.mu.Lock()
	callAll(fns, o)
}

func callAll(fns []func(core.Outcome), o core.Outcome) {
	next := 0
	defer func() {
		// a callback panicked or called runtime.Goexit: the others are called all the same
		if next < len(fns) {
			callAll(fns[next:], o)
		}
	}()
	for next < len(fns) {
		fn := fns[next]
		next++
		fn(o)
	}
}

// Harmless reports whether a text can neither end the transaction nor set, release or roll back to
// a savepoint, except by failing. If the state of the transaction is known from the database, as
// from a connection of PostgreSQL, such a statement need not be shown to the Tracker. A text that
// the Tracker cannot read is not harmless.
func (t *Tracker) Harmless(query string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	kind, _ := t.read(query)
	return kind <= sqltext.Empty
}

// Guard sets a savepoint before an opaque statement; see Before. Call release with the result of
// the statement, instead of Observe: it finds out the statement's effect on the transaction. exec
// runs a statement in the transaction. If Guard returns an error, do not run the statement.
func (t *Tracker) Guard(ctx context.Context, exec func(ctx context.Context, query string) error) (
	release func(err error), err error,
) {
	run := executor(exec)
	if err := run.setGuard(ctx); err != nil {
		t.Observe("", err)
		return nil, err
	}
	return func(err error) { run.releaseGuard(ctx, t, err) }, nil
}
