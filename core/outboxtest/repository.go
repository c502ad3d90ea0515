package outboxtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/internal/pause"
)

// Repository is a core.Repository in memory. Its transactions (Begin, Transactor) behave like a
// database's. Rows are invisible until they commit, and key rows are locked until the transaction
// ends. Savepoints and lost answers of COMMIT exist, and a deadlock has a victim. Repository passes
// TestRepository. It is safe for use by several goroutines. Make one with NewRepository.
type Repository struct {
	dialect core.Dialect
	clock   func() time.Time
	exec    func(query string, args []any) (int64, error)

	mu       sync.Mutex // guards the fields below; never held while waiting
	shift    time.Duration
	table    table
	keys     map[core.KeyID]*keyRow
	floor    int64 // the highest number of a deleted key row; no key may start below it
	timeline int
	locks    map[lockKey]*rowLock
	audits   []Audit
	relays   map[string]core.RelayStatus
	plans    map[string]ops.StoredPlan
	planning sync.Mutex                 // taken before mu
	history  map[time.Time]*historySlot // by the begin of the slot
	decisions
	commitFaults []CommitFault
}

// decisions are settings that people and programs have stored about events. The zero value has
// none.
type decisions struct {
	pauses  map[string]core.Pause // by pauseTarget
	groups  map[string]ops.GroupNote
	rates   map[string]core.Rate // by topic
	windows map[windowKey]ops.Window
}

var _ core.Repository = (*Repository)(nil)

// Check implements core.Repository: nothing is missing.
func (r *Repository) Check(ctx context.Context) error { return ctx.Err() }

// Warnings implements core.Repository: there are no dangers.
func (r *Repository) Warnings(context.Context) ([]core.Warning, error) { return nil, nil }

// Classify implements core.Repository. It recognises errors of all databases.
func (r *Repository) Classify(err error) core.ErrorKind { return sqlerr.Classify(err) }

// keyRow is a row of the key table. It is changed in place under its lock, and the transaction
// records its earlier value.
type keyRow struct {
	lastSeq, firstSeq int64
	lastID            core.RowID
	usedAt            time.Time
	timeline          int
}

// Option configures a Repository.
type Option func(*Repository)

// WithClock makes now the clock of the repository, which truncates it to microseconds. Default:
// time.Now.
func WithClock(now func() time.Time) Option { return func(r *Repository) { r.clock = now } }

// WithDialect makes the transactions of the repository behave like a database of that dialect: in
// the effect of an error on the transaction, and in the comparison of savepoint names. Default:
// core.Postgres, where every error aborts the transaction.
func WithDialect(d core.Dialect) Option { return func(r *Repository) { r.dialect = d } }

// WithExec makes Exec and Query of the repository's transactions call fn for every statement that
// is not transaction control. An error of fn is treated as an error of the database. Default: such
// statements do nothing.
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

// NextTimeline is a failover of PostgreSQL: the numbers of every key go on at the clock of the
// database.
func (r *Repository) NextTimeline() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timeline++
}

// now reads the clock of the database. The caller holds r.mu.
func (r *Repository) now() time.Time {
	return r.clock().Add(r.shift).Round(0).UTC().Truncate(time.Microsecond)
}

// Rows returns a copy of the committed rows in ascending order of ids.
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

// Row returns the committed row with that id.
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

// FailCommit makes the next commits of this repository's transactions end in the given ways, in
// this order.
func (r *Repository) FailCommit(faults ...CommitFault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commitFaults = append(r.commitFaults, faults...)
}

// begin checks ctx and enters the critical section of a statement that runs outside a transaction.
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
