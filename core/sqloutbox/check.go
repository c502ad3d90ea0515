package sqloutbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// ErrDrift is wrapped by the error of Check if the tables in the database differ from those of this
// version.
var ErrDrift = errors.New("sqloutbox: schema drift")

// ErrReadOnly is wrapped by the error of Check if the database accepts no writes: a standby, or a
// server set read_only.
var ErrReadOnly = errors.New("sqloutbox: database is read-only")

// Check compares the tables in the database with those of this version and names everything that is
// missing or different: tables, columns and their types, indexes, and on MySQL the engine and the
// collations. It ignores additional tables, columns and indexes. It also refuses a read-only
// database. Run calls it; call it yourself in a process that only inserts. It implements
// core.Checker.
func (r *Repository) Check(ctx context.Context) error {
	readOnly, err := sqlkit.ReadOnly(ctx, r.each(), r.dialect)
	if err != nil {
		return wrap("check", err)
	}
	if readOnly {
		return fmt.Errorf("%w: connect to the primary", ErrReadOnly)
	}
	plan, err := r.plan()
	if err != nil {
		return err
	}
	drift, err := sqlkit.Drift(ctx, r.each(), plan, diagnosticColumns)
	if err != nil {
		return wrap("check", err)
	}
	missing := func(err error) bool { _, ok := errors.AsType[*sqlkit.MissingError](err); return ok }
	layout, err := r.layout(ctx)
	if err != nil {
		return wrap("check", err)
	}
	if drift = append(drift, layout...); len(drift) == 0 {
		r.home.learnNow(ctx, r.own, r.each())
		return nil
	}
	how := core.ErrTablesDiffer
	if len(layout) > 0 || slices.ContainsFunc(drift, missing) { // the statements would not work
		how = core.ErrNoTables
	}
	return fmt.Errorf("%w: %w (%s):\n%w", ErrDrift, how, howToCreate, errors.Join(drift...))
}

// diagnosticColumns are text columns that only people read.
var diagnosticColumns = map[string]bool{
	"last_error": true, "last_error_code": true, "receipt": true, "headers": true,
	"action": true, "actor": true, "reason": true,
	"host": true, "program": true, "version": true, "topics": true,
	"state": true, "body": true, "note": true,
}
