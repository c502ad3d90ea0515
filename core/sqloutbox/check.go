package sqloutbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Check compares the tables in the database with this version's and names everything that is
// missing or different: tables, columns and their types, indexes, and on MySQL the engine and the
// collations. It ignores additional tables, columns and indexes. It also refuses a read-only
// database, and, with an error that wraps errors.ErrUnsupported, a server that is not supported. The
// error about the tables wraps core.ErrNoTables or core.ErrTablesDiffer. Run calls it; call it
// yourself in a process that only inserts. It implements core.Repository.
func (r *Repository) Check(ctx context.Context) error {
	if err := r.checkServer(ctx); err != nil {
		return err
	}
	readOnly, err := sqlkit.ReadOnly(ctx, r.each(), r.dialect)
	if err != nil {
		return wrap("check", err)
	}
	if readOnly {
		return errors.New("sqloutbox: database is read-only: connect to the primary")
	}
	plan, err := r.plan()
	if err != nil {
		return err
	}
	drift, err := sqlkit.Drift(ctx, r.each(), plan, diagnosticColumns)
	if err != nil {
		return wrap("check", err)
	}
	missing := func(err error) bool {
		e, ok := errors.AsType[*sqlkit.MissingError](err)
		return ok && e.Table != r.names.prefix+"history" // no event needs it
	}
	layout, err := r.layout(ctx)
	if err != nil {
		return wrap("check", err)
	}
	if drift = append(drift, layout...); len(drift) == 0 {
		r.home.learnNow(ctx, r.each())
		return nil
	}
	how := core.ErrTablesDiffer
	if len(layout) > 0 || slices.ContainsFunc(drift, missing) { // the statements would not work
		how = core.ErrNoTables
	}
	return fmt.Errorf("sqloutbox: %w (%s):\n%w", how, howToCreate, errors.Join(drift...))
}

// diagnosticColumns are text columns that only people read.
var diagnosticColumns = map[string]bool{
	"last_error": true, "last_error_code": true, "failures": true, "receipt": true, "headers": true,
	"action": true, "actor": true, "reason": true,
	"host": true, "program": true, "version": true, "topics": true,
	"state": true, "body": true, "note": true,
}

// layout compares the table with the configuration. It returns the differences.
func (r *Repository) layout(ctx context.Context) (drift []error, err error) {
	text := layouts.Of(r.dialect)
	if text == "" {
		return nil, nil
	}
	var kind, key string
	var fallback bool
	found, err := sqlkit.FirstRow(ctx, r.each(), r.names.expand(text), nil, &kind, &key, &fallback)
	table := r.names.prefix + "event"
	switch {
	case err != nil || !found:
		return nil, err
	case kind != "p" && r.partitions != nil:
		drift = append(drift, fmt.Errorf("table %s is not partitioned, but Config.PartitionEvery is %s: set it to 0, "+
			"or partition the table as in docs/migrations.md", table, r.partitions.every))
	case kind == "p" && r.partitions == nil:
		drift = append(drift, fmt.Errorf("table %s is partitioned, but Config.PartitionEvery is 0: set it", table))
	case kind == "p" && key != "RANGE (id)":
		drift = append(drift, fmt.Errorf("table %s is partitioned by %s, want RANGE (id)", table, key))
	case kind == "p" && !fallback:
		drift = append(drift, fmt.Errorf("table %s has no default partition, so events with unusual ids are refused",
			table))
	}
	return drift, nil
}
