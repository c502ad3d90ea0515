package core

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/ormoutbox/ormoutbox/core/internal/mutant"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// Tracker collects what is to happen after a transaction, for authors of adapters: create one when a transaction begins, show it
// every statement (Observe), and end it with Commit or RolledBack. It follows savepoints, and its rule is: any doubt means
// Unknown. Dropping a callback's Committed is always safe, because the poller finds the row; claiming Committed for a row
// that is not there would publish an event that never happened.
//
// A Tracker is safe for use by several goroutines.
type Tracker struct {
	mu         sync.Mutex
	dialect    Dialect
	callbacks  []func(Outcome)
	savepoints []savepoint
	tainted    bool // for good
	blind      bool // for good, and not even a rollback tells what became of what: transaction control went past us
	murky      bool // a name was spelled in two ways: there may be savepoints here that the database no longer has
	failed     bool // PostgreSQL refuses everything until a savepoint is rolled back to
	aborted    error
	done       bool
}

type savepoint struct {
	name spName
	mark int // len(callbacks) when it was set
}

// spName is the name of a savepoint. Whether two spellings are the same name differs between databases; the same spelling always is.
type spName struct {
	folded  string // lower case, without quotes: as coarse as the coarsest database
	spelled string // as it was written
}

// NewTracker returns the Tracker of a transaction that has just begun.
func NewTracker(d Dialect) *Tracker { return &Tracker{dialect: d} }

// OnOutcome registers fn as Tx.OnOutcome describes. After the end of the transaction fn is called at once with Unknown.
func (t *Tracker) OnOutcome(fn func(Outcome)) {
	t.mu.Lock()
	if t.done {
		t.mu.Unlock()
		fn(Unknown)
		return
	}
	t.callbacks = append(t.callbacks, fn)
	t.mu.Unlock()
}

// Err returns an error wrapping ErrTxAborted when a statement failed in a way after which the database may have rolled the
// transaction back behind the caller's back, and one wrapping ErrNoTransaction when the transaction has ended.
func (t *Tracker) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return fmt.Errorf("%w: this one has ended already", ErrNoTransaction)
	}
	return t.aborted
}

// Taint makes every outcome that is still open Unknown unless it is rolled back.
func (t *Tracker) Taint() {
	t.mu.Lock()
	t.tainted = true
	t.mu.Unlock()
}

// Abort taints the transaction and makes Err return an error wrapping ErrTxAborted and cause.
func (t *Tracker) Abort(cause error) {
	t.mu.Lock()
	t.abort(cause)
	t.mu.Unlock()
}

func (t *Tracker) abort(cause error) {
	t.tainted = true
	if t.aborted == nil {
		t.aborted = fmt.Errorf("%w: %w", ErrTxAborted, cause)
	}
}

// Observe is shown every statement of the transaction with its result. query may be empty when the text is not known.
func (t *Tracker) Observe(query string, err error) {
	if errors.Is(err, driver.ErrSkip) { // the driver asks database/sql for another way; nothing was executed
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return
	}
	verb, name := control(query)
	if verb == ctlNone && t.dialect == MySQL && commitsImplicitly(query) {
		verb = ctlEnd
	}
	if verb == ctlEnd || hiddenControl(query) { // also when it failed: its answer may be what was lost
		t.tainted, t.blind = true, true
	}
	if err != nil {
		switch {
		case t.fatal(query, err):
			t.abort(err)
		case t.dialect == Postgres:
			t.failed = true
		case t.dialect != MySQL && t.dialect != SQLite:
			t.tainted = true
		}
		return
	}
	switch verb {
	case ctlSavepoint:
		t.savepoints = append(t.savepoints, savepoint{name: name, mark: len(t.callbacks)})
	case ctlRelease:
		t.release(name)
	case ctlRollbackTo:
		t.failed = false // it was accepted, so what failed is undone with everything since the savepoint
		t.rollbackTo(name)
	case ctlEnd:
		// COMMIT, ROLLBACK or BEGIN as text, or a statement that MySQL commits before: the transaction that we follow is over, or never was ours.
		t.savepoints = nil
		t.abort(errors.New("a statement ended the transaction behind the driver"))
	case ctlNone:
	}
}

