package truth_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// orm is what the oracle has to know of an ORM. H is what an application has in its hands: the pool
// or a transaction.
type orm[H any] struct {
	name        string
	kinds       []kind[H]
	variants    []string // how the ORM is set up
	open        func(t *testing.T, db testdb.DB, outbox bool, n *notes) (variants []H)
	transaction func(h H, fn func(H) error) error
	with        func(ctx context.Context, h H, bare bool) H
	conn        func(h H) querier
	ownClock    bool // the times that it stores cannot be compared
}

// kind is a kind of statement. draw makes one, with models of its own.
type kind[H any] struct {
	name string
	draw func(*draw) call[H]
	idle string // the databases on which it changes no rows, or all
}

// call is one statement of a program.
type call[H any] struct {
	code      string
	run       func(H) (rows int64, err error)
	models    []any // the caller's, compared after the statement
	recs      []*recording
	publish   func(H) error // on the side with the outbox
	published string        // its type
	refusable bool          // docs say that the outbox may refuse it
	nested    bool          // it sets a savepoint of its own
}

// notes are what the callbacks of an ORM note while a statement runs, and what they need for it.
type notes struct {
	now    time.Time          // a clock that goes alike on both sides
	cancel context.CancelFunc // called after the first write
	watch  bool               // whether writes are noted
	writes []written
}

// wrote is called after each statement that wrote.
func (n *notes) wrote(ctx context.Context, q querier, op core.Op, nothing bool) {
	if n.watch {
		w := written{op: op, nothing: nothing}
		var err error
		if w.until, err = countChanges(ctx, q); err == nil { // else PostgreSQL's transaction is broken
			n.writes = append(n.writes, w)
		}
	}
	if n.cancel != nil {
		n.cancel()
	}
}

var (
	errRollBack = errors.New("roll back")
	errPanic    = errors.New("panic of the program")
	errStop     = errors.New("the oracle stops")
	errPublish  = errors.New("publish failed, or a query in its place")
)

// side is a database on which a program runs: the one with the outbox, or the plain one.
type side[H any] struct {
	orm[H]
	db       testdb.DB
	pool     *sql.DB
	handles  []H
	resets   []string
	notes    notes
	changed  map[string]int // by kind of statement: rows that it changed
	outbox   bool
	watching bool // truth is compared with what is told
	// stream, if it is set, tells in place of the outbox.
	stream func(writes []written, models []any) []event

	// Of the transaction that runs:
	outcomes []outcome
	fault    *fault
	at       string // the kind of statement with the fault
	refused  bool
	seen     seen
	owed     *fault // rows whose statement returned an error: COMMIT must not succeed
	recs     []*recording
	ids      identities
}

// seen counts the rows of truth and outbox_event that have been compared.
type seen struct{ changes, events int }

const (
	endOfTransaction = "end of transaction"
	endOfSavepoint   = "end of savepoint"
	halfDone         = "half done" // the rest of the program is not comparable
)

// outcome is what a caller sees of a statement, or of COMMIT.
type outcome struct {
	kind, code, models, err string
	rows                    int64
}

func openSide[H any](t *testing.T, o orm[H], db testdb.DB, outbox bool) *side[H] {
	t.Helper()
	s := &side[H]{
		orm: o, db: db, pool: db.Open(t), outbox: outbox, resets: reset(db.Dialect, outbox),
		changed: map[string]int{},
	}
	createTables(t, db, s.pool)
	s.watch(outbox)
	s.handles = o.open(t, db, outbox, &s.notes)
	return s
}

func (s *side[H]) watch(on bool) { s.watching, s.notes.watch = on, on }

