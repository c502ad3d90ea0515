package sqlstore

import (
	"context"
	"errors"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Archive shows old rows before it deletes them. No transaction is open meanwhile. So the rows are
// deleted by a key that no longer fits a row that has changed.
type Archive[T any] struct {
	Find string // returns the rows, the oldest ones first
	// Scan returns a row, and how many bytes of it count for core.ArchiveBytes.
	Scan   func(rows core.Rows) (row T, bytes int, err error)
	Delete func(n int) string // deletes n rows
	Key    func(row T) []any  // the parameters of Delete for a row
	// Also runs in the transaction that deletes, after the deletion. Default: nothing.
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
			chunk := rows[start:min(start+DeleteChunk, len(rows))]
			var args []any
			for _, row := range chunk {
				args = append(args, a.Key(row)...)
			}
			n, err := q.Exec(ctx, a.Delete(len(chunk)), args...)
			if err != nil {
				return err
			}
			deleted += int(n)
		}
		if a.Also == nil {
			return nil
		}
		return a.Also(ctx, q, rows)
	})
	return deleted, err
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