// fatal reports whether a failed statement may have rolled back more than itself. A violated constraint undoes only the
// statement on MySQL and SQLite. On PostgreSQL an aborted transaction refuses everything by itself, and a savepoint can
// bring it back.
func (t *Tracker) fatal(query string, err error) bool {
	switch t.dialect {
	case MySQL:
		return !sqlerr.MySQLConstraint(err)
	case SQLite:
		return !sqlerr.SQLiteConstraint(err) || strings.Contains(strings.ToUpper(query), "OR ROLLBACK")
	case Postgres:
	}
	return false
}

// find returns the first and the last savepoint that name may mean, or -1 and -1.
func (t *Tracker) find(name spName) (first, last int) {
	first, last = -1, -1
	for i, s := range t.savepoints {
		if s.name.folded == name.folded {
			last = i
			if first < 0 {
				first = i
			}
		}
	}
	return first, last
}

// exact reports whether name means savepoint i, the last of those that it may mean, for certain: every database takes the latest
// of one spelling.
func (t *Tracker) exact(name spName, i int) bool {
	return !t.murky && t.savepoints[i].name.spelled == name.spelled
}

// release forgets the savepoint and those behind it. In doubt it keeps more than the database does.
func (t *Tracker) release(name spName) {
	first, last := t.find(name)
	if last < 0 {
		t.tainted = true
		return
	}
	if first != last && !t.exact(name, last) {
		t.murky = true
	}
	t.savepoints = t.savepoints[:last]
}

// rollbackTo drops what was registered since the savepoint. When it is not certain which one that is, it drops from the earliest and
// keeps the frames up to the last: it may drop too much (the poller finds it), never too little.
func (t *Tracker) rollbackTo(name spName) {
	first, last := t.find(name)
	if last < 0 {
		t.tainted = true
		return
	}
	at, outcome := last, RolledBack
	if first != last && !t.exact(name, last) {
		t.murky = true
		at, outcome = first, Unknown // some of them may in truth still be there
	}
	if t.blind {
		outcome = Unknown
	}
	mark := t.savepoints[at].mark
	if mutant.Active == mutant.SavepointKept {
		mark = len(t.callbacks)
	}
	dropped := append([]func(Outcome){}, t.callbacks[mark:]...)
	t.callbacks = t.callbacks[:mark:mark]
	t.savepoints = t.savepoints[:last+1]
	for i := range t.savepoints { // a mark beyond the end would bring dropped callbacks back
		t.savepoints[i].mark = min(t.savepoints[i].mark, mark)
	}
	t.call(dropped, outcome)
}

// Commit runs commit, which must send COMMIT, and reports the outcome. Its error is that of commit; when it leaves open whether
// the transaction committed, and events depend on it, it also wraps ErrCommitUnknown.
func (t *Tracker) Commit(commit func() error) error {
	err := commit()
	t.mu.Lock()
	if t.done {
		t.mu.Unlock()
		return err
	}
	waiting := len(t.callbacks) > 0
	outcome := Committed
	switch {
	case err != nil && sqlerr.CommitRefused(err):
		outcome = RolledBack
	case err != nil:
		outcome = Unknown
		if waiting {
			err = fmt.Errorf("%w: %w", ErrCommitUnknown, err)
		}
	case t.tainted, t.failed:
		outcome = Unknown
	}
	t.end(outcome)
	t.mu.Unlock()
	return err
}

// RolledBack reports that the transaction was rolled back, or that its connection is gone before COMMIT was sent.
// After Commit it does nothing. When a statement ended the transaction before, behind the driver's back, the outcome is Unknown.
func (t *Tracker) RolledBack() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.done {
		t.end(RolledBack)
	}
}

func (t *Tracker) end(o Outcome) {
	t.done = true
	if t.blind {
		o = Unknown
	}
	fns := t.callbacks
	t.callbacks, t.savepoints = nil, nil
	t.call(fns, o)
}

// call runs callbacks without the lock, so that they may register others; the caller holds it before and after.
func (t *Tracker) call(fns []func(Outcome), o Outcome) {
	if len(fns) == 0 {
		return
	}
	t.mu.Unlock()
	defer t.mu.Lock()
	for _, fn := range fns {
		fn(o)
	}
}

type ctl uint8

const (
	ctlNone ctl = iota
	ctlSavepoint
	ctlRelease
	ctlRollbackTo
	ctlEnd
)