func (s *side[H]) reset(ctx context.Context) error {
	s.seen, s.ids = seen{}, identities{}
	s.notes.now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if s.db.Dialect != core.SQLite {
		for _, text := range s.resets {
			if _, err := s.pool.ExecContext(ctx, text); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
		return nil
	}
	tx, err := s.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, text := range s.resets {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return tx.Commit()
}

// run runs a transaction.
func (s *side[H]) run(ctx context.Context, h H, tx transaction) {
	s.outcomes, s.fault, s.at, s.refused, s.owed, s.recs = nil, nil, "", false, nil, nil
	if tx.outside {
		for _, st := range tx.steps {
			recs := len(s.recs)
			err := s.step(ctx, h, st, s.pool)
			// With an error too, nothing may be stored without its events now. Some statements of a
			// call may have committed by themselves before another one failed.
			s.ended(ctx, s.seen, s.recs[recs:], nil)
			if s.fault != nil || s.refused {
				return
			}
			// The outbox begins a transaction where SkipDefaultTransaction leaves it out. So it
			// rolls back what plain GORM has already committed when a later statement of the same
			// call fails: the tables may differ from here.
			if err != nil {
				s.outcomes = append(s.outcomes, outcome{code: halfDone})
				return
			}
		}
		return
	}
	before := s.seen
	err := s.caught(func() error {
		return s.transaction(s.with(ctx, h, false), func(h H) error {
			for _, st := range tx.steps {
				err := s.inTransaction(ctx, h, st)
				switch {
				case s.fault != nil:
					return errStop
				case s.refused: // and ignored: what was written must not be committed without its events
					return nil
				case err != nil && !st.swallow:
					return err
				}
			}
			switch tx.end {
			case rolledBack:
				return errRollBack
			case panicked:
				panic(errPanic)
			default:
				return nil
			}
		})
	})
	s.outcomes = append(s.outcomes, outcome{code: endOfTransaction, err: errText(err)})
	if s.fault == nil {
		s.ended(ctx, before, s.recs, err)
	}
}

// caught turns a panic of the program into an error. Any other panic is a fault.
func (s *side[H]) caught(fn func() error) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case any(errPanic):
			err = errPanic
		default:
			s.fault = faultf("panic", "%v\n%s", p, debug.Stack())
			err = errStop
		}
	}()
	return fn()
}

// inTransaction runs a step of a transaction, perhaps in a savepoint.
func (s *side[H]) inTransaction(ctx context.Context, h H, st step) error {
	if !st.savepoint {
		return s.step(ctx, h, st, s.conn(h))
	}
	before, recs, owed := s.seen, len(s.recs), s.owed
	err := s.caught(func() error {
		return s.transaction(h, func(h H) error {
			err := s.step(ctx, h, st, s.conn(h))
			switch {
			case err != nil || s.fault != nil || s.refused:
				return err
			case st.end == rolledBack:
				return errRollBack
			case st.end == panicked:
				panic(errPanic)
			default:
				return nil
			}
		})
	})
	s.outcomes = append(s.outcomes, outcome{code: endOfSavepoint, err: errText(err)})
	if err != nil {
		s.seen, s.owed = before, owed
		for _, r := range s.recs[recs:] {
			r.rollBack()
		}
	}
	return err
}

// step runs a statement and compares what it did. q reads in its transaction.
func (s *side[H]) step(ctx context.Context, h H, st step, q querier) error {
	k := s.kinds[st.kind]
	c := k.draw(st.draw(s.db.Dialect))
	s.notes.now = s.notes.now.Add(time.Second)
	s.notes.writes, s.notes.cancel = nil, nil
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	switch {
	case st.ctx == endedBefore:
		cancel()
	// If the context of a savepoint has ended, plain GORM cannot roll back to it, and goes on. The
	// outbox does roll back, so that nothing is committed that was to be rolled back.
	case st.ctx == endsAfter && !c.nested:
		s.notes.cancel = cancel
	}
	o := outcome{kind: k.name, code: c.code}
	err := s.caught(func() (err error) {
		if c.publish == nil {
			o.rows, err = c.run(s.with(own, h, st.bare))
			return err
		}
		if !s.outbox { // it fails where Publish does: in a transaction of PostgreSQL that is broken
			_, err = countChanges(ctx, q)
			return err
		}
		return s.transaction(s.with(ctx, h, false), c.publish)
	})
	s.notes.cancel = nil
	if c.publish != nil && err != nil {
		err = errPublish
	}
	o.err = errText(err)
	for _, m := range c.models {
		o.models += literal(m) + " "
	}
	s.outcomes = append(s.outcomes, o)
	if !s.watching {
		return err
	}
	if err != nil && c.publish == nil && strings.Contains(err.Error(), "outbox: ") {
		s.refused = true
		if !c.refusable || !errors.Is(err, core.ErrNoAggregateID) {
			s.blame(k.name, faultf("refused", "%v", err))
			return err
		}
	}
	if s.fault == nil {
		s.blame(k.name, s.compare(ctx, q, k.name, c, err))
	} else {
		s.at = k.name
	}
	return err
}

