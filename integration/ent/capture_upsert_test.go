package ent_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"entgo.io/ent"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/document"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/order"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

func TestEntCaptureUpsert(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onAny(nil)),
			e.ob.Hook(entoutbox.OnMutation(func(
				ctx context.Context, _ *entclient.OrderMutation, _ ent.Value,
			) ([]core.Event, error) {
				return []core.Event{{Type: "again." + entoutbox.OpOf(ctx).String()}}, nil
			})))
		tx, err := e.Tx(t.Context())
		fixture.NoError(t, err)
		defer tx.Rollback()
		fixture.NoError(t, tx.Order.Create().SetName("a").Exec(t.Context()))
		id, err := tx.Order.Create().SetName("a").SetCents(5).OnConflict(
			entsql.ConflictColumns(order.FieldName),
		).UpdateNewValues().ID(t.Context())
		fixture.NoError(t, err)
		fixture.NoError(t,
			tx.Order.Create().SetName("b").OnConflict(
				entsql.ConflictColumns(order.FieldName),
			).UpdateNewValues().Exec(t.Context()))
		fixture.Check(t, id == 1, "Ent tells the id %d", id)
		want := []string{"again.create 1", "Order.create 1", "again.upsert 1", "Order.upsert 1"}
		second := e.idOf(t, tx, "b")
		want = append(want, "again.upsert "+second, "Order.upsert "+second)
		fixture.NoError(t, tx.Commit())
		e.wantRows(t, want...)
	})
}

func (e *entEnv) idOf(t *testing.T, tx *entclient.Tx, name string) string {
	t.Helper()
	id, err := tx.Order.Query().Where(order.Name(name)).OnlyID(t.Context())
	fixture.NoError(t, err)
	return fmt.Sprint(id)
}

// Ent returns sql.ErrNoRows if DoNothing skipped the row.
func TestEntCaptureDoNothing(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onAny(nil)))
		if e.db.Dialect == core.MySQL { // MySQL has no DO NOTHING; Ignore sets the columns to their own values
			fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
				fixture.NoError(t, tx.Order.Create().SetName("a").Exec(t.Context()))
				return tx.Order.Create().SetName("a").OnConflict().Ignore().Exec(t.Context())
			}))
			e.wantRows(t, "Order.create 1")
			return
		}
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			fixture.NoError(t, tx.Order.Create().SetName("a").Exec(t.Context()))
			fixture.WantError(t,
				tx.Order.Create().SetName("a").OnConflict(
					entsql.ConflictColumns(order.FieldName),
				).DoNothing().Exec(t.Context()), sql.ErrNoRows)
			fixture.NoError(t,
				tx.Document.Create().SetID("new").OnConflict(
					entsql.ConflictColumns(document.FieldID),
				).DoNothing().Exec(t.Context()))
			bulk := tx.Order.CreateBulk(tx.Order.Create().SetName("a"),
				tx.Order.Create().SetName("b")).OnConflict(entsql.ConflictColumns(order.FieldName)).DoNothing()
			fixture.WantError(t, bulk.Exec(t.Context()), core.ErrNoAggregateID)
			return nil
		}))
		e.wantRows(t, "Order.create 1", "Document.upsert new")
		e.WantCount(t, "e_orders", 1)
	})
}

// Ent guesses the ids of an upsert in bulk on MySQL and MariaDB. On functions that name the
// aggregate need none.
func TestEntCaptureUpsertInBulk(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		named := false
		e.Use(e.ob.Hook(entoutbox.OnMutation(func(
			ctx context.Context, m *entclient.OrderMutation, _ ent.Value,
		) ([]core.Event, error) {
			event := core.Event{Type: entoutbox.OpOf(ctx).String()}
			if named {
				event.AggregateID, _ = m.Name()
			}
			return []core.Event{event}, nil
		}), onDocuments()))
		e.plainOrder(t, "b")
		bulk := func() error {
			return e.inTx(t, func(tx *entclient.Tx) error {
				return tx.Order.CreateBulk(tx.Order.Create().SetName("a"), tx.Order.Create().SetName("b")).
					OnConflict(entsql.ConflictColumns(order.FieldName)).UpdateNewValues().Exec(t.Context())
			})
		}
		if e.db.Dialect == core.MySQL {
			fixture.WantError(t, bulk(), core.ErrNoAggregateID)
			e.wantRows(t)
		} else {
			fixture.NoError(t, bulk())
			tx, err := e.Tx(t.Context())
			fixture.NoError(t, err)
			a := e.idOf(t, tx, "a")
			fixture.NoError(t, tx.Rollback())
			e.wantRows(t, "upsert "+a, "upsert 1")
		}
		_, err := e.Plain.ExecContext(t.Context(), "DELETE FROM outbox_event")
		fixture.NoError(t, err)
		named = true
		fixture.NoError(t, bulk())
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error { // ids of the application
			return tx.Document.CreateBulk(tx.Document.Create().SetID("X"), tx.Document.Create().SetID("Y")).
				OnConflict(entsql.ConflictColumns(document.FieldID)).UpdateNewValues().Exec(t.Context())
		}))
		e.wantRows(t, "upsert a", "upsert b", "document.upsert X", "document.upsert Y")
	})
}

func onDocuments() entoutbox.Mapper {
	return entoutbox.OnMutation(func(
		ctx context.Context, _ *entclient.DocumentMutation, _ ent.Value,
	) ([]core.Event, error) {
		return []core.Event{{Type: "document." + entoutbox.OpOf(ctx).String()}}, nil
	})
}
