package sqlcommand

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
)

// Config names the table and its database.
type Config struct {
	// Dialect of the database. Empty: New asks the database.
	Dialect core.Dialect
	// Schema that holds the table: a schema of PostgreSQL, a database of MySQL. Empty: the default
	// of the connection. SQLite has none.
	Schema string
	// Prefix of the names of tables, indexes and constraints. Default: none, so that the tables are
	// side_effect_command and command_migration.
	Prefix string
}

// Store keeps effects in PostgreSQL, MariaDB 10.6 or newer, MySQL 8.0.16 or newer, or SQLite 3.35
// or newer. It implements command.Store; create it with New. It is safe for use by several
// goroutines.
type Store struct {
	db  *sqlstore.Store
	sql *statements
}

var (
	_ command.Store    = (*Store)(nil)
	_ command.Archiver = (*Store)(nil)
)

// New returns the Store for the table in db. If cfg names no dialect, New asks the database, for at
// most ten seconds. Otherwise New sends no statement. Call Migrate to create the table, or Check to
// compare it.
func New(db *sql.DB, cfg Config) (*Store, error) {
	s, err := sqlstore.New(db, tables, sqlstore.Config(cfg))
	if err != nil {
		return nil, err
	}
	return &Store{db: s, sql: newStatements(s.Names)}, nil
}

// Dialect returns the SQL dialect of the Store.
func (s *Store) Dialect() core.Dialect { return s.db.Dialect() }

// EnqueueTx implements command.Store. A new effect costs one statement.
func (s *Store) EnqueueTx(ctx context.Context, tx core.Tx,
	e command.Effect,
) (rec command.Record, added bool, err error) {
	const what = "command in transaction"
	problem := e.Validate()
	if p := textcheck.Problem(e.ID, 36, true); p != "" {
		problem = errors.Join(problem, fmt.Errorf("%w: id %s", once.ErrInvalidRequest, p))
	}
	if problem != nil {
		return rec, false, problem
	}
	if err := s.db.Join(tx); err != nil {
		return rec, false, s.db.Wrap(what, err)
	}
	rec, added, err = s.enqueue(ctx, tx, e)
	return rec, added, s.db.Wrap(what, sqlstore.TxError(err))
}

func (s *Store) enqueue(ctx context.Context, tx core.Tx, e command.Effect) (command.Record, bool, error) {
	insert, err := s.db.InsertText(ctx, tx, s.sql.insert)
	if err != nil {
		return command.Record{}, false, err
	}
	args, err := effectArgs(e)
	if err != nil {
		return command.Record{}, false, err
	}
	for range sqlstore.Vanished {
		n, err := tx.Exec(ctx, insert, args...)
		if err != nil {
			return command.Record{}, false, err
		}
		switch inserted, err := s.db.Inserted(n); {
		case err != nil:
			return command.Record{}, false, err
		case inserted:
			return command.Record{Effect: e}, true, nil
		}
		r, found, err := s.read(ctx, tx, s.sql.see, e.Tenant, e.Channel, e.Key)
		if err != nil {
			return command.Record{}, false, err
		}
		if found {
			if fp := e.Fingerprint(); string(r.fingerprint) != string(fp[:]) {
				return command.Record{}, false,
					fmt.Errorf("%w: effect %q of channel %q", once.ErrFingerprintMismatch, e.Key, e.Channel)
			}
			return r.Record, false, nil
		}
	}
	return command.Record{}, false, fmt.Errorf("%w: %w", core.ErrTxAborted, sqlstore.ErrVanished)
}

func effectArgs(e command.Effect) ([]any, error) {
	var headers any
	if len(e.Headers) > 0 {
		b, err := json.Marshal(e.Headers)
		if err != nil {
			return nil, err
		}
		headers = string(b)
	}
	fp, payload := e.Fingerprint(), e.Payload
	if payload == nil {
		payload = []byte{}
	}
	return []any{
		e.ID, e.Tenant, e.Channel, e.Key, fp[:], payload, sqlstore.OrNil(e.ContentType), headers,
		sqlstore.OrNil(e.EventID), sqlstore.OrNil(e.CorrelationID), sqlstore.OrNil(e.BusinessKey),
		sqlstore.Micros(e.Delay),
	}, nil
}

// commandRecord is a row of the table.
type commandRecord struct {
	command.Record
	fingerprint []byte
	fence       int64
	owner       string
	left        time.Duration // time until the lease ends
}