// control recognises transaction control in a statement. Only the first words matter.
func control(query string) (ctl, spName) {
	q := skipSpace(query)
	if len(q) < 3 {
		return ctlNone, spName{}
	}
	switch q[0] | 0x20 { // most statements end here
	case 's', 'r', 'c', 'e', 'b', 'a', 'p':
	default:
		return ctlNone, spName{}
	}
	w, rest := word(q)
	switch w {
	case "SAVEPOINT":
		return ctlSavepoint, ident(rest)
	case "SAVE": // SQL Server
		if w, rest = word(rest); w == "TRAN" || w == "TRANSACTION" {
			return ctlSavepoint, ident(rest)
		}
	case "RELEASE":
		if w2, r2 := word(rest); w2 == "SAVEPOINT" {
			rest = r2
		}
		return ctlRelease, ident(rest)
	case "ROLLBACK", "ABORT":
		w, rest = word(rest)
		if w == "WORK" || w == "TRANSACTION" || w == "TRAN" {
			if name := ident(rest); w == "TRAN" && name.folded != "" { // SQL Server: ROLLBACK TRAN name
				return ctlRollbackTo, name
			}
			w, rest = word(rest)
		}
		if w != "TO" {
			return ctlEnd, spName{}
		}
		if w2, r2 := word(rest); w2 == "SAVEPOINT" {
			rest = r2
		}
		return ctlRollbackTo, ident(rest)
	case "COMMIT", "END", "BEGIN":
		return ctlEnd, spName{}
	case "START", "PREPARE": // PREPARE TRANSACTION is the first half of a two-phase commit
		if w, _ = word(rest); w == "TRANSACTION" {
			return ctlEnd, spName{}
		}
	}
	return ctlNone, spName{}
}

// commitsImplicitly reports whether MySQL and MariaDB commit before they run the statement, whether it then succeeds or not.
func commitsImplicitly(query string) bool {
	q := skipSpace(query)
	if q == "" {
		return false
	}
	switch q[0] | 0x20 { // most statements end here
	case 'c', 'd', 'a', 't', 'r', 'g', 'l':
	default:
		return false
	}
	verb, rest := word(q)
	what, rest := word(rest)
	switch verb {
	case "CREATE":
		if what == "OR" {
			_, rest = word(rest) // REPLACE
			what, _ = word(rest)
		}
		return what != "TEMPORARY"
	case "DROP":
		return what != "TEMPORARY" && what != "PREPARE"
	case "LOCK":
		return what == "TABLE" || what == "TABLES"
	case "ALTER", "TRUNCATE", "RENAME", "GRANT", "REVOKE":
		return true
	}
	return false
}

// hiddenControl reports whether transaction control may follow a semicolon: some drivers run several statements sent as one. A
// semicolon within a literal can mislead it, so it is no more than a doubt.
func hiddenControl(query string) bool {
	for {
		_, rest, found := strings.Cut(query, ";")
		if !found {
			return false
		}
		if c, _ := control(rest); c != ctlNone {
			return true
		}
		query = rest
	}
}

// skipSpace drops blanks, semicolons and comments in front of a statement. What MySQL and MariaDB execute of a comment is none.
func skipSpace(s string) string {
	for {
		s = strings.TrimLeft(s, " \t\r\n;")
		switch {
		case strings.HasPrefix(s, "/*!"), strings.HasPrefix(s, "/*M!"):
			_, s, _ = strings.Cut(s, "!")
			s = strings.TrimLeft(s, "0123456789")
		case strings.HasPrefix(s, "--"):
			_, s, _ = strings.Cut(s, "\n")
		case strings.HasPrefix(s, "/*"):
			_, s, _ = strings.Cut(s[2:], "*/")
		default:
			return s
		}
	}
}

// word splits off the first word in upper case.
func word(s string) (string, string) {
	s = skipSpace(s)
	i := 0
	for i < len(s) && (s[i]|0x20 >= 'a' && s[i]|0x20 <= 'z' || s[i] == '_') {
		i++
	}
	return strings.ToUpper(s[:i]), s[i:]
}

// ident reads a savepoint name, up to a blank, a semicolon or a comment.
func ident(s string) spName {
	s = strings.TrimSpace(skipSpace(s))
	name := spName{folded: s, spelled: strings.TrimRight(s, " \t\r\n;")}
	if s == "" {
		return name
	}
	if q := s[0]; q == '"' || q == '`' || q == '[' {
		if q == '[' {
			q = ']'
		}
		if i := strings.IndexByte(s[1:], q); i >= 0 {
			name.folded = strings.ToLower(s[1 : 1+i])
			return name
		}
	}
	if i := strings.IndexAny(s, " \t\r\n;/-"); i >= 0 {
		name.folded = s[:i]
	}
	name.folded = strings.ToLower(name.folded)
	return name
}
