package bun_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/feature"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// The cases here are about one question: which rows did this statement change? The database says
// it, whatever the models and the text look like.

// bDoc has a key that the program sets, another unique column, and a column that the database
// fills.
type bDoc struct {
	bun.BaseModel `bun:"table:b_docs,alias:d"`
	ID            string `bun:"type:varchar(64),pk"`
	Slug          string `bun:"type:varchar(64),unique"`
	Title         string
	Stars         int64 `bun:",nullzero,default:7"`

	core.Recorder `bun:"-" json:"-"`
}

func doc(id string) *bDoc { return &bDoc{ID: id, Slug: "slug of " + id, Title: "title of " + id} }

// recordedDoc has an event that is named after it.
func recordedDoc(id string) *bDoc {
	d := doc(id)
	d.Record(fixture.Happened{Name: "recorded " + id})
	return d
}

// eachDocs runs fn on each database, with these documents stored and an On function.
func eachDocs(t *testing.T, stored []string, fn func(t *testing.T, b *bunEnv)) {
	t.Helper()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		_, err := b.bare.NewCreateTable().Model((*bDoc)(nil)).Exec(t.Context())
		fixture.NoError(t, err)
		for _, id := range stored {
			b.exec(t, t.Context(), b.bare.NewInsert().Model(doc(id)))
		}
		bunoutbox.On(b.ob, func(op core.Op, d *bDoc) []core.Event {
			return []core.Event{{Type: fmt.Sprintf("%s %s/%d", op, d.Title, d.Stars)}}
		})
		fn(t, b)
	})
}

func docsOf(ids ...string) []*bDoc {
	var all []*bDoc
	for _, id := range ids {
		all = append(all, doc(id))
	}
	return all
}

// Neither the models nor the text of a statement say which rows it changes.
func TestBunRowsOfOddStatements(t *testing.T) {
	t.Parallel()
	all := func(format string) (want []string) {
		for _, id := range []string{"d1", "d2", "d3"} {
			want = append(want, strings.ReplaceAll(format, "?", id))
		}
		return want
	}
	for name, tc := range map[string]struct {
		do   func(ctx context.Context, tx bun.Tx) error
		want []string
	}{
		"the WHERE of a subquery": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model(doc("d1")).Set("title = 'x'").
				Where("stars = (SELECT MAX(o.stars) FROM (SELECT * FROM b_docs) AS o WHERE (id = ?))", "d1").Exec(ctx)
			return err
		}, all("update x/7 ?")},
		"the subquery of a SET": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model(doc("d1")).Set("title = (SELECT 'x' FROM (SELECT 1 AS id) AS o WHERE (id " +
				"= 1))").Where("stars = 7").Exec(ctx)
			return err
		}, all("update x/7 ?")},
		"RETURNING of one column into a slice": {func(ctx context.Context, tx bun.Tx) error {
			all := docsOf("d1", "d2", "d3")
			_, err := tx.NewUpdate().Model(&all).Set("stars = stars + 1").WherePK().Where(
				"title <> 'title of d2'",
			).Returning("title").Exec(ctx)
			return err
		}, []string{"update title of d1/8 d1", "update title of d3/8 d3"}},
		"RETURNING of something that is called like the key": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model(&bDoc{}).Set("stars = stars + 1").Where("id = ?",
				"d1").Returning("'d2' AS id").Exec(ctx)
			return err
		}, []string{"update title of d1/8 d1"}},
		"another key": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewDelete().Model(doc("d2")).Where("id = ?", "d1").Exec(ctx)
			return err
		}, []string{"delete title of d1/7 d1"}},
		"a comment": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewDelete().Model(doc("d1")).Where("stars = 7 OR /* (id = 'd1') */ id = ?", "d1").Exec(ctx)
			return err
		}, all("delete title of ?/7 ?")},
		"a comment at the end": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewDelete().Model(doc("d1")).Where("1 = 1) AND (id = 'd1') -- RETURNING (").Exec(ctx)
			return err
		}, []string{"delete title of d1/7 d1"}},
		"a comment of Bun's": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model(doc("d1")).Set("title = 'x'").WherePK().
				Comment("UPDATE ' RETURNING").Exec(ctx)
			return err
		}, []string{"update x/7 d1"}},
		"recorded events of a statement that does not name their model": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewDelete().Model(recordedDoc("d1")).Where("stars = 7").Exec(ctx)
			return err
		}, append(all("delete title of ?/7 ?"), "recorded d1 d1")},
		"OR": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewDelete().Model(recordedDoc("d1")).Where("id = ?", "d1").WhereOr("id = ?", "d2").Exec(ctx)
			return err
		}, []string{"delete title of d1/7 d1", "delete title of d2/7 d2", "recorded d1 d1"}},
	} {
		t.Run(name, func(t *testing.T) {
			eachDocs(t, []string{"d1", "d2", "d3"}, func(t *testing.T, b *bunEnv) {
				fixture.NoError(t, b.ob.RunInTx(t.Context(), tc.do))
				b.wantRows(t, tc.want...)
			})
		})
	}
}

