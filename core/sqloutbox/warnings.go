package sqloutbox

import (
	"context"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Warnings finds what the database does in silence: on PostgreSQL tables whose rows are hidden from
// the role of the pool (row level security), on MariaDB and MySQL a node of a Galera cluster or a
// shard of Vitess to which the driver of the pool sends prepared statements. A server that is not
// supported, and that Config.Dialect admits, is a warning too. Warnings implements core.Repository.
func (r *Repository) Warnings(ctx context.Context) (all []core.Warning, err error) {
	if r.named { // else Check refuses the server
		if err := sqlkit.CheckServer(ctx, r.each(), r.dialect); sqlkit.Refused(err) {
			return []core.Warning{{
				Found: err.Error(),
				Cause: "statements of the outbox may fail there, or lock nothing",
				Fix:   "move the tables; sqloutbox.Config.Dialect has admitted this server",
			}}, nil
		}
	}
	find := map[core.Dialect]func(context.Context, sqlkit.Querier) ([]core.Warning, error){
		core.Postgres: r.hiddenRows,
		core.MySQL:    preparesInVain,
	}[r.dialect]
	if find == nil {
		return nil, nil
	}
	err = r.inTx(ctx, "warnings", func(q sqlkit.Querier) error { // on one connection
		all, err = find(ctx, q)
		return err
	})
	return all, err
}

func (r *Repository) hiddenRows(ctx context.Context, q sqlkit.Querier) ([]core.Warning, error) {
	tables := make([]string, len(ownTables))
	for i, name := range ownTables {
		tables[i] = "('" + r.names.table(name) + "')"
	}
	var hidden string
	_, err := sqlkit.FirstRow(ctx, q, "SELECT COALESCE(string_agg(name, ', '), '') FROM (VALUES "+
		strings.Join(tables, ", ")+") t (name) WHERE row_security_active(to_regclass(name))", nil, &hidden)
	if err != nil || hidden == "" {
		return nil, err
	}
	return []core.Warning{{
		Found: "row level security hides rows of " + hidden + " from the role of this pool",
		Cause: "events that a policy hides are not published, and neither counted nor deleted",
		Fix:   "give the role of relays, operators and cleaning BYPASSRLS, or a policy that shows it every row",
	}}, nil
}

func preparesInVain(ctx context.Context, q sqlkit.Querier) ([]core.Warning, error) {
	if all, err := preparesOnShard(ctx, q); all != nil || err != nil {
		return all, err
	}
	return preparesOnGalera(ctx, q)
}

// interpolate is what to do against prepared statements.
const interpolate = "let the driver send texts, in each service that writes (go-sql-driver/mysql: " +
	"interpolateParams=true)"

// preparesOnShard asks for what a shard of Vitess refuses to prepare, because vtgate prepares a text with
// NULL in place of each argument.
func preparesOnShard(ctx context.Context, q sqlkit.Querier) ([]core.Warning, error) {
	const syntax = 1064
	var n int
	_, err := sqlkit.FirstRow(ctx, q, "SELECT 1 LIMIT ?", []any{1}, &n)
	if sqlerr.MySQL(err) != syntax {
		return nil, err
	}
	return []core.Warning{{
		Found: "the database is a shard of Vitess, and the driver sends it prepared statements",
		Cause: "the shard refuses to prepare LIMIT ?, so relays and operators read no events",
		Fix:   interpolate,
	}}, nil
}

// preparesOnGalera asks the server, because the address of the pool shows neither.
func preparesOnGalera(ctx context.Context, q sqlkit.Querier) ([]core.Warning, error) {
	if cluster, err := sqlkit.OnGalera(ctx, q); err != nil || !cluster {
		return nil, err
	}
	var name, value string
	// The executions are counted, because a driver may keep prepared statements.
	var counts [2]int64
	for i := range counts {
		_, err := sqlkit.FirstRow(ctx, q, "SHOW SESSION STATUS LIKE 'Com_stmt_execute'", nil, &name, &counts[i])
		if err != nil {
			return nil, err
		}
		if _, err := sqlkit.FirstRow(ctx, q, "SELECT ?", []any{"x"}, &value); err != nil {
			return nil, err
		}
	}
	if counts[1] == counts[0] {
		return nil, nil
	}
	return []core.Warning{{
		Found: "the database is a node of a Galera cluster, and the driver sends it prepared statements",
		Cause: "a node that aborts a transaction during a prepared SELECT may tell nobody: what follows commits " +
			"statement by statement, and COMMIT succeeds",
		Fix: interpolate,
	}}, nil
}
