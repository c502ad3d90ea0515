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
		id, err := tx.Order.Create().SetName("a").SetQty(5).OnConflict(
			entsql.ConflictColumns(order.FieldName),
		).UpdateNewValues().ID(t.Context())
		fixture.NoError(t, err)
		fixture.NoError(t,
			tx.Order.Create().SetName("b").OnConflict(
				entsql.ConflictColumns(order.FieldName),
			).UpdateNewValues().Exec(t.Context()))
		fixture.Check(t, id == 1, "Ent tells the id %d", id)
		want := []string{"Order.create 1", "again.create 1", "Order.upsert 1", "again.upsert 1"}
		second := e.idOf(t, tx, "b")
		want = append(want, "Order.upsert "+second, "again.upsert "+second)
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

// Ent returns sql.ErrNoRows if DoNothing skipped the row. The rows that were new are created.
func TestEntCaptureDoNothing(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onAny(nil)))
		onName := entsql.ConflictColumns(order.FieldName)
		if e.db.Dialect == core.MySQL { // MySQL has no DO NOTHING; Ent sets the columns to their own values
			fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
				fixture.NoError(t, tx.Order.Create().SetName("a").Exec(t.Context()))
				fixture.NoError(t, tx.Order.Create().SetName("z").Exec(t.Context()))
				for _, create := range []*entclient.OrderUpsertOne{
					tx.Order.Create().SetName("a").OnConflict().Ignore(),
					tx.Order.Create().SetName("a").OnConflict().DoNothing(),
				} {
					id, err := create.ID(t.Context())
					fixture.Check(t, id == 1 && err == nil, "Ent tells the id %d of the row that was there: %v", id,
						err)
				}
				return tx.Order.Create().SetName("b").OnConflict().DoNothing().Exec(t.Context())
			}))
			got := e.types(t)
			fixture.Must(t, len(got) == 3 && got[0] == "Order.create 1", "the events are %q", got)
			bulk := func(names ...string) error {
				return e.Order.MapCreateBulk(names, func(c *entclient.OrderCreate, i int) { c.SetName(names[i]) }).
					OnConflict().DoNothing().Exec(t.Context())
			}
			fixture.NoError(t, bulk("a", "b")) // all are there
			fixture.NoError(t, bulk("c", "d"))
			got = e.types(t)
			fixture.Must(t, len(got) == 5, "the events are %q", got)
			return
		}
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			fixture.NoError(t, tx.Order.Create().SetName("a").Exec(t.Context()))
			fixture.WantError(t, tx.Order.Create().SetName("a").OnConflict(onName).DoNothing().Exec(t.Context()),
				sql.ErrNoRows)
			fixture.NoError(t,
				tx.Document.Create().SetID("new").OnConflict(
					entsql.ConflictColumns(document.FieldID),
				).DoNothing().Exec(t.Context()))
			return tx.Order.CreateBulk(tx.Order.Create().SetName("a"),
				tx.Order.Create().SetName("b")).OnConflict(onName).DoNothing().Exec(t.Context())
		}))
		got := e.types(t)
		fixture.Must(t, len(got) == 3 && got[0] == "Order.create 1" && got[1] == "Document.create new" ||
			len(got) == 3 && got[1] == "Order.create 1" && got[0] == "Document.create new", "the events are %q", got)
		e.WantCount(t, "parents", 2)
	})
}

// An upsert in bulk reports the rows that are stored, with their ids, which Ent itself guesses on
// MySQL and MariaDB.
func TestEntCaptureUpsertInBulk(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(entoutbox.OnMutation(func(
			ctx context.Context, m *entclient.OrderMutation, v ent.Value,
		) ([]core.Event, error) {
			name, _ := m.Name()
			if stored := v.(*entclient.Order).Name; stored != name {
				t.Errorf("%s was stored for %s", stored, name)
			}
			return []core.Event{{Type: entoutbox.OpOf(ctx).String()}}, nil
		}), onDocuments()))
		e.plainOrder(t, "b")
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			return tx.Order.CreateBulk(tx.Order.Create().SetName("a"), tx.Order.Create().SetName("b")).
				OnConflict(entsql.ConflictColumns(order.FieldName)).UpdateNewValues().Exec(t.Context())
		}))
		tx, err := e.Tx(t.Context())
		fixture.NoError(t, err)
		a := e.idOf(t, tx, "a")
		fixture.NoError(t, tx.Rollback())
		e.wantRowsInAnyOrder(t, "upsert "+a, "upsert 1")
		_, err = e.Plain.ExecContext(t.Context(), "DELETE FROM outbox_event")
		fixture.NoError(t, err)
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error { // ids of the application
			return tx.Document.CreateBulk(tx.Document.Create().SetID("X"), tx.Document.Create().SetID("Y")).
				OnConflict(entsql.ConflictColumns(document.FieldID)).UpdateNewValues().Exec(t.Context())
		}))
		e.wantRowsInAnyOrder(t, "document.upsert X", "document.upsert Y")
	})
}

