package ent_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"testing"

	"entgo.io/ent"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/document"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/item"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/predicate"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The capture suite over Ent, with functions of On and of OnMutation.
func TestCaptureSuiteEnt(t *testing.T) {
	testdb.EveryWay(t, []testdb.Way[bool]{{Name: "On"}, {Name: "OnMutation", Of: true}},
		func(t *testing.T, db testdb.DB, mutations bool) {
			const refused = "" // see the cases of section "Skip" in upsert_test.go
			suite.TestCapture(t, adapters.CaptureHarness(db, refused,
				func(
					t *testing.T, db testdb.DB, tables *adapters.CaptureTables,
				) suite.CaptureORM {
					return entCapture(t, db, tables, mutations)
				}))
		})
}

func entCapture(t *testing.T, db testdb.DB, tables *adapters.CaptureTables, mutations bool) suite.CaptureORM {
	t.Helper()
	ob, err := entoutbox.New(entsql.OpenDB(adapters.EntDialect(db), db.Open(t)), entoutbox.Config{AutoCreate: true})
	fixture.NoError(t, err)
	client := entclient.NewClient(entclient.Driver(ob.Driver()))
	ofItem := func(ctx context.Context, op core.Op, i *entclient.Item) ([]core.Event, error) {
		return suite.CaptureEventInContext(ctx, op, suite.CaptureRow{
			Key: strconv.Itoa(i.ID), Name: i.Name, Note: i.Note, Stock: i.Stock,
		})
	}
	ofDocument := func(ctx context.Context, op core.Op, d *entclient.Document) ([]core.Event, error) {
		return suite.CaptureEventInContext(ctx, op, suite.CaptureRow{
			Key: d.ID, Name: d.Name, Note: d.Note, Stock: d.Stock,
		})
	}
	if mutations {
		client.Use(ob.Hook(
			entoutbox.OnMutation(func(ctx context.Context, _ *entclient.ItemMutation, v ent.Value) ([]core.Event,
				error,
			) {
				return ofItem(ctx, entoutbox.OpOf(ctx), v.(*entclient.Item))
			}),
			entoutbox.OnMutation(func(
				ctx context.Context, _ *entclient.DocumentMutation, v ent.Value,
			) ([]core.Event, error) {
				return ofDocument(ctx, entoutbox.OpOf(ctx), v.(*entclient.Document))
			}),
		))
	} else {
		entoutbox.OnContext(ob, ofItem)
		entoutbox.OnContext(ob, ofDocument)
		client.Use(ob.Hook())
	}
	return tables.ORM(suite.CaptureORM{
		RunInTx: func(ctx context.Context, fn func(context.Context) error) error {
			return entoutbox.WithTx(ctx, client.Tx, func(_ context.Context, tx *entclient.Tx) error {
				return fn(context.WithValue(ctx, adapters.CaptureTxKey{}, tx))
			})
		},
		Exec: func(ctx context.Context, s suite.CaptureStatement) (func() []string, error) {
			tx := ctx.Value(adapters.CaptureTxKey{}).(*entclient.Tx)
			var err error
			switch {
			case s.Pointer:
				return nil, adapters.NoStatement("ids are values")
			case s.Recorder:
				return nil, adapters.NoStatement("entities are generated, and embed nothing")
			case s.Values:
				return nil, adapters.NoStatement("entities are not stored from slices")
			case s.Returning != suite.CaptureReturnsNothing:
				return nil, adapters.NoStatement("Ent itself asks for RETURNING")
			case s.Do <= suite.CaptureUpsert && s.Own:
				err = entCreateDocuments(ctx, tx, s)
			case s.Do <= suite.CaptureUpsert:
				err = entCreateItems(ctx, tx, s)
			case len(s.Models) == 0 && s.Slice, !s.ByKey && len(s.Models) > 0 && s.Slice:
				return nil, adapters.NoStatement("updates and deletes are given no entities")
			case s.Own:
				err = entChangeDocuments(ctx, tx, s)
			default:
				err = entChangeItems(ctx, tx, s)
			}
			if entclient.IsNotFound(err) {
				err = nil // this error tells the program that rows were skipped
			}
			return nil, err
		},
	})
}

func entConflict(s suite.CaptureStatement) (options []entsql.ConflictOption) {
	column := "id"
	if s.OnName {
		column = "name"
	}
	options = append(options, entsql.ConflictColumns(column))
	switch {
	case s.Do == suite.CaptureSkip && !s.OnName:
		return []entsql.ConflictOption{entsql.DoNothing()}
	case s.Do == suite.CaptureSkip:
		return append(options, entsql.DoNothing())
	case s.Set == suite.CaptureSetModel:
		return append(options, entsql.ResolveWithNewValues(),
			entsql.ResolveWith(func(u *entsql.UpdateSet) { u.SetIgnore("id") }))
	}
	return append(options, entsql.ResolveWith(func(u *entsql.UpdateSet) {
		if s.Set == suite.CaptureSetNote {
			u.SetExcluded("note")
			return
		}
		u.Add("stock", 1)
	}))
}

