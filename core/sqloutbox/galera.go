package sqloutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

var _ core.Warner = (*Repository)(nil)

// Warnings finds a node of a Galera cluster to which the driver of the pool sends prepared
// statements. It asks the server about both, because the address of the pool tells neither. It
// implements core.Warner.
func (r *Repository) Warnings(ctx context.Context) (all []core.Warning, err error) {
	if r.dialect != core.MySQL {
		return nil, nil
	}
	err = r.inTx(ctx, "warnings", func(q sqlkit.Querier) error { // on one connection
		all = nil
		if prepares, err := preparesOnGalera(ctx, q); err != nil || !prepares {
			return err
		}
		all = []core.Warning{{
			Found: "the database is a node of a Galera cluster, and the driver sends it prepared statements",
			Cause: "a node that aborts a transaction during a prepared SELECT may tell nobody: what follows commits " +
				"statement by statement, and COMMIT succeeds",
			Fix: "let the driver send texts, in each service that writes (go-sql-driver/mysql: interpolateParams=true)",
		}}
		return nil
	})
	return all, err
}

func preparesOnGalera(ctx context.Context, q sqlkit.Querier) (bool, error) {
	var name, value string
	// MySQL has no such variable.
	found, err := sqlkit.FirstRow(ctx, q, "SHOW SESSION VARIABLES LIKE 'wsrep_on'", nil, &name, &value)
	if err != nil || !found || value != "ON" {
		return false, err
	}
	// The executions are counted, because a driver may keep what it has prepared.
	var counts [2]int64
	for i := range counts {
		_, err := sqlkit.FirstRow(ctx, q, "SHOW SESSION STATUS LIKE 'Com_stmt_execute'", nil, &name, &counts[i])
		if err != nil {
			return false, err
		}
		if _, err := sqlkit.FirstRow(ctx, q, "SELECT ?", []any{"x"}, &value); err != nil {
			return false, err
		}
	}
	return counts[1] > counts[0], nil
}
