package sqlinbox

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

// Config says where the tables are.
type Config struct {
	// Dialect of the database. Empty: New asks the database.
	Dialect core.Dialect
	// Schema of the tables: a schema of PostgreSQL, a database of MySQL. Empty: the default of the
	// connection. SQLite has none.
	Schema string
	// Prefix of the names of tables, indexes and constraints. Default: none, which makes
	// inbox_event, inbox_key and inbox_migration.
	Prefix string
}

// Store is the inbox in PostgreSQL, MariaDB 10.6 or newer, MySQL 8.0.16 or newer, or SQLite 3.35 or
// newer. It implements inbox.Store; create it with New or On. It is safe for use by several
// goroutines.
type Store struct {
	db  *sqlstore.Store
	sql *statements
}

var _ inbox.Store = (*Store)(nil)

// New returns the Store for the tables in db. If cfg does not name the dialect, New asks the
// database for it, within ten seconds. New sends nothing else: call Migrate to create the tables,
// or Check to compare them.
func New(db *sql.DB, cfg Config) (*Store, error) {
	s, err := sqlstore.New(db, tables, sqlstore.Config(cfg))
	if err != nil {
		return nil, err
	}
	return &Store{db: s, sql: newStatements(s.Names)}, nil
}

// On returns the Store for the tables in the database of t, where there is a Transactor of an ORM
// and no pool. The Store runs its own short transactions with t, at the isolation of t. cfg.Dialect
// is required: it is what core.Tx.Dialect returns.
func On(t core.Transactor, cfg Config) (*Store, error) {
	s, err := sqlstore.On(t, tables, sqlstore.Config(cfg))
	if err != nil {
		return nil, err
	}
	return &Store{db: s, sql: newStatements(s.Names)}, nil
}

// Dialect returns the SQL dialect of the Store.
func (s *Store) Dialect() core.Dialect { return s.db.Dialect() }

// Status of a row of the inbox.
const (
	inboxReceived   = 0
	inboxProcessing = 1
	inboxProcessed  = 2
	inboxFailed     = 3
	inboxParked     = 4
)

// processingStale is the age at which a row that says PROCESSING no longer counts.
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
	if err := s.db.Join(tx); err != nil {
		return 0, 0, s.db.Wrap(what, err)
	}
	state, attempt, err = s.begin(ctx, tx, e)
	return state, attempt, s.db.Wrap(what, sqlstore.TxError(err))
}

func (s *Store) begin(ctx context.Context, tx core.Tx, e inbox.Event) (inbox.State, int, error) {
	insert, err := s.db.InsertText(ctx, tx, s.sql.insert)
	if err != nil {
		return 0, 0, err
	}
	for range sqlstore.Vanished {
		n, err := tx.Exec(ctx, insert, eventArgs(e)...)
		if err != nil {
			return 0, 0, err
		}
		switch inserted, err := s.db.Inserted(n); {
		case err != nil:
			return 0, 0, err
		case inserted:
			return inbox.StateFresh, 1, nil
		}
		state, attempt, err := s.see(ctx, tx, e.Key)
		if err != nil || state != 0 {
			return state, attempt, err
		}
	}
	return 0, 0, fmt.Errorf("%w: %w", core.ErrTxAborted, sqlstore.ErrVanished)
}

// see locks the row of a key and returns its state. If the event may be processed, see marks it as
// processed. It returns 0 when there is no row.
func (s *Store) see(ctx context.Context, q sqlkit.Querier, k inbox.Key) (inbox.State, int, error) {
	var r inboxRow
	found, err := sqlkit.FirstRow(ctx, q, s.sql.see, keyArgs(k), &r.status, &r.attempts, &r.left)
	if err != nil || !found {
		return 0, 0, err
	}
	return s.decide(ctx, q, k, r)
}

// inboxRow is the part of a row that decides about its event.
type inboxRow struct {
	status, attempts int
	left             int64 // microseconds from now to its last change: negative
}

func (s *Store) decide(ctx context.Context, q sqlkit.Querier, k inbox.Key, r inboxRow) (inbox.State, int, error) {
	switch {
	case r.status == inboxProcessed:
		return inbox.StateProcessed, r.attempts, nil
	case r.status == inboxParked:
		return inbox.StateDead, r.attempts, nil
	case r.status == inboxProcessing && time.Duration(-r.left)*time.Microsecond < processingStale:
		return inbox.StateInProgress, r.attempts, nil
	}
	n, err := q.Exec(ctx, s.sql.take, keyArgs(k)...)
	if err == nil && n != 1 {
		err = fmt.Errorf("%w: the row of the event was not there any more", core.ErrTxAborted)
	}
	return inbox.StateFresh, r.attempts + 1, err
}

// MaxTopic and MaxPartitionKey are how many bytes the table keeps for Advance. If a text is longer,
// or is not plain, the table keeps its SHA-256.
const (
	MaxTopic        = 249
	MaxPartitionKey = 255
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
	if err := s.db.Join(tx); err != nil {
		return false, s.db.Wrap(what, err)
	}
	key := []any{
		e.Consumer, e.Handler, e.Tenant, laneText(e.Topic, MaxTopic),
		laneText(e.PartitionKey, MaxPartitionKey),
	}
	newer, err = s.sql.database.advance(ctx, tx, key, e.KeySeq)
	return newer, s.db.Wrap(what, sqlstore.TxError(err))
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

func keyArgs(k inbox.Key) []any { return []any{k.Consumer, k.Handler, k.Tenant, k.EventID} }

// eventArgs are the parameters of an insert.
func eventArgs(e inbox.Event) []any {
	args := append(keyArgs(e.Key), sqlstore.Column(e.Type, 128), e.Version, sqlstore.Column(e.AggregateType, 64),
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