// Recorded events need neither an On function nor a condition that names their model. An event that
// names its aggregate needs only that the statement changed a row.
func TestBunRowsOfRecordedEvents(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		_, err := b.bare.NewCreateTable().Model((*bDoc)(nil)).Exec(t.Context())
		fixture.NoError(t, err)
		b.exec(t, t.Context(), b.bare.NewInsert().Model(doc("d1")))
		named := doc("d1")
		named.Record(core.Event{Type: "named", AggregateID: "all"})
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			b.exec(t, ctx, tx.NewUpdate().Model(named).Set("title = 'x'").Where("stars = 99"))
			b.exec(t, ctx, tx.NewUpdate().Model(named).Set("title = 'x'").Where("stars = 7"))
		})
		b.wantRows(t, "named all")
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			b.exec(t, ctx, tx.NewDelete().Model(recordedDoc("d1")).Where("stars = 7"))
		})
		b.wantRows(t, "named all", "recorded d1 d1")
	})
}

// A row that an update finds is told, even if it had the new values already. MySQL and MariaDB do
// not count it, and RowsAffected is as without the outbox.
func TestBunUnchangedRows(t *testing.T) {
	t.Parallel()
	eachDocs(t, []string{"d1", "d2"}, func(t *testing.T, b *bunEnv) {
		d := recordedDoc("d1")
		d.Stars = 7
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			res, err := tx.NewUpdate().Model(d).WherePK().Exec(ctx)
			fixture.NoError(t, err)
			plain, err := b.bare.NewUpdate().Model(doc("d2")).Set("stars = 7").WherePK().Conn(tx).Exec(ctx)
			fixture.NoError(t, err)
			n, err := res.RowsAffected()
			fixture.NoError(t, err)
			want, err := plain.RowsAffected()
			fixture.NoError(t, err)
			fixture.Check(t, n == want, "RowsAffected is %d, without the outbox %d", n, want)
		})
		want := []string{"update title of d1/7 d1", "recorded d1 d1"}
		b.wantRows(t, want...)
		all := docsOf("d1", "d2")
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			b.exec(t, ctx, tx.NewUpdate().Model(&all).Set("title = 'title of d1'").WherePK())
		})
		b.wantRows(t, append(want, "update title of d1/7 d1", "update title of d1/7 d2")...)
	})
}

// Statements that do not name their rows are told row by row.
func TestBunRowsOfConditions(t *testing.T) {
	t.Parallel()
	eachDocs(t, []string{"d1", "d2", "d3"}, func(t *testing.T, b *bunEnv) {
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			b.exec(t, ctx, tx.NewUpdate().Model((*bDoc)(nil)).Set("stars = stars + 1").Where("title <> ?",
				"title of d2"))
		})
		want := []string{"update title of d1/8 d1", "update title of d3/8 d3"}
		b.wantRows(t, want...)
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			b.exec(t, ctx, tx.NewDelete().Model((*bDoc)(nil)).Where("stars = ?", 99)) // none
			d := recordedDoc("d3")
			b.exec(t, ctx, tx.NewDelete().Model(d).Where("stars = ?", 8)) // one of them has a recorded event
		})
		want = append(want, "delete title of d1/8 d1", "delete title of d3/8 d3", "recorded d3 d3")
		b.wantRows(t, want...)
		fixture.WantError(t, b.ob.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewDelete().Model(recordedDoc("d9")).Where("stars = ?", 7).Exec(ctx)
			return err
		}), core.ErrNoAggregateID) // another row than the model's
		all := docsOf("d2", "d5")
		b.exec(t, t.Context(), b.bare.NewInsert().Model(doc("d5")))
		b.inTx(t, func(ctx context.Context, tx bun.Tx) { // one of the two has this title already
			b.exec(t, ctx, tx.NewUpdate().Model(&all).Set("title = 'title of d2'").WherePK())
		})
		want = append(want, "update title of d2/7 d2", "update title of d2/7 d5")
		b.wantRows(t, want...)
		for _, id := range []string{"d6", "d7"} {
			b.exec(t, t.Context(), b.bare.NewInsert().Model(doc(id)))
		}
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			b.exec(t, ctx, tx.NewDelete().Model((*bDoc)(nil)).Where("stars = ?", 7))
		})
		b.WantCount(t, "b_docs", 0)
		b.wantRows(t, append(want, "delete title of d2/7 d2", "delete title of d2/7 d5", "delete title of d6/7 d6",
			"delete title of d7/7 d7")...)
	})
}

