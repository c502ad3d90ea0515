package sqlinbox

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

// Config names the tables and their database.
type Config struct {
	// Dialect of the database. Empty: New asks the database, and a Store of On its first
	// transaction.
	Dialect core.Dialect
	// Schema of the tables: a schema of PostgreSQL, a database of MySQL. Empty: the default of the
	// connection. SQLite has none.
	Schema string
	// Prefix of the names of tables, indexes and constraints. Default: none, which makes
	// inbox_seen, inbox_failure, inbox_handler, inbox_program, inbox_key and inbox_migration.
	Prefix string
	// AutoCreate calls Migrate before the first event. If that fails, the messages fail with the
	// reason until it succeeds.
	AutoCreate bool
}

func (c Config) tables() sqlstore.Config {
	return sqlstore.Config{Dialect: c.Dialect, Schema: c.Schema, Prefix: c.Prefix}
}

// Store is the inbox in PostgreSQL, MariaDB 10.6 or newer, MySQL 8.0.16 or newer, or SQLite 3.35 or
// newer. It implements [inbox.Store]; create it with [New] or [On]. It is safe for use by several
// goroutines.
type Store struct {
	cfg Config
	on  core.Transactor // of On

	mu    sync.Mutex
	ready atomic.Bool // the fields below do not change any more

	db       *sqlstore.Store
	sql      *statements
	handlers handlers
}

var (
	_ inbox.Store    = (*Store)(nil)
	_ inbox.Archiver = (*Store)(nil)
)

// New returns the Store for the tables in db. If cfg does not name the dialect, New asks the
// database for it, within ten seconds. New sends nothing else: call [Store.Migrate] to create the
// tables, or [Store.Check] to compare them.
func New(db *sql.DB, cfg Config) (*Store, error) {
	one, err := sqlstore.New(db, tables, cfg.tables())
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg}
	s.use(one)
	return s, nil
}

// On returns the Store for the tables in the database of t, where there is a Transactor of an ORM
// and no pool. The Store runs its own short transactions with t, at the isolation of t. On sends
// nothing to the database.
func On(t core.Transactor, cfg Config) (*Store, error) {
	s := &Store{cfg: cfg, on: t}
	if cfg.Dialect == "" {
		cfg.Dialect = core.Postgres // for the check of the other fields
	}
	one, err := sqlstore.On(t, tables, cfg.tables())
	if err != nil {
		return nil, err
	}
	if s.cfg.Dialect != "" {
		s.use(one)
	}
	return s, nil
}

func (s *Store) use(db *sqlstore.Store) {
	s.db, s.sql = db, newStatements(db.Names)
	s.handlers.number = s.sql.database.handlerID
	s.ready.Store(!s.cfg.AutoCreate)
}

// Transactor returns the Transactor of a Store of On. It makes the Store ready before its first
// transaction, so [inbox.Config] has it as a default. It is nil for a Store of New.
func (s *Store) Transactor() core.Transactor {
	if s.on == nil {
		return nil
	}
	return transactor{s}
}

type transactor struct{ s *Store }

// Validate is for core.CheckTransactor.
func (t transactor) Validate() error { return core.CheckTransactor(t.s.on) }

// RunInTx implements core.Transactor.
func (t transactor) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	if err := t.s.prepare(ctx); err != nil {
		return err
	}
	return t.s.on.RunInTx(ctx, fn)
}

var errProbe = errors.New("sqlinbox: nothing to commit")

// prepare makes the Store ready: it asks for the dialect, and creates the tables. One caller at a
// time does so. If that fails, the next caller tries again.
func (s *Store) prepare(ctx context.Context) error {
	if s.ready.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		err := s.on.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
			return errors.Join(s.speak(ctx, tx), errProbe)
		})
		if s.db == nil {
			return err
		}
	}
	if s.cfg.AutoCreate && !s.ready.Load() {
		// The time of one message may be too short for it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if err := s.db.Migrate(ctx); err != nil {
			return errtext.Errorf("sqlinbox: create tables: %w", err)
		}
	}
	s.ready.Store(true)
	return nil
}

// speak learns the dialect of a Store of On, and refuses a server that is not supported.
func (s *Store) speak(ctx context.Context, tx core.Tx) error {
	cfg := s.cfg
	cfg.Dialect = tx.Dialect()
	if err := tables.CheckServer(ctx, tx, cfg.Dialect); err != nil {
		return err
	}
	one, err := sqlstore.On(s.on, tables, cfg.tables())
	if err == nil {
		s.use(one)
	}
	return err
}

