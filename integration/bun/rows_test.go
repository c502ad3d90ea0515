package bun_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/feature"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// The cases here are about one question: which rows did this statement change? An event is written
// if, and only if, the database said that its row was changed.

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

// unknown requires that a transaction fails with ErrNoAggregateID and changes nothing.
func (b *bunEnv) unknown(t *testing.T, fn func(ctx context.Context, tx bun.Tx) error) {
	t.Helper()
	before := b.docs(t)
	fixture.WantError(t, b.ob.RunInTx(t.Context(), fn), core.ErrNoAggregateID)
	fixture.SameSet(t, "documents", b.docs(t), before)
	b.wantRows(t)
}

func (b *bunEnv) docs(t *testing.T) []string {
	t.Helper()
	var all []bDoc
	fixture.NoError(t, b.bare.NewSelect().Model(&all).Order("id").Scan(t.Context()))
	rows := []string{}
	for _, d := range all {
		rows = append(rows, fmt.Sprintf("%s %s/%d", d.ID, d.Title, d.Stars))
	}
	return rows
}

func docsOf(ids ...string) []*bDoc {
	var all []*bDoc
	for _, id := range ids {
		all = append(all, doc(id))
	}
	return all
}

// Two kinds of statements are refused before they change a row: conditions that only seem to name
// the row, and RETURNING into the wrong models.
func TestBunRowsAreRefusedBeforeTheyChange(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]func(ctx context.Context, tx bun.Tx) error{
		"the WHERE of a subquery": func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model(doc("d1")).Set("title = 'x'").
				Where("stars = (SELECT MAX(o.stars) FROM (SELECT * FROM b_docs) AS o WHERE (id = ?))", "d1").Exec(ctx)
			return err
		},
		"the subquery of a SET": func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model(doc("d1")).Set("title = (SELECT 'x' FROM (SELECT 1 AS id) AS o WHERE (id " +
				"= 'd1'))").Where("stars = 7").Exec(ctx)
			return err
		},
		"RETURNING of one column into a slice": func(ctx context.Context, tx bun.Tx) error {
			all := docsOf("d1", "d2", "d3")
			_, err := tx.NewUpdate().Model(&all).Set("stars = stars + 1").WherePK().Where(
				"title <> 'title of d2'",
			).Returning("title").Exec(ctx)
			return err
		},
		"RETURNING of something that is called like the key": func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model(&bDoc{}).Set("stars = stars + 1").Where("id = ?",
				"d1").Returning("'d2' AS id").Exec(ctx)
			return err
		},
		"another key": func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewDelete().Model(doc("d2")).Where("id = ?", "d1").Exec(ctx)
			return err
		},
		"a comment": func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewDelete().Model(doc("d1")).Where("stars = 7 OR /* (id = 'd1') */ id = ?", "d1").Exec(ctx)
			return err
		},
		"recorded events of a statement that does not name their model": func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewDelete().Model(recordedDoc("d1")).Where("stars = 7").Exec(ctx)
			return err
		},
		"OR": func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewDelete().Model(recordedDoc("d1")).Where("id = ?", "d1").WhereOr("id = ?", "d2").Exec(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachDocs(t, []string{"d1", "d2", "d3"}, func(t *testing.T, b *bunEnv) {
				b.unknown(t, func(ctx context.Context, tx bun.Tx) error {
					err := statement(ctx, tx)
					// MariaDB has no RETURNING in updates: the statement is executed, and COMMIT
					// fails.
					fixture.Check(t, err != nil || strings.HasPrefix(name, "RETURNING"), "the statement was executed")
					return err
				})
			})
		})
	}
}

// AllowKeyless does not leave recorded events behind either. An event that names its aggregate
// needs no row.
func TestBunRowsOfRecordedEvents(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		_, err := b.bare.NewCreateTable().Model((*bDoc)(nil)).Exec(t.Context())
		fixture.NoError(t, err)
		b.exec(t, t.Context(), b.bare.NewInsert().Model(doc("d1")))
		o := recordedDoc("d1")
		b.unknown(t, func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewDelete().Model(o).Where("stars = 7").Exec(ctx)
			return err
		})
		named := doc("d1")
		named.Record(core.Event{Type: "named", AggregateID: "all"})
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			b.exec(t, ctx, tx.NewUpdate().Model(named).Set("title = 'x'").Where("stars = 99"))
			b.exec(t, ctx, tx.NewUpdate().Model(named).Set("title = 'x'").Where("stars = 7"))
		})
		b.wantRows(t, "named all")
	}, func(c *bunoutbox.Config) { c.AllowKeyless = true })
}