// A condition with a subquery finds the rows that the statement changes.
func TestBunRowsOfASubquery(t *testing.T) {
	t.Parallel()
	eachDocs(t, []string{"d1", "d2"}, func(t *testing.T, b *bunEnv) {
		fixture.NoError(t, b.ob.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model((*bDoc)(nil)).Set("stars = 1").Where("title = (SELECT o.title FROM " +
				"(SELECT * FROM b_docs) AS o WHERE o.id = 'd2')").Exec(ctx)
			return err
		}))
		b.wantRows(t, "update title of d2/1 d2")
	})
}

// A row that begins to match the condition just before the statement is told with the others.
func TestBunRowsMeetANewRow(t *testing.T) {
	t.Parallel()
	eachDocs(t, []string{"d1"}, func(t *testing.T, b *bunEnv) {
		if b.db.Dialect == core.SQLite {
			t.Log("this database keeps other transactions from inserting a matching row")
			return
		}
		db := b.WithQueryHook(&intruder{fn: func() {
			if _, err := b.Plain.ExecContext(t.Context(), "INSERT INTO b_docs (id, slug, title) VALUES ('d2', "+
				"'s2', 't2')"); err != nil {
				t.Error(err)
			}
		}})
		fixture.NoError(t, db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model((*bDoc)(nil)).Set("stars = 1").Where("stars = 7").Exec(ctx)
			return err
		}))
		b.WantCount(t, "b_docs WHERE stars = 1", 2)
		b.wantRows(t, "update title of d1/1 d1", "update t2/1 d2")
	})
}

// intruder calls a function before the first UPDATE.
type intruder struct{ fn func() }

func (i *intruder) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	if i.fn != nil && event.Operation() == "UPDATE" {
		i.fn()
		i.fn = nil
	}
	return ctx
}

func (i *intruder) AfterQuery(context.Context, *bun.QueryEvent) {}

// RETURNING of the program's own gives it the rows that it would have got without the outbox.
func TestBunRowsBesideReturning(t *testing.T) {
	t.Parallel()
	eachDocs(t, []string{"d1", "d2", "d3"}, func(t *testing.T, b *bunEnv) {
		var want []string
		stars := 7
		update := func(into any, returning string, dest ...any) {
			t.Helper()
			b.inTx(t, func(ctx context.Context, tx bun.Tx) {
				_, err := tx.NewUpdate().Model(into).Set("stars = stars + 1").Where("title <> ?",
					"title of d2").Returning(returning).Exec(ctx, dest...)
				fixture.NoError(t, err)
			})
			stars++
			want = append(want, fmt.Sprintf("update title of d1/%d d1", stars),
				fmt.Sprintf("update title of d3/%d d3", stars))
			b.wantRows(t, want...)
		}
		var all []bDoc
		var some []*bDoc
		var ids []string
		update(&all, "*")
		update(&some, "id")
		update(&[]*bDoc{}, "title")
		update(&bDoc{}, "*")
		update(&[]bDoc{}, "id", &ids) // in place of the model
		if !b.HasFeature(feature.Returning) {
			return
		}
		fixture.Check(t, len(all) == 2 && all[0].Stars == 8 && all[0].Title != "", "returned %v", all)
		fixture.Check(t, len(some) == 2 && some[0].ID != "" && some[0].Title == "", "returned %v", some)
		slices.Sort(ids)
		fixture.Check(t, slices.Equal(ids, []string{"d1", "d3"}), "returned %v", ids)
	})
}

// The events of a Recorder in a named field would be lost, so statements of such a model are
// refused.
func TestBunHiddenRecorder(t *testing.T) {
	t.Parallel()
	type bHidden struct {
		bun.BaseModel `bun:"table:b_docs"`
		ID            string        `bun:",pk"`
		Events        core.Recorder `bun:"-"`
	}
	eachDocs(t, nil, func(t *testing.T, b *bunEnv) {
		err := b.ob.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewInsert().Model(&bHidden{ID: "d1"}).Exec(ctx)
			return err
		})
		fixture.WantError(t, err, core.ErrHiddenRecorder)
		b.WantCount(t, "b_docs", 0)
		text, err := json.Marshal(recordedDoc("d1"))
		fixture.NoError(t, err)
		if s := fmt.Sprint(*recordedDoc("d1")); !strings.Contains(s, "title of d1") ||
			strings.Contains(string(text), "recorded") {
			t.Errorf("a model is printed as %s and encoded as %s", s, text)
		}
	})
}