// join checks a transaction of a handler. A Store that is not ready leaves the tables alone: they
// are not created in that transaction.
func (s *Store) join(ctx context.Context, tx core.Tx) error {
	if tx == nil {
		return core.ErrNoTransaction
	}
	if !s.ready.Load() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.db == nil {
			if err := s.speak(ctx, tx); err != nil {
				return err
			}
		}
	}
	return s.db.Join(tx)
}

// Dialect returns the SQL dialect of the Store. It is empty if a Store of On has not asked for it
// yet.
func (s *Store) Dialect() core.Dialect {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return ""
	}
	return s.db.Dialect()
}

// Status of a row of {failure}. The row of an event that was redriven or discarded has none of
// these.
const (
	statusProcessing = 1
	statusFailed     = 3
	statusDead       = 4
)

// processingStale is the age from which a row with status PROCESSING is ignored. A row that far in
// the future was written by a clock that jumped.
const processingStale = 15 * time.Minute

// Begin writes the event as processed in tx, and returns inbox.StateFresh and the number of the
// attempt. If there was a row already, it returns the state of the row. While another transaction
// works on the same event, Begin waits until that transaction has ended. A new event costs one
// statement.
func (s *Store) Begin(ctx context.Context, tx core.Tx, e inbox.Event) (state inbox.State, attempt int, err error) {
	const what = "begin"
	if err := e.Validate(); err != nil {
		return 0, 0, err
	}
	if err := s.join(ctx, tx); err != nil {
		return 0, 0, tables.Wrap(what, err)
	}
	state, attempt, err = s.begin(ctx, tx, e)
	return state, attempt, tables.Wrap(what, sqlstore.TxError(err))
}

func (s *Store) begin(ctx context.Context, tx core.Tx, e inbox.Event) (inbox.State, int, error) {
	insert, err := s.db.InsertText(ctx, tx, s.sql.insert)
	if err != nil {
		return 0, 0, err
	}
	h := s.handlers.of(e.Consumer, e.Handler)
	for range sqlstore.Vanished {
		n, err := tx.Exec(ctx, insert, seenArgs(h, e)...)
		if err != nil {
			return 0, 0, err
		}
		switch inserted, err := s.db.Inserted(n); {
		case err != nil:
			return 0, 0, err
		case inserted:
			return inbox.StateFresh, 1, nil
		}
		state, attempt, err := s.see(ctx, tx, h, e.Key)
		if err != nil || state != 0 {
			return state, attempt, err
		}
	}
	return 0, 0, fmt.Errorf("%w: %w", core.ErrTxAborted, sqlstore.ErrVanished)
}

// see locks the row of a key and returns its state. If the event may be processed, see marks it as
// processed. It returns 0 when there is no row.
func (s *Store) see(ctx context.Context, q sqlkit.Querier, h *handler, k inbox.Key) (inbox.State, int, error) {
	var processed, attempts int
	found, err := sqlkit.FirstRow(ctx, q, s.sql.see, h.key(k), &processed, &attempts)
	switch {
	case err != nil || !found:
		return 0, 0, err
	case processed == 1:
		return inbox.StateProcessed, attempts, nil
	}
	return s.decide(ctx, q, h, k)
}

// decide returns the state of an event that is not processed. The caller has locked its row, under
// which all changes of its failure are made but a redrive. If the event may be processed, decide
// marks it as processed.
func (s *Store) decide(ctx context.Context, q sqlkit.Querier, h *handler, k inbox.Key) (inbox.State, int, error) {
	var f failure
	// A person may have deleted the row: then the event has not failed yet.
	found, err := f.read(ctx, q, s.sql.seeFailure, k)
	switch {
	case err != nil:
		return 0, 0, err
	case f.status == statusDead:
		return inbox.StateDead, f.attempts, nil
	case f.status == statusProcessing && f.age().Abs() < processingStale:
		return inbox.StateInProgress, f.attempts, nil
	}
	attempt := f.attempts + 1
	n, err := q.Exec(ctx, s.sql.take, append([]any{attempt}, h.key(k)...)...)
	if err == nil && n != 1 {
		err = fmt.Errorf("%w: the row of the event was not there any more", core.ErrTxAborted)
	}
	if err == nil && found {
		_, err = q.Exec(ctx, s.sql.recover, failureKey(k)...)
	}
	return inbox.StateFresh, attempt, err
}

// failure is the part of a row of {failure} that decides about its event.
type failure struct {
	status, attempts int
	left             int64 // microseconds from now to an instant in the past: negative
}

// read locks the row of a key and reads it.
func (f *failure) read(ctx context.Context, q sqlkit.Querier, text string, k inbox.Key) (found bool, err error) {
	return sqlkit.FirstRow(ctx, q, text, failureKey(k), &f.status, &f.attempts, &f.left)
}

// age is how long ago the instant was that was read.
func (f *failure) age() time.Duration { return time.Duration(-f.left) * time.Microsecond }

