package sqloutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Tables is for package sqlops.
func (r *Repository) Tables() outboxsql.Tables {
	db := r.database
	return outboxsql.Tables{
		Dialect: r.dialect, Expand: r.names.expand, InTx: r.inTx, Single: r.single, Read: db.read,
		Redrive: r.redrive, Discard: r.discard, NextKeySeq: db.nextKeySeq, Audit: db.audit, AuditWhole: db.auditWhole,
		Schema: r.names.schema, Transactor: r.transactor(),
		Beside: sqlstore.Runner{
			Single: func(ctx context.Context, fn func(q sqlkit.Querier) error) error {
				return sqlkit.Retry(ctx, func() error { return fn(r.each()) })
			},
			InTx: r.transaction,
		},
	}
}

// transactor begins transactions in which the Outbox publishes. It is nil for a Pool, whose
// transactions come from its adapter.
func (r *Repository) transactor() core.Transactor {
	if p, ok := r.runner.(sqlPool); ok {
		return sqltx.NewTransactor(p.db, r.dialect)
	}
	return nil
}
