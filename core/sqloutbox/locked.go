package sqloutbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// locked collects the rows that other transactions hold over the chunks of one mark.
type locked struct{ rows []core.RowID }

// add collects the locked rows of a chunk's error. It returns any other error.
func (l *locked) add(err error) error {
	var e *core.LockedError
	if !errors.As(err, &e) {
		return err
	}
	l.rows = append(l.rows, e.Rows...)
	return nil
}

// err is a *core.LockedError, or nil when no row was locked.
func (l *locked) err(what string) error {
	if len(l.rows) == 0 {
		return nil
	}
	return fmt.Errorf("sqloutbox: %s: %w", what, &core.LockedError{Rows: l.rows})
}

// queryIDs runs a statement that returns ids of rows.
func queryIDs(ctx context.Context, q sqlkit.Querier, text string, args ...any) (ids []core.RowID, err error) {
	err = sqlkit.EachRow(ctx, q, text, args, func(res core.Rows) error {
		var id id16
		err := res.Scan(&id)
		ids = append(ids, core.RowID(id))
		return err
	})
	return ids, err
}
