package sqlstore

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Cleanup deletes old rows in transactions of its own, and waits for no locks.
type Cleanup interface {
	// Run returns how many rows it deleted. args are the parameters of the statement that looks for
	// the rows. The parameters in prefix begin the key of each row.
	Run(ctx context.Context, s *Store, what string, prefix []any, args ...any) (deleted int, err error)
}

// Cleanup returns the Cleanup of a table, such as "{key}". old selects its old rows, in their order,
// and has all parameters but the limit. key are the columns of the key that the parameters in prefix
// do not begin, and is compares a whole key.
func (n Names) Cleanup(table, old, key, is string) Cleanup {
	return n.database.cleanup(n, table, old, key, is)
}

// CleanupAtOnce deletes with one DELETE statement.
type CleanupAtOnce string

// Run implements Cleanup.
func (c CleanupAtOnce) Run(ctx context.Context, s *Store, what string, _ []any, args ...any) (deleted int, err error) {
	return sqlkit.Change(ctx, s.Single, what, string(c), args...)
}

// CleanupByKey locks the rows that no other transaction has locked, and deletes them by key. It is
// for MariaDB and MySQL.
type CleanupByKey struct {
	Find    string // returns the keys, without their prefix
	Columns int    // the number of columns that Find returns; all are texts
	Delete  func(n int) string
}

// Run implements Cleanup.
func (c *CleanupByKey) Run(ctx context.Context, s *Store, what string, prefix []any, args ...any,
) (deleted int, err error) {
	err = s.InTx(ctx, what, func(q sqlkit.Querier) error {
		deleted = 0
		keys, err := c.keys(ctx, q, args)
		if err != nil {
			return err
		}
		for chunk := range slices.Chunk(keys, DeleteChunk) {
			args := make([]any, 0, (len(prefix)+c.Columns)*len(chunk))
			for _, key := range chunk {
				args = append(args, prefix...)
				for _, part := range key {
					args = append(args, part)
				}
			}
			n, err := q.Exec(ctx, c.Delete(len(chunk)), args...)
			if err != nil {
				return err
			}
			deleted += int(n)
		}
		return nil
	})
	return deleted, err
}

func (c *CleanupByKey) keys(ctx context.Context, q sqlkit.Querier, args []any) ([][]string, error) {
	return sqlkit.Rows(ctx, q, c.Find, args, func(rows core.Rows) ([]string, error) {
		key, dest := make([]string, c.Columns), make([]any, c.Columns)
		for i := range key {
			dest[i] = &key[i]
		}
		return key, rows.Scan(dest...)
	})
}

// Archive shows old rows before it deletes them. No transaction is open meanwhile. So the rows are
// deleted by a key that no longer fits a row that has changed. It waits for no locks: a row that
// another transaction has locked stays.
type Archive[T any] struct {
	Find string // returns the rows, the oldest ones first
	// Scan returns a row, and its number of bytes for core.ArchiveBytes.
	Scan func(rows core.Rows) (row T, bytes int, err error)
	// Lock locks n rows and returns the ID of each that still fits its key. It ends with {skip}.
	Lock   func(n int) string
	Delete func(n int) string // deletes n rows
	Key    func(row T) []any  // the parameters of Lock and Delete for a row
	ID     func(row T) []string
	// Also is called with the deleted rows, in the transaction that deleted them. Default: nothing.
	Also func(ctx context.Context, q sqlkit.Querier, rows []T) error
}

// errEnough ends the search for rows.
var errEnough = errors.New("enough")

// Run shows rows to fn, and deletes them if it returns nil. args are the parameters of Find. It
// returns how many rows it deleted.
func (a *Archive[T]) Run(ctx context.Context, s *Store, what string, args []any,
	fn func(ctx context.Context, rows []T) error,
) (deleted int, err error) {
	rows, err := a.find(ctx, s, what, args)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	if err := fn(ctx, rows); err != nil {
		return 0, err
	}
	err = s.InTx(ctx, what, func(q sqlkit.Querier) error {
		deleted = 0
		for chunk := range slices.Chunk(rows, DeleteChunk) {
			n, err := a.delete(ctx, q, chunk)
			if err != nil {
				return err
			}
			deleted += n
		}
		return nil
	})
	if err != nil {
		deleted = 0
	}
	return deleted, err
}

// delete deletes the rows that have not changed and that nobody has locked.
func (a *Archive[T]) delete(ctx context.Context, q sqlkit.Querier, rows []T) (deleted int, err error) {
	locked := map[string]bool{}
	id := make([]string, len(a.ID(rows[0])))
	dest := make([]any, len(id))
	for i := range id {
		dest[i] = &id[i]
	}
	err = sqlkit.EachRow(ctx, q, a.Lock(len(rows)), a.keys(rows), func(res core.Rows) error {
		err := res.Scan(dest...)
		locked[strings.Join(id, "\x00")] = true
		return err
	})
	if err != nil {
		return 0, err
	}
	var old []T
	for _, row := range rows {
		if locked[strings.Join(a.ID(row), "\x00")] {
			old = append(old, row)
		}
	}
	if len(old) == 0 {
		return 0, nil
	}
	n, err := q.Exec(ctx, a.Delete(len(old)), a.keys(old)...)
	if err == nil && a.Also != nil {
		err = a.Also(ctx, q, old)
	}
	return int(n), err
}

func (a *Archive[T]) keys(rows []T) (args []any) {
	for _, row := range rows {
		args = append(args, a.Key(row)...)
	}
	return args
}

func (a *Archive[T]) find(ctx context.Context, s *Store, what string, args []any) (found []T, err error) {
	err = s.Single(ctx, what, func(q sqlkit.Querier) error {
		found = nil
		bytes := 0
		err := sqlkit.EachRow(ctx, q, a.Find, args, func(rows core.Rows) error {
			row, n, err := a.Scan(rows)
			if bytes += n; err == nil && len(found) > 0 && bytes > core.ArchiveBytes {
				return errEnough
			}
			found = append(found, row)
			return err
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		return err
	})
	return found, err
}

// AnyOf returns a condition for n keys, with the condition is for each.
func AnyOf(is string, n int) string { return strings.Repeat("("+is+") OR ", n-1) + "(" + is + ")" }