// maxTopic and maxPartitionKey are how many bytes the table keeps for Advance. If a text is longer,
// or is not plain, the table keeps its SHA-256.
const (
	maxTopic        = 249
	maxPartitionKey = 255
)

// Advance compares the event with the newest one that the handler has processed of the same tenant,
// topic and key, in tx. If the event is newer, Advance records it as the newest and returns true.
// It waits for other transactions that do the same. An event without a key or a KeySeq is always
// newer.
func (s *Store) Advance(ctx context.Context, tx core.Tx, e inbox.Event) (newer bool, err error) {
	const what = "advance the key"
	if e.KeySeq == 0 || e.PartitionKey == "" {
		return true, nil
	}
	if err := e.Validate(); err != nil {
		return false, err
	}
	if err := s.join(ctx, tx); err != nil {
		return false, tables.Wrap(what, err)
	}
	key := []any{
		e.Consumer, e.Handler, e.Tenant, laneText(e.Topic, maxTopic),
		laneText(e.PartitionKey, maxPartitionKey),
	}
	newer, err = s.sql.database.advance(ctx, tx, key, e.KeySeq)
	return newer, tables.Wrap(what, sqlstore.TxError(err))
}

// laneText makes a topic or a key fit for its column. A producer may have written any text.
// Different texts stay different, because no plain text begins like a hash.
func laneText(s string, limit int) string {
	if textcheck.Problem(s, limit, false) == "" {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "\x1fsha256:" + hex.EncodeToString(sum[:])
}

// seenArgs are the parameters of an INSERT into {seen}.
func seenArgs(h *handler, e inbox.Event) []any {
	return []any{h.id, e.Tenant, e.EventID, source(e)}
}

// source is where the message of an event was read.
func source(e inbox.Event) any {
	topic, ok := sqlstore.Column(e.Topic, maxTopic).(string)
	switch {
	case !ok:
		return nil
	case !e.Located:
		return topic
	}
	return topic + "/" + strconv.FormatInt(int64(e.Partition), 10) + "/" + strconv.FormatInt(e.Offset, 10)
}

// failureKey are the parameters that name a row of {failure}.
func failureKey(k inbox.Key) []any { return []any{k.Consumer, k.Handler, k.Tenant, k.EventID} }

// failureArgs are the parameters of an INSERT into {failure}.
func failureArgs(e inbox.Event) []any {
	args := append(failureKey(e.Key), sqlstore.Column(e.Type, 128), e.Version, sqlstore.Column(e.AggregateType, 64),
		sqlstore.Column(e.AggregateID, 128),
		sqlstore.Column(e.PartitionKey, 255))
	if e.KeySeq == 0 {
		args = append(args, nil)
	} else {
		args = append(args, e.KeySeq)
	}
	args = append(args, sqlstore.Column(e.Topic, 249))
	if !e.Located {
		return append(args, nil, nil)
	}
	return append(args, e.Partition, e.Offset)
}

//go:embed schema
var schema embed.FS

var tables = &sqlstore.Tables{
	Package: "sqlinbox",
	Words: map[string]string{
		"handler": "inbox_handler", "seen": "inbox_seen", "failure": "inbox_failure", "inbox_key": "inbox_key",
		"program": "inbox_program",
	},
	Versions:   "inbox_migration",
	Files:      schema,
	Diagnostic: map[string]bool{"last_error": true, "last_error_code": true},
	HowToCreate: "create or upgrade the tables of the inbox with Migrate of the sqlinbox.Store, " +
		"with the files that sqlinbox.Migrations returns, " +
		"with Config.AutoCreate, or, for inbox.Middleware and inbox.SQL, with the option inbox.CreateTables",
}

// Migrations returns the migrations of the schema in ascending order of versions, with the table
// names of cfg. cfg.Dialect is required. All statements may be repeated.
func Migrations(cfg Config) ([]core.Migration, error) {
	return tables.Migrations(cfg.tables())
}

// Migrate creates the tables or brings them up to date: it applies the migrations that the table
// <prefix>inbox_migration does not name yet. Any number of processes may call it at once. It needs
// the right to create tables; where an application must not have it, apply the result of Migrations
// with the tool of your choice. With a Store of On, [Config.Schema] must exist.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	return s.db.Migrate(ctx)
}

// Check compares the tables in the database with this version's and names everything that is
// missing or different. The error wraps core.ErrNoTables or core.ErrTablesDiffer. Check also
// refuses a read-only database. Call it at start where Migrate is not called. It needs a Store of
// New.
func (s *Store) Check(ctx context.Context) error {
	if s.on != nil {
		return errors.New("sqlinbox: Check needs a *sql.DB: use New")
	}
	return s.db.Check(ctx)
}