// An upsert whose conflict is in another column than the id changes another row than the one with
// the id of the entity.
func TestEntCaptureUpsertOfAnotherRow(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		entoutbox.On(e.ob, func(op core.Op, d *entclient.Document) []core.Event {
			return []core.Event{{Type: fmt.Sprintf("%s %s/%s/%d", op, d.ID, d.Name, d.Stock)}}
		})
		e.Use(e.ob.Hook())
		for id, name := range map[string]string{"1": "ada", "2": "bob"} {
			_, err := e.Plain.ExecContext(t.Context(),
				"INSERT INTO capture_documents (id, name, note, stock) VALUES ('"+
					id+"', '"+name+"', '', 1)")
			fixture.NoError(t, err)
		}
		create := func(id, name string, stock int64) *entclient.DocumentCreate {
			return e.Document.Create().SetID(id).SetName(name).SetStock(stock)
		}
		setStock := entsql.ResolveWith(func(u *entsql.UpdateSet) { u.SetExcluded(document.FieldStock) })
		onName := entsql.ConflictColumns(document.FieldName)
		err := e.Document.CreateBulk(create("1", "bob", 5), create("9", "cyd", 3)).OnConflict(onName, setStock).
			Exec(t.Context())
		fixture.NoError(t, err)
		want := []string{"upsert 2/bob/5 2", "upsert 9/cyd/3 9"}
		if e.db.Dialect == core.MySQL { // the primary key wins
			want = []string{"upsert 1/ada/5 1", "upsert 9/cyd/3 9"}
		}
		e.wantRowsInAnyOrder(t, want...)
		single := create("7", "bob", 6).OnConflict(onName, setStock).Exec(t.Context())
		fixture.NoError(t, single)
		e.wantRowsInAnyOrder(t, append(want, "upsert 2/bob/6 2")...)
	})
}

// If a table has several unique keys, MySQL cannot name the rows of an upsert in bulk.
func TestEntCaptureUpsertWithSeveralUniqueKeys(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onOrders()))
		_, err := e.Plain.ExecContext(t.Context(), "CREATE UNIQUE INDEX again ON parents (tenant, name)")
		fixture.NoError(t, err)
		e.plainOrder(t, "b")
		names := []string{"a", "b", "c"}
		orders, err := e.Order.MapCreateBulk(names,
			func(c *entclient.OrderCreate, i int) { c.SetName(names[i]).SetQty(int64(i)) }).Save(t.Context())
		fixture.Check(t, entclient.IsConstraintError(err) && orders == nil, "%v", err)
		err = e.Order.MapCreateBulk(names,
			func(c *entclient.OrderCreate, i int) { c.SetName(names[i]).SetQty(int64(i)) }).
			OnConflict(entsql.ConflictColumns(order.FieldName)).UpdateNewValues().Exec(t.Context())
		if e.db.Name == "mysql" {
			fixture.WantError(t, err, core.ErrNoAggregateID)
			e.wantRows(t)
			e.WantCount(t, "parents", 1)
			return
		}
		fixture.NoError(t, err)
		got := e.qty(t)
		fixture.Check(t, len(got) == 3 && got["upsert.a"] == 0 && got["upsert.b"] == 1 && got["upsert.c"] == 2,
			"the events are %v", got)
		e.WantCount(t, "parents", 3)
	})
}

func onDocuments() entoutbox.Mapper {
	return entoutbox.OnMutation(func(
		ctx context.Context, _ *entclient.DocumentMutation, _ ent.Value,
	) ([]core.Event, error) {
		return []core.Event{{Type: "document." + entoutbox.OpOf(ctx).String()}}, nil
	})
}
