package sqlstore

import (
	"context"
	"errors"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Archive shows old rows before it deletes them. No transaction is open meanwhile. So the rows are
// deleted by a key that no longer fits a row that has changed. It waits for no locks: a row that
// another transaction has locked stays.
type Archive[T any] struct {
	Find string // returns the rows, the oldest ones first
	// Scan returns a row, and how many bytes of it count for core.ArchiveBytes.
	Scan func(rows core.Rows) (row T, bytes int, err error)
	// Lock locks n rows and returns the ID of each that still fits its key. It ends with {skip}.
	Lock   func(n int) string
	Delete func(n int) string // deletes n rows
	Key    func(row T) []any  // the parameters of Lock and Delete for a row
	ID     func(row T) []string
	// Also runs in the transaction that deletes, after the deletion, with the rows that it deleted.
	// Default: nothing.
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
		for start := 0; start < len(rows); start += DeleteChunk {
			n, err := a.delete(ctx, q, rows[start:min(start+DeleteChunk, len(rows))])
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

// delete deletes those of the rows that have not changed and that nobody has locked.
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

// AnyOf returns a condition for n keys, each of which has to meet the condition is.
func AnyOf(is string, n int) string { return strings.Repeat("("+is+") OR ", n-1) + "(" + is + ")" }