// MySQL and MariaDB do not count a row whose values an update does not change. In an update of one
// row, that causes no event and no error. In an update of several rows, it is not known which row
// was counted, so the update fails.
func TestBunUnchangedRows(t *testing.T) {
	t.Parallel()
	eachDocs(t, []string{"d1", "d2"}, func(t *testing.T, b *bunEnv) {
		d := recordedDoc("d1")
		d.Stars = 7
		b.inTx(t, func(ctx context.Context, tx bun.Tx) { b.exec(t, ctx, tx.NewUpdate().Model(d).WherePK()) })
		if b.db.Dialect != core.MySQL {
			b.wantRows(t, "update title of d1/7 d1", "recorded d1 d1")
			return
		}
		b.wantRows(t)
		if n := len(d.Recorded()); n != 1 {
			t.Errorf("%d events are recorded, want 1", n)
		}
		all := docsOf("d1", "d2")
		b.unknown(t, func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model(&all).Set("title = 'title of d1'").WherePK().Exec(ctx)
			return err
		})
	})
}

// With ResolveRows statements that do not name their rows are captured row by row.
func TestBunResolveRows(t *testing.T) {
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
		}), core.ErrNoAggregateID)
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
		fixture.WantError(t, b.ob.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewDelete().Model((*bDoc)(nil)).Where("stars = ?", 7).Exec(ctx)
			return err
		}), core.ErrTooManyRows)
		b.WantCount(t, "b_docs", 4)
		b.wantRows(t, want...)
	})
}

// A statement is refused if its rows cannot be locked. That concerns subqueries, unless the
// database lets only one transaction write at a time.
func TestBunResolveRowsOfASubquery(t *testing.T) {
	t.Parallel()
	eachDocs(t, []string{"d1", "d2"}, func(t *testing.T, b *bunEnv) {
		update := func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model((*bDoc)(nil)).Set("stars = 1").Where("title = (SELECT o.title FROM " +
				"(SELECT * FROM b_docs) AS o WHERE o.id = 'd2')").Exec(ctx)
			return err
		}
		if b.db.Dialect != core.SQLite {
			b.unknown(t, update)
			return
		}
		fixture.NoError(t, b.ob.RunInTx(t.Context(), update))
		b.wantRows(t, "update title of d2/1 d2")
	})
}

// If a row begins to match the condition between the SELECT and the statement, the statement
// changes it unseen. The transaction must not commit then.
func TestBunResolveRowsMeetsANewRow(t *testing.T) {
	t.Parallel()
	eachDocs(t, []string{"d1"}, func(t *testing.T, b *bunEnv) {
		if b.db.Dialect != core.Postgres {
			t.Log("this database keeps other transactions from inserting a matching row")
			return
		}
		db := b.WithQueryHook(&intruder{fn: func() {
			if _, err := b.Plain.ExecContext(t.Context(), "INSERT INTO b_docs (id, slug, title) VALUES ('d2', "+
				"'s2', 't2')"); err != nil {
				t.Error(err)
			}
		}})
		err := db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model((*bDoc)(nil)).Set("stars = 1").Where("stars = 7").Exec(ctx)
			return err
		})
		fixture.WantError(t, err, core.ErrNoAggregateID)
		b.WantCount(t, "b_docs WHERE stars = 7", 2)
		b.wantRows(t)
	})
}

// intruder calls a function after the first SELECT, which has locked the rows.
type intruder struct{ fn func() }

func (i *intruder) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (i *intruder) AfterQuery(_ context.Context, event *bun.QueryEvent) {
	if i.fn != nil && strings.HasSuffix(event.Query, " FOR UPDATE") {
		i.fn()
		i.fn = nil
	}
}

// The rows that RETURNING writes into an empty slice are taken as the changed rows.
func TestBunRowsThatReturningTells(t *testing.T) {
	t.Parallel()
	eachDocs(t, []string{"d1", "d2", "d3"}, func(t *testing.T, b *bunEnv) {
		update := func(into any, returning string) error {
			return b.ob.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
				_, err := tx.NewUpdate().Model(into).Set("stars = stars + 1").Where("title <> ?",
					"title of d2").Returning(returning).Exec(ctx)
				return err
			})
		}
		if !b.HasFeature(feature.Returning) {
			fixture.WantError(t, update(&[]bDoc{}, "*"), core.ErrNoAggregateID)
			return
		}
		fixture.NoError(t, update(&[]bDoc{}, "*"))
		want := []string{"update title of d1/8 d1", "update title of d3/8 d3"}
		b.wantRows(t, want...)
		fixture.NoError(t, update(&[]*bDoc{}, "id"))
		want = append(want, "update title of d1/9 d1", "update title of d3/9 d3")
		b.wantRows(t, want...)
		fixture.WantError(t, update(&[]*bDoc{}, "title"), core.ErrNoAggregateID)
		fixture.WantError(t, update(&bDoc{}, "*"), core.ErrNoAggregateID) // one model has no room for two rows
		fixture.WantError(t, b.ob.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
			var ids []string // in place of the model
			_, err := tx.NewUpdate().Model(&[]bDoc{}).Set("stars = stars + 1").Where("title <> ?",
				"title of d2").Returning("id").Exec(ctx, &ids)
			return err
		}), core.ErrNoAggregateID)
		b.wantRows(t, want...)
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
