// Package cleaner deletes old rows, and shows them to an archive of the application before.
package cleaner

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/archive"
	"github.com/ormoutbox/ormoutbox/core/internal/cleaning"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// Cleaner deletes rows of one kind. It is safe for use by several goroutines.
type Cleaner[T any] struct {
	archive archive.Caller[T]
	batch   cleaning.Batch
}

// New returns a Cleaner. fn is the archive, and field its name in a configuration; nil: none.
func New[T any](field string, fn func(ctx context.Context, rows []T) error) *Cleaner[T] {
	return &Cleaner[T]{
		batch: cleaning.Batch{TimeLimit: sqlerr.TimeLimit},
		archive: archive.Caller[T]{
			Name: field, Archive: fn, Grace: archive.Grace,
			Panicked: func(value any) error { return core.NewPanicError(value) },
		},
	}
}

// Some deletes at most most rows with clean, and reports whether there may be more. With an archive,
// show gives it at most archive.Rows rows and deletes them.
func (c *Cleaner[T]) Some(ctx context.Context, most int, clean func(limit int) (int, error),
	show func(limit int, fn func(ctx context.Context, rows []T) error) (int, error),
) (deleted int, more bool, err error) {
	if c.archive.Archive == nil {
		return c.batch.Delete(ctx, most, clean)
	}
	deleted, err = show(min(most, archive.Rows), c.archive.Call)
	return deleted, deleted > 0, err
}
