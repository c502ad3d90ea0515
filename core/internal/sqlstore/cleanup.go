package sqlstore

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Cleanup deletes old rows in transactions of its own, and waits for no locks.
type Cleanup interface {
	// Run returns how many rows it deleted. args are the parameters of the statement that looks for
	// the rows. The parameters in prefix begin the key of each row.
	Run(ctx context.Context, s *Store, what string, prefix []any, args ...any) (deleted int, err error)
}

// CleanupAtOnce deletes with one DELETE statement.
type CleanupAtOnce string

// Run implements Cleanup.
func (c CleanupAtOnce) Run(ctx context.Context, s *Store, what string, _ []any, args ...any) (deleted int, err error) {
	err = s.Single(ctx, what, func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, string(c), args...)
		deleted = int(n)
		return err
	})
	return deleted, err
}

// CleanupByKey locks the rows that no other transaction has locked, and deletes them by key. It is
// for MariaDB and MySQL.
type CleanupByKey struct {
	Find    string // returns the keys, without their prefix
	Columns int    // the number of columns that Find returns; all are texts
	Delete  func(n int) string
}

// Run implements Cleanup.
func (c CleanupByKey) Run(ctx context.Context, s *Store, what string, prefix []any, args ...any,
) (deleted int, err error) {
	err = s.InTx(ctx, what, func(q sqlkit.Querier) error {
		deleted = 0
		keys, err := c.keys(ctx, q, args)
		if err != nil {
			return err
		}
		for start := 0; start < len(keys); start += DeleteChunk {
			chunk := keys[start:min(start+DeleteChunk, len(keys))]
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

func (c CleanupByKey) keys(ctx context.Context, q sqlkit.Querier, args []any) (keys [][]string, err error) {
	err = sqlkit.EachRow(ctx, q, c.Find, args, func(rows core.Rows) error {
		key, dest := make([]string, c.Columns), make([]any, c.Columns)
		for i := range key {
			dest[i] = &key[i]
		}
		err := rows.Scan(dest...)
		keys = append(keys, key)
		return err
	})
	return keys, err
}