func (s *side[H]) blame(kind string, f *fault) {
	if f != nil && s.fault == nil {
		s.fault, s.at = f, kind
	}
}

// compare compares what is new in truth and outbox_event.
func (s *side[H]) compare(ctx context.Context, q querier, kind string, c call[H], failed error) *fault {
	all, err := changes(ctx, q)
	if err != nil {
		if failed != nil || strings.Contains(err.Error(), "25P02") {
			return nil // PostgreSQL's transaction is broken
		}
		return faultf("oracle", "read truth: %v", err)
	}
	told, err := s.events(ctx, q)
	if err != nil {
		return faultf("oracle", "read outbox_event: %v", err)
	}
	if len(all) < s.seen.changes || len(told) < s.seen.events {
		return faultf("oracle", "rows are gone: %d of %d, %d of %d", len(all), s.seen.changes, len(told), s.seen.events)
	}
	var writes []written
	from := s.seen.changes
	for _, w := range s.notes.writes {
		until := min(w.until, len(all)) // a savepoint within the statement was perhaps rolled back
		if until > from {
			w.changes = all[from:until]
			writes = append(writes, w)
			from = until
		}
	}
	if from < len(all) {
		return faultf("oracle", "%d changes were not noted: %v", len(all)-from, all[from:])
	}
	fresh := told[s.seen.events:]
	recs, published := c.recs, []string(nil)
	if c.publish != nil && failed == nil {
		published = []string{c.published}
	}
	s.changed[kind] += len(all) - s.seen.changes + len(published)
	if s.stream != nil {
		fresh, recs, published = s.stream(writes, c.models), nil, nil
	}
	s.recs = append(s.recs, recs...)
	s.seen = seen{len(all), len(told)}
	f := compare(writes, fresh, recs, published, &s.ids)
	if f != nil && f.class == "loss" && failed != nil {
		s.owed, f = f, nil
	}
	return f
}

func (s *side[H]) events(ctx context.Context, q querier) ([]event, error) {
	if !s.outbox {
		return nil, nil
	}
	return events(ctx, q)
}

