package bunoutbox

import (
	"context"
	"database/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// onFunctions are the On functions for the models of a statement, and the transaction that they
// get. The zero value has no function.
type onFunctions struct {
	mappers []adapter.Mapper // nil when there are none
	resolve bool             // they have ResolveRows
	tx      core.Tx          // nil before keepTx
	endTx   func()
}

// keepTx keeps the transaction of the statement, in which run runs statements. If ctx has a
// transaction of its own, the functions get that one, which lives longer.
func (f *onFunctions) keepTx(ctx context.Context, tx *sqltx.VisitedTx, pool *sql.DB,
	run func(context.Context, string) error,
) {
	if own, ok := core.TxFromContext(ctx); ok && tx.Same(own) {
		f.tx, f.endTx = own, func() {}
		return
	}
	later, end := tx.Later(run)
	f.tx, f.endTx = laterInPool{later, pool}, end
}
