package outboxtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/internal/pause"
)

// Repository is a core.Repository in memory. Its transactions (Begin, Transactor) behave like those
// of a database: rows are invisible until they commit, key rows are locked until the end,
// savepoints and lost answers of COMMIT exist, and a deadlock has a victim. It passes
// TestRepository. It is safe for use by several goroutines; make one with NewRepository.
type Repository struct {
	dialect core.Dialect
	clock   func() time.Time
	exec    func(query string, args []any) (int64, error)

	mu           sync.Mutex // guards what follows; never held while waiting
	shift        time.Duration
	table        table
	keys         map[core.KeyID]*keyRow
	floor        int64 // no key may start below this: the highest number of a key row that was deleted
	locks        map[lockKey]*rowLock
	audits       []Audit
	commitFaults []CommitFault
}

var _ core.Repository = (*Repository)(nil)

// keyRow is a row of the key table. It is changed in place under its lock; the transaction
// remembers what it was.
type keyRow struct {
	lastSeq, firstSeq int64
	lastID            core.RowID
	usedAt            time.Time
}

// Option configures a Repository.
type Option func(*Repository)

// WithClock makes the repository read its clock from now. Default: time.Now. The repository
// truncates it to microseconds.
func WithClock(now func() time.Time) Option { return func(r *Repository) { r.clock = now } }

// WithDialect makes the transactions of the repository behave like those of a database of that
// dialect: what an error does to the transaction, and how savepoint names are compared. Default:
// core.Postgres, where every error aborts the transaction.
func WithDialect(d core.Dialect) Option { return func(r *Repository) { r.dialect = d } }

// WithExec makes Exec and Query of the repository's transactions call fn for every statement that
// is not transaction control. An error of fn is treated as one of the database. Default: they do
// nothing.
func WithExec(fn func(query string, args []any) (affected int64, err error)) Option {
	return func(r *Repository) { r.exec = fn }
}

// NewRepository returns an empty table.
func NewRepository(opts ...Option) *Repository {
	r := &Repository{
		dialect: core.Postgres, clock: time.Now, table: newTable(),
		exec: func(string, []any) (int64, error) { return 0, nil }, keys: map[core.KeyID]*keyRow{},
		locks: map[lockKey]*rowLock{},
	}
	for _, opt := range opts {
		opt(r)
	}
	return r
}

// ShiftClock moves the clock of the database by d from now on; a negative d turns it back.
func (r *Repository) ShiftClock(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shift += d
}

// now is the clock of the database. The caller holds r.mu.
func (r *Repository) now() time.Time {
	return r.clock().Add(r.shift).Round(0).UTC().Truncate(time.Microsecond)
}

// Rows returns the committed rows in ascending id. It is a copy.
func (r *Repository) Rows() []Row {
	r.mu.Lock()
	defer r.mu.Unlock()
	rows := make([]Row, 0, len(r.table.rows))
	for _, row := range slices.SortedFunc(maps.Values(r.table.rows), byID) {
		c := *row
		c.Event = cloneEvent(c.Event)
		rows = append(rows, c)
	}
	return rows
}

// Row returns the committed row of that id.
func (r *Repository) Row(id core.RowID) (Row, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	row, ok := r.table.rows[id]
	if !ok {
		return Row{}, false
	}
	c := *row
	c.Event = cloneEvent(c.Event)
	return c, true
}

// Audits returns the audit rows, oldest first.
func (r *Repository) Audits() []Audit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.audits)
}

// Keys returns how many key rows there are.
func (r *Repository) Keys() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.keys)
}

// FailCommit makes the next commits of this repository's transactions end in the given ways, one
// after the other.
func (r *Repository) FailCommit(faults ...CommitFault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commitFaults = append(r.commitFaults, faults...)
}

// begin checks ctx and enters the critical section in which a statement of the repository's own
// does its work.
func (r *Repository) begin(ctx context.Context) error {
	if err := pause.Now(ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	return nil
}

var errConnectionLost = errors.New("connection lost")
