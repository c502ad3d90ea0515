package sqltx

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/mutant"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqltext"
)

// Tracker collects what is to happen after a transaction, for authors of adapters: create one when
// a transaction begins, ask it before every statement (Before), show it the result (Observe), and
// end it with Commit or RolledBack. It follows savepoints, and its rule is: any doubt means
// Unknown. Dropping a callback's Committed is always safe, because the poller finds the row;
// claiming Committed for a row that is not there would publish an event that never happened.
//
// What a text can do to the transaction is read from it, and what cannot be read counts as a doubt:
// a text is harmless only when it is known to be. After a statement that failed the transaction may
// be gone, which Doubt tells; who can ask the database ends the doubt with Resolve.
//
// A Tracker is safe for use by several goroutines.
type Tracker struct {
	mu         sync.Mutex
	dialect    core.Dialect
	syntax     sqltext.Dialect
	callbacks  []func(core.Outcome)
	savepoints []savepoint
	unsure     bool  // Committed is reported no more
	bypassed   bool  // transaction control went past us: not even a rollback tells what became of what
	ambiguous  bool  // a name was spelled in two ways: there may be savepoints here that the database no longer has
	doubt      error // after which nobody knows whether the transaction is still there
	likely     bool  // that it is: doubt is a violated constraint
	gone       error // the server has rolled back: nothing more may be sent
	aborted    error
	done       bool

	// What Before has read is at hand for Observe.
	text string
	kind sqltext.Kind
	name sqltext.Name
}

type savepoint struct {
	name sqltext.Name
	mark int // len(callbacks) when it was set
}

// NewTracker returns the Tracker of a transaction that has just begun.
func NewTracker(d core.Dialect) *Tracker {
	t := &Tracker{dialect: d, text: noText}
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

// Err returns an error wrapping core.ErrTxAborted when a statement failed in a way after which the
// database may have rolled the transaction back behind the caller's back, and one wrapping
// core.ErrNoTransaction when the transaction has ended.
func (t *Tracker) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.done:
		return fmt.Errorf("%w: this one has ended already", core.ErrNoTransaction)
	case t.gone != nil:
		return t.gone
	case t.aborted == nil && t.doubt != nil && !t.likely && (t.dialect == core.MySQL || t.dialect == core.SQLite):
		// PostgreSQL refuses by itself
		return fmt.Errorf("%w: %w", core.ErrTxAborted, t.doubt)
	}
	return t.aborted
}

// Before is asked before each statement. Its error wraps core.ErrTxAborted: the server has rolled
// the transaction back, so the statement would stand for itself; do not send it, nor COMMIT. opaque
// says that nobody can tell from the text what it does to the transaction. Who sets a savepoint of
// his own before and can release it after it knows that it did nothing, and passes no text to
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
	if t.text != query { // often the very same string, which is compared in no time
		t.text = query
		t.kind, t.name = sqltext.Read(t.syntax, query)
	}
	return t.kind, t.name
}

// Doubt returns the error of a statement after which nobody knows whether the transaction is still
// open: on MySQL, MariaDB and SQLite the database may have rolled it back. On PostgreSQL it is
// aborted, unless the error never came from there. Ask the database then, before the next
// statement, or on PostgreSQL before COMMIT, and tell Resolve.
func (t *Tracker) Doubt() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done || t.gone != nil {
		return nil
	}
	return t.doubt
}

// Resolve ends a doubt: open says that the database still has the transaction and will commit it.
// If not, nothing of it is left, and Before refuses everything.
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
		if t.bypassed && !errors.Is(cause, core.ErrCommitUnknown) { // by COMMIT, perhaps
			cause = fmt.Errorf("%w: %w", core.ErrCommitUnknown, cause)
		}
		t.abort(cause)
		t.gone = t.aborted
	}
	t.doubt, t.likely = nil, false
}

// Unseen makes every outcome that is still open Unknown unless it is rolled back: there may have
// been savepoints that nobody saw. It does not doubt the transaction.
func (t *Tracker) Unseen() {
	t.mu.Lock()
	t.unsure = true
	t.mu.Unlock()
}

// Abort does what Unseen does, and makes Err return an error wrapping core.ErrTxAborted and cause.
func (t *Tracker) Abort(cause error) {
	t.mu.Lock()
	t.abort(cause)
	t.mu.Unlock()
}

func (t *Tracker) abort(cause error) {
	t.unsure = true
	if t.aborted == nil {
		t.aborted = fmt.Errorf("%w: %w", core.ErrTxAborted, cause)
	}
}