func (r *commandRecord) scan(rows core.Rows) error {
	var headers []byte
	var left, created, updated, done int64
	err := rows.Scan(&r.ID, &r.Tenant, &r.Channel, &r.Key, &r.fingerprint, &r.Payload, &r.ContentType, &headers,
		&r.EventID, &r.CorrelationID,
		&r.BusinessKey, &r.ExternalRef, &r.Status, &r.Attempts, &r.LostLeases, &r.fence, &r.owner, &left, &r.ErrorCode,
		&r.Error, &created, &updated, &done)
	if err != nil {
		return err
	}
	if len(headers) > 0 {
		if err := json.Unmarshal(headers, &r.Headers); err != nil {
			return fmt.Errorf("headers of effect %s: %w", r.ID, err)
		}
	}
	r.Status, r.left = statusOf(r.Status, r.ErrorCode), time.Duration(left)*time.Microsecond
	r.CreatedAt, r.UpdatedAt = time.UnixMicro(created).UTC(), time.UnixMicro(updated).UTC()
	if done != 0 {
		r.DoneAt = time.UnixMicro(done).UTC()
	}
	return nil
}

func scanRecord(rows core.Rows) (command.Record, error) {
	var r commandRecord
	err := r.scan(rows)
	return r.Record, err
}

// statusOf returns the status of an effect from its row.
func statusOf(stored command.Status, code string) command.Status {
	if stored == command.StatusCompleted && code == discarded {
		return command.StatusDiscarded
	}
	return stored
}

// statusIs returns the condition for the rows of a status, as the end of a statement that begins
// with "status = ".
func statusIs(s command.Status) string {
	const ended = "2 AND COALESCE(last_error_code,'') "
	switch s {
	case command.StatusCompleted:
		return ended + "<> '" + discarded + "'"
	case command.StatusDiscarded:
		return ended + "= '" + discarded + "'"
	case command.StatusPending, command.StatusProcessing, command.StatusFailed, command.StatusDead:
	}
	return strconv.Itoa(int(s))
}

func (s *Store) read(ctx context.Context, q sqlkit.Querier, text string,
	args ...any,
) (r commandRecord, found bool, err error) {
	err = sqlkit.EachRow(ctx, q, text, args, func(rows core.Rows) error {
		found = true
		return r.scan(rows)
	})
	return r, found, err
}

// get reads a row in a transaction of its own. ErrNoEffect: the row does not exist.
func (s *Store) get(ctx context.Context, what, text string, args ...any) (r commandRecord, err error) {
	err = s.db.Single(ctx, what, func(q sqlkit.Querier) error {
		var found bool
		r, found, err = s.read(ctx, q, text, args...)
		if err == nil && !found {
			err = command.ErrNoEffect
		}
		return err
	})
	return r, err
}

// Find implements command.Store.
func (s *Store) Find(ctx context.Context, tenant, channel, key string) (command.Record, error) {
	r, err := s.get(ctx, "find command", s.sql.look, tenant, channel, key)
	return r.Record, err
}

// List implements command.Store.
func (s *Store) List(ctx context.Context, q command.Query) ([]command.Record, error) {
	if q.Status > command.StatusDiscarded {
		return nil, fmt.Errorf("%w: unknown %s", once.ErrInvalidRequest, q.Status)
	}
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	// The status is a part of the text, so that the database can use partial indexes.
	text, args := s.sql.list+statusIs(q.Status), []any{}
	for _, part := range []struct{ text, arg string }{
		{" AND channel = ?", q.Channel},
		{" AND tenant_id = ?", q.Tenant},
		{" AND id > ?", q.After},
	} {
		if part.arg != "" {
			text, args = text+part.text, append(args, part.arg)
		}
	}
	text, args = s.db.Statement(text+" ORDER BY id LIMIT ?"), append(args, min(limit, 1000))
	return sqlstore.List(ctx, s.db, "list commands", text, args, scanRecord)
}

// RedriveTx implements command.Store.
func (s *Store) RedriveTx(ctx context.Context, tx core.Tx, id,
	note string,
) (rec command.Record, redriven bool, err error) {
	const what = "redrive command in transaction"
	if err := s.db.Join(tx); err != nil {
		return rec, false, s.db.Wrap(what, err)
	}
	n, err := tx.Exec(ctx, s.sql.redrive, sqlstore.Column(note, 2048), id, sqlstore.Micros(2*once.MaxLease))
	if err != nil {
		return rec, false, s.db.Wrap(what, sqlstore.TxError(err))
	}
	r, found, err := s.read(ctx, tx, s.sql.getTx, id)
	if err == nil && !found {
		err = command.ErrNoEffect
	}
	return r.Record, n == 1 && found, s.db.Wrap(what, sqlstore.TxError(err))
}