// ended compares what the end of a transaction has left. recs are those of the transaction.
func (s *side[H]) ended(ctx context.Context, before seen, recs []*recording, err error) {
	if !s.watching || s.fault != nil {
		return
	}
	if err != nil {
		s.seen = before
	}
	all, err1 := changes(ctx, s.pool)
	told, err2 := s.events(ctx, s.pool)
	if err := errors.Join(err1, err2); err != nil {
		s.blame("end", faultf("oracle", "%v", err))
		return
	}
	if n := (seen{len(all), len(told)}); n != s.seen {
		s.blame("end", faultf("end", "%d changed rows and %d events are there after error %v, want %d and %d",
			n.changes, n.events, err, s.seen.changes, s.seen.events))
	}
	if err == nil && s.owed != nil {
		s.blame("end", faultf("loss", "committed, although %s", s.owed.text))
	}
	for _, r := range recs {
		if err != nil {
			r.rollBack()
		}
		want := 1
		if r.out || r.undone {
			want = 0
		}
		// A statement that did not say whose row it changed may have been seen all the same.
		if n := r.left(); n != want && (n != 0 || !r.rolledBack) {
			s.blame("end", faultf("recorder", "%d events are still recorded on a model, want %d", n, want))
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// lockstep runs programs on a database with the outbox, and on one without.
type lockstep[H any] struct {
	outbox, plain *side[H]
	runs          map[string]int // by kind
	steps         int
	refused       int
}

func openLockstep[H any](t *testing.T, o orm[H], db testdb.DB, outbox bool) *lockstep[H] {
	t.Helper()
	return &lockstep[H]{
		outbox: openSide(t, o, db, outbox), plain: openSide(t, o, db.Another(t), false),
		runs: map[string]int{},
	}
}

const programTimeout = time.Minute

// run runs a program. at is the kind of statement with the fault.
func (l *lockstep[H]) run(p program) (f *fault, at string) {
	ctx, cancel := context.WithTimeout(context.Background(), programTimeout)
	defer cancel()
	a, b := l.outbox, l.plain
	if err := errors.Join(a.reset(ctx), b.reset(ctx)); err != nil {
		return faultf("oracle", "%v", err), ""
	}
	for _, tx := range p.txs {
		a.run(ctx, a.handles[p.variant], tx)
		l.count()
		if a.fault != nil {
			return a.fault, a.at
		}
		if a.refused {
			return nil, ""
		}
		b.run(ctx, b.handles[p.variant], tx)
		if b.fault != nil {
			return b.fault, b.at
		}
		for i := range max(len(a.outcomes), len(b.outcomes)) {
			if i == len(a.outcomes) || i == len(b.outcomes) || !equal(a.outcomes[i], b.outcomes[i]) {
				return l.difference(i)
			}
		}
		if n := len(a.outcomes); n > 0 && a.outcomes[n-1].code == halfDone {
			return nil, ""
		}
		with, err1 := contents(ctx, a.pool)
		without, err2 := contents(ctx, b.pool)
		if err := errors.Join(err1, err2); err != nil {
			return faultf("oracle", "%v", err), ""
		}
		if a.ownClock {
			onlySet(with)
			onlySet(without)
		}
		if !maps.EqualFunc(with, without, slices.Equal) {
			return faultf("difference", "tables\nwith the outbox %v\nwithout         %v", with, without), "end"
		}
	}
	return nil, ""
}

// onlySet leaves of the times of deletion only whether they are set.
func onlySet(contents map[string][]string) {
	for i, row := range contents["softs"] {
		at := strings.LastIndex(row, "|") + 1
		if row[at:] != "NULL" {
			contents["softs"][i] = row[:at] + "set"
		}
	}
}

// equal compares an outcome with the outbox with one without it.
func equal(with, without outcome) bool {
	// A transaction of sqltx says why PostgreSQL rolled it back in place of a commit. pgx only says
	// that it did.
	if with.code == endOfTransaction && without.err == pgx.ErrTxCommitRollback.Error() &&
		strings.HasPrefix(with.err, "sqltx: rolled back instead of committed: ") {
		with.err = without.err
	}
	return with == without
}

func (l *lockstep[H]) count() {
	for _, o := range l.outbox.outcomes {
		if o.kind != "" {
			l.runs[o.kind]++
			l.steps++
		}
	}
	if l.outbox.refused {
		l.refused++
	}
}

// difference says how the i-th outcomes differ.
func (l *lockstep[H]) difference(i int) (f *fault, at string) {
	with, without := outcome{err: "nothing"}, outcome{err: "nothing"}
	if i < len(l.outbox.outcomes) {
		with = l.outbox.outcomes[i]
	}
	if i < len(l.plain.outcomes) {
		without = l.plain.outcomes[i]
	}
	show := func(o outcome) string { return fmt.Sprintf("%d rows, error %q, models %s", o.rows, o.err, o.models) }
	return faultf("difference", "%s\nwith the outbox %s\nwithout         %s", with.code, show(with), show(without)),
		cmp.Or(with.kind, "end")
}

// text returns a program as code.
func (l *lockstep[H]) text(p program) string {
	return p.text(l.outbox.variants[p.variant], func(s step) string {
		k := l.outbox.kinds[s.kind]
		return k.draw(s.draw(l.outbox.db.Dialect)).code
	})
}