// Observe is shown every statement of the transaction with its result. query may be empty when the
// text is not known and nothing in it can be transaction control.
func (t *Tracker) Observe(query string, err error) {
	if errors.Is(err, driver.ErrSkip) { // the driver asks database/sql for another way; nothing was executed
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return
	}
	kind, name := t.read(query)
	if kind >= sqltext.End { // also when it failed: its answer may be what was lost
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
		t.savepoints = append(t.savepoints, savepoint{name: name, mark: len(t.callbacks)})
	case sqltext.Release:
		t.release(name)
	case sqltext.RollbackTo:
		t.rollbackTo(name)
	case sqltext.End:
		// COMMIT, ROLLBACK or BEGIN as text, or a statement that MySQL commits before: the
		// transaction that we follow is over, or never was ours.
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

// fail notes a failed statement. It may have rolled back more than itself, except that a violated
// constraint undoes only the statement on MySQL, and on SQLite unless the statement or the table
// asks for more. PostgreSQL then refuses everything until a savepoint is rolled back to.
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

// exact reports whether name means savepoint i, the last of those that it may mean, for certain:
// every database takes the latest of one spelling.
func (t *Tracker) exact(name sqltext.Name, i int) bool {
	return !t.ambiguous && t.savepoints[i].name.Spelled == name.Spelled
}

// release forgets the savepoint and those behind it. In doubt it keeps more than the database does.
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

// rollbackTo drops what was registered since the savepoint. When it is not certain which one that
// is, it drops from the earliest and keeps the frames up to the last: it may drop too much (the
// poller finds it), never too little.
func (t *Tracker) rollbackTo(name sqltext.Name) {
	first, last := t.find(name)
	if last < 0 {
		t.unsure = true
		return
	}
	at, outcome := last, core.RolledBack
	if first != last && !t.exact(name, last) {
		t.ambiguous = true
		at, outcome = first, core.Unknown // some of them may in truth still be there
	}
	if t.bypassed {
		outcome = core.Unknown
	}
	mark := t.savepoints[at].mark
	if mutant.Active == mutant.SavepointKept {
		mark = len(t.callbacks)
	}
	dropped := append([]func(core.Outcome){}, t.callbacks[mark:]...)
	t.callbacks = t.callbacks[:mark:mark]
	t.savepoints = t.savepoints[:last+1]
	for i := range t.savepoints { // a mark beyond the end would bring dropped callbacks back
		t.savepoints[i].mark = min(t.savepoints[i].mark, mark)
	}
	t.call(dropped, outcome)
}

// Commit runs commit, which must send COMMIT, and reports the outcome. Its error is that of commit.
// When it leaves open whether the transaction committed, and somebody waits for the outcome, the
// error also wraps core.ErrCommitUnknown: when the answer was lost, and when COMMIT was answered
// well but may have committed something else. Where the server has rolled back before, commit is
// not run: the error wraps core.ErrTxAborted, and the caller rolls back.
func (t *Tracker) Commit(commit func() error) error {
	if _, gone := t.Before(""); gone != nil {
		t.RolledBack()
		return gone
	}
	err := commit()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return err
	}
	waiting := len(t.callbacks) > 0
	outcome := core.Committed
	switch {
	case err != nil && sqlerr.CommitRefused(err):
		outcome = core.RolledBack
	case err != nil:
		outcome = core.Unknown
		if waiting {
			err = fmt.Errorf("%w: %w", core.ErrCommitUnknown, err)
		}
	case t.bypassed, t.aborted != nil, t.doubt != nil && !t.likely:
		outcome = core.Unknown
		if waiting {
			err = t.reason()
		}
	case t.unsure: // it committed, but perhaps without what somebody waits for
		outcome = core.Unknown
	}
	t.end(outcome)
	return err
}

// reason says why the outcome is unknown although COMMIT was answered well.
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
	return fmt.Errorf("%w: %w", core.ErrCommitUnknown, cause)
}

// RolledBack reports that the transaction was rolled back, or that its connection is gone before
// COMMIT was sent. After Commit it does nothing. When a statement ended the transaction before,
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
}

// call runs callbacks without the lock, so that they may register others; the caller holds it
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
		if next < len(fns) { // one panicked, or called runtime.Goexit: the others hear of it all the same
			callAll(fns[next:], o)
		}
	}()
	for next < len(fns) {
		fn := fns[next]
		next++
		fn(o)
	}
}