// DiscardTx implements command.Store.
func (s *Store) DiscardTx(ctx context.Context, tx core.Tx, id, note string) (discarded bool, err error) {
	const what = "discard command in transaction"
	if err := s.db.Join(tx); err != nil {
		return false, s.db.Wrap(what, err)
	}
	n, err := tx.Exec(ctx, s.sql.discard, sqlstore.Column(note, 2048), id)
	if err != nil || n == 1 {
		return n == 1, s.db.Wrap(what, sqlstore.TxError(err))
	}
	_, found, err := s.read(ctx, tx, s.sql.getTx, id)
	if err == nil && !found {
		err = command.ErrNoEffect
	}
	return false, s.db.Wrap(what, sqlstore.TxError(err))
}

// Cleanup implements command.Store.
func (s *Store) Cleanup(ctx context.Context, keep time.Duration, limit int) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	return s.sql.cleanup.Run(ctx, s.db, "clean up commands", nil, sqlstore.Micros(keep), int64(limit))
}

// Archive implements command.Archiver. Effects are deleted by their ids: a completed or discarded
// effect stays so.
func (s *Store) Archive(ctx context.Context, keep time.Duration, limit int,
	fn func(ctx context.Context, effects []command.Record) error,
) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	a := sqlstore.Archive[command.Record]{
		Find: s.sql.old, Lock: s.sql.lockOld, Delete: s.sql.remove,
		Scan: func(rows core.Rows) (command.Record, int, error) {
			r, err := scanRecord(rows)
			return r, len(r.Payload), err
		},
		Key: func(r command.Record) []any { return []any{r.ID} },
		ID:  func(r command.Record) []string { return []string{r.ID} },
	}
	return a.Run(ctx, s.db, "archive commands", []any{sqlstore.Micros(keep), int64(limit)}, fn)
}

//go:embed schema
var schema embed.FS

var tables = &sqlstore.Tables{
	Package:  "sqlcommand",
	Words:    map[string]string{"command": "side_effect_command", "program": "side_effect_program"},
	Versions: "command_migration",
	Files:    schema,
	Diagnostic: map[string]bool{
		"last_error": true, "last_error_code": true, "headers": true,
		"external_ref": true, "content_type": true,
	},
	HowToCreate: "create or upgrade the table of effects with Migrate of the sqlcommand.Store, " +
		"or with the files that sqlcommand.Migrations returns",
}

// Migrations returns the migrations of the schema in ascending order of versions, with the table
// names of cfg. cfg.Dialect is required. All statements may be repeated.
func Migrations(cfg Config) ([]core.Migration, error) {
	return tables.Migrations(sqlstore.Config(cfg))
}

// Migrate creates the tables or brings them up to date: it applies the migrations that the table
// <prefix>command_migration does not name yet. Any number of processes may call Migrate at once. It
// needs the right to create tables. If an application must not have that right, apply the result of
// Migrations with the tool of your choice.
func (s *Store) Migrate(ctx context.Context) error { return s.db.Migrate(ctx) }

// Check compares the tables in the database with the tables that this version needs, and names
// every difference. The error wraps core.ErrNoTables or core.ErrTablesDiffer. Check also refuses a
// read-only database. Call it at start if you do not call Migrate.
func (s *Store) Check(ctx context.Context) error { return s.db.Check(ctx) }

var _ once.Registrar = (*Store)(nil)

// Register implements once.Registrar: it writes that the program executes the effects of the channel
// now, and returns the other programs that have done so within a week.
func (s *Store) Register(ctx context.Context, channel, program string) (others []string, err error) {
	return s.db.RegisterProgram(ctx, s.sql.programs, channel, program)
}

// Shared returns, by channel, the programs of the last week where there is more than one. Most
// often two programs are a mistake: each effect is executed by one of them.
func (s *Store) Shared(ctx context.Context) (programs map[string][]string, err error) {
	return s.db.SharedPrograms(ctx, s.sql.programs)
}

// Beside is for package sqlops: it returns a Store for the table next to an outbox's.
func Beside(r sqlstore.Runner, cfg Config) (*Store, error) {
	s, err := sqlstore.Beside(r, tables, sqlstore.Config(cfg))
	if err != nil {
		return nil, err
	}
	return &Store{db: s, sql: newStatements(s.Names)}, nil
}