// skipped returns nil if err is Ent's answer to a create that skipped its row, and err otherwise.
func skipped(s suite.CaptureStatement, err error) error {
	if s.Do == suite.CaptureSkip && errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

func entCreateItems(ctx context.Context, tx *entclient.Tx, s suite.CaptureStatement) error {
	var all []*entclient.ItemCreate
	for _, m := range s.Models {
		if m.Key != "" {
			return adapters.NoStatement("the database makes the ids")
		}
		all = append(all, tx.Item.Create().SetName(m.Name).SetNote(m.Note).SetStock(m.Stock))
	}
	switch {
	case s.Do == suite.CaptureCreate && s.Slice:
		return tx.Item.CreateBulk(all...).Exec(ctx)
	case s.Do == suite.CaptureCreate:
		return all[0].Exec(ctx)
	case s.Slice:
		return skipped(s, tx.Item.CreateBulk(all...).OnConflict(entConflict(s)...).Exec(ctx))
	default:
		return skipped(s, all[0].OnConflict(entConflict(s)...).Exec(ctx))
	}
}

func entCreateDocuments(ctx context.Context, tx *entclient.Tx, s suite.CaptureStatement) error {
	var all []*entclient.DocumentCreate
	for _, m := range s.Models {
		all = append(all, tx.Document.Create().SetID(m.Key).SetName(m.Name).SetNote(m.Note).SetStock(m.Stock))
	}
	switch {
	case s.Do == suite.CaptureCreate && s.Slice:
		return tx.Document.CreateBulk(all...).Exec(ctx)
	case s.Do == suite.CaptureCreate:
		return all[0].Exec(ctx)
	case s.Slice:
		return skipped(s, tx.Document.CreateBulk(all...).OnConflict(entConflict(s)...).Exec(ctx))
	default:
		return skipped(s, all[0].OnConflict(entConflict(s)...).Exec(ctx))
	}
}

// entWhere returns a predicate with the given text, or none.
func entWhere[P ~func(*entsql.Selector)](s suite.CaptureStatement) []P {
	if s.Where == nil {
		return nil
	}
	return []P{func(sel *entsql.Selector) { sel.Where(entsql.ExprP(s.Where.Text)) }}
}

func entChangeItems(ctx context.Context, tx *entclient.Tx, s suite.CaptureStatement) error {
	one := s.ByKey && !s.Slice
	var ids []int
	for _, m := range s.Models {
		ids = append(ids, int(adapters.Number(m.Key)))
	}
	if s.Do == suite.CaptureDelete {
		if one {
			return tx.Item.DeleteOneID(ids[0]).Where(entWhere[predicate.Item](s)...).Exec(ctx)
		}
		q := tx.Item.Delete().Where(entWhere[predicate.Item](s)...)
		if s.ByKey {
			q = q.Where(item.IDIn(ids...))
		}
		_, err := q.Exec(ctx)
		return err
	}
	if one {
		q := tx.Item.UpdateOneID(ids[0]).Where(entWhere[predicate.Item](s)...)
		switch s.Set {
		case suite.CaptureSetNote:
			q.SetNote(s.Note)
		case suite.CaptureSetStock:
			q.AddStock(1)
		default:
			q.SetName(s.Models[0].Name).SetNote(s.Models[0].Note).SetStock(s.Models[0].Stock)
		}
		return q.Exec(ctx)
	}
	q := tx.Item.Update().Where(entWhere[predicate.Item](s)...)
	if s.ByKey {
		q = q.Where(item.IDIn(ids...))
	}
	switch s.Set {
	case suite.CaptureSetNote:
		q.SetNote(s.Note)
	case suite.CaptureSetStock:
		q.AddStock(1)
	default:
		return adapters.NoStatement("an update of many entities sets the same values in all")
	}
	return q.Exec(ctx)
}

func entChangeDocuments(ctx context.Context, tx *entclient.Tx, s suite.CaptureStatement) error {
	one := s.ByKey && !s.Slice
	var ids []string
	for _, m := range s.Models {
		ids = append(ids, m.Key)
	}
	if s.Do == suite.CaptureDelete {
		if one {
			return tx.Document.DeleteOneID(ids[0]).Where(entWhere[predicate.Document](s)...).Exec(ctx)
		}
		q := tx.Document.Delete().Where(entWhere[predicate.Document](s)...)
		if s.ByKey {
			q = q.Where(document.IDIn(ids...))
		}
		_, err := q.Exec(ctx)
		return err
	}
	if one {
		q := tx.Document.UpdateOneID(ids[0]).Where(entWhere[predicate.Document](s)...)
		switch s.Set {
		case suite.CaptureSetNote:
			q.SetNote(s.Note)
		case suite.CaptureSetStock:
			q.AddStock(1)
		default:
			q.SetName(s.Models[0].Name).SetNote(s.Models[0].Note).SetStock(s.Models[0].Stock)
		}
		return q.Exec(ctx)
	}
	q := tx.Document.Update().Where(entWhere[predicate.Document](s)...)
	if s.ByKey {
		q = q.Where(document.IDIn(ids...))
	}
	switch s.Set {
	case suite.CaptureSetNote:
		q.SetNote(s.Note)
	case suite.CaptureSetStock:
		q.AddStock(1)
	default:
		return adapters.NoStatement("an update of many entities sets the same values in all")
	}
	return q.Exec(ctx)
}
