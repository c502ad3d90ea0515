// Package adapter is for authors of adapters. It has the common parts of the outboxes of GORM, Ent
// and Bun. Programs use gormoutbox, entoutbox or bunoutbox. They need only Config of this package,
// which all three share.
//
// An adapter's Outbox keeps an Outbox of this package and forwards its methods to the Operations of
// that. It adds the parts that differ between ORMs: how to find a transaction, and which rows a
// statement changed.
//
//	type Outbox struct{ own *adapter.Outbox }
//
//	func New(ctx context.Context, db *orm.DB, cfg adapter.Config) (*Outbox, error) {
//		own := adapter.New(cfg, "call Open")
//		if err := own.Open(ctx, core.Postgres, func() (*sql.DB, error) { return db.Pool(), nil }); err != nil {
//			return nil, err
//		}
//		return &Outbox{own: own}, nil
//	}
//
//	func (o *Outbox) operations() adapter.Operations {
//		if o == nil {
//			return adapter.Operations{} // its methods return core.ErrNotInstalled
//		}
//		return o.own.Operations()
//	}
//
//	func (o *Outbox) Run(ctx context.Context) error { return o.operations().Run(ctx) }
//
// # Which rows did a statement change?
//
// The database names the rows. Package capture asks it.
package adapter
