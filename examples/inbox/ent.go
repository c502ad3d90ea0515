package main

import (
	"context"
	"database/sql"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/examples/ent/ent"
)

// entBank is the bank on Ent. It has no entity for accounts, because its client is that of
// examples/ent, generated with the feature sql/execquery. With an entity the handler would call
// tx.Account.UpdateOneID(p.Account).AddCents(p.Cents).Exec(ctx).
type entBank struct{ client *ent.Client }

func newEntBank(pool *sql.DB) (bank, error) {
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: core.SQLite})
	if err != nil {
		return nil, err
	}
	outbox, err := core.New(core.Config{Repository: repo})
	if err != nil {
		return nil, err
	}
	// The driver of the outbox lets the inbox follow the transactions of the client.
	ob, err := entoutbox.New(entsql.OpenDB(dialect.SQLite, pool), entoutbox.Config{Outbox: outbox})
	if err != nil {
		return nil, err
	}
	return entBank{ent.NewClient(ent.Driver(ob.Driver()))}, nil
}

func (b entBank) Transactor() core.Transactor { return entoutbox.Transactor(b.client.Tx) }

func (entBank) Credit(ctx context.Context, p Payment) error {
	tx, err := entoutbox.FromContext[*ent.Tx](ctx)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "UPDATE accounts SET cents = cents + ? WHERE id = ?", p.Cents, p.Account)
	return err
}
