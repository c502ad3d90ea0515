package bun_test

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/feature"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// step is a statement and the events that it causes, each as its type and its aggregate id.
type step struct {
	name string
	q    bunQuery
	want []string
}

// steps runs statements one after another, and compares the events of each.
func (b *bunEnv) steps(t *testing.T, steps []step) {
	t.Helper()
	for _, s := range steps {
		fixture.MustExec(t, b.Plain, "DELETE FROM outbox_event")
		if _, err := s.q.Exec(t.Context()); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		fixture.SameSet(t, s.name, b.Events(t), s.want)
	}
}

// create makes the tables of models.
func (b *bunEnv) create(t *testing.T, models ...any) {
	t.Helper()
	for _, m := range models {
		_, err := b.bare.NewCreateTable().Model(m).Exec(t.Context())
		fixture.NoError(t, err)
	}
}

// An upsert is told by the row that it changed, which need not have the key of its model.
func TestBunUpsertByAnotherColumn(t *testing.T) {
	t.Parallel()
	eachDocs(t, []string{"d1", "d2"}, func(t *testing.T, b *bunEnv) {
		upsert := func(model any) *bun.InsertQuery {
			q := b.NewInsert().Model(model).Returning("")
			if b.db.Dialect == core.MySQL {
				return q.On("DUPLICATE KEY UPDATE").Set("stars = VALUES(stars)")
			}
			return q.On("CONFLICT (slug) DO UPDATE").Set("stars = EXCLUDED.stars")
		}
		taken := func(id, slug string, stars int64) *bDoc {
			return &bDoc{ID: id, Slug: "slug of " + slug, Title: "new", Stars: stars}
		}
		b.steps(t, []step{
			{"a new key, a known slug", upsert(taken("d9", "d2", 8)), []string{"upsert title of d2/8 d2"}},
			{"all new", upsert(taken("d3", "d3", 9)), []string{"upsert new/9 d3"}},
		})
		if b.db.Dialect == core.MySQL { // there the row with the own key is changed
			return
		}
		b.steps(t, []step{
			{"the key of another row", upsert(taken("d1", "d2", 9)), []string{"upsert title of d2/9 d2"}},
			{"a batch", upsert(&[]*bDoc{taken("d1", "d2", 3), taken("d4", "d4", 4)}), []string{
				"upsert title of d2/3 d2", "upsert new/4 d4",
			}},
		})
		recorded := taken("d1", "d2", 5)
		recorded.Record(fixture.Happened{Name: "recorded"})
		err := b.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := upsert(recorded).Conn(tx).Exec(ctx)
			fixture.WantError(t, err, core.ErrNoAggregateID) // the changed row is not the model's
			return nil
		})
		fixture.WantError(t, err, core.ErrNoAggregateID)
		b.WantCount(t, "b_docs WHERE stars = 5", 0)
	})
}

// An error of the client comes after the row was changed. The row and its event go together, with
// and without a transaction, whether the program ignores the error or not.
func TestBunErrorsOfTheClient(t *testing.T) {
	t.Parallel()
	eachDocs(t, []string{"d1", "d2", "d3"}, func(t *testing.T, b *bunEnv) {
		if !b.HasFeature(feature.Returning) {
			t.Log("there is no RETURNING whose rows could be unreadable")
			return
		}
		for name, q := range map[string]bunQuery{
			"a nil model": b.NewDelete().Model((*bDoc)(nil)).Where("id = 'd1'").Returning("stars"),
			"the wrong type": withDest{
				b.NewUpdate().Model(doc("d2")).Set("stars = 8").WherePK().Returning("title"),
				new(int),
			},
		} {
			if _, err := q.Exec(t.Context()); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		want := []string{"delete title of d1/7 d1", "update title of d2/8 d2"}
		b.wantRows(t, want...)
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			_, err := tx.NewDelete().Model((*bDoc)(nil)).Where("id = 'd3'").Returning("stars").Exec(ctx)
			fixture.Check(t, err != nil, "the row could be read")
		})
		b.WantCount(t, "b_docs", 1)
		b.wantRows(t, append(want, "delete title of d3/7 d3")...)
	})
}

// withDest is a query that reads into something.
type withDest struct {
	q    bunQuery
	dest any
}

func (w withDest) Exec(ctx context.Context, _ ...any) (sql.Result, error) {
	return w.q.Exec(ctx, w.dest)
}

// A function gets the row as it is stored, not the model, whose other fields may be empty.
func TestBunStoredRows(t *testing.T) {
	t.Parallel()
	eachDocs(t, []string{"d1"}, func(t *testing.T, b *bunEnv) {
		b.steps(t, []step{
			{
				"Column", b.NewUpdate().Model(&bDoc{ID: "d1", Stars: 8}).Column("stars").WherePK(),
				[]string{"update title of d1/8 d1"},
			},
			{
				"OmitZero", b.NewUpdate().Model(&bDoc{ID: "d1", Title: "t"}).OmitZero().WherePK(),
				[]string{"update t/8 d1"},
			},
			{"Set", b.NewUpdate().Model(&bDoc{ID: "d1"}).Set("stars = stars + 1").WherePK(), []string{"update t/9 d1"}},
			{
				"Value", b.NewUpdate().Model(&bDoc{ID: "d1"}).Column("stars").Value("stars", "? + 1", 3).WherePK(),
				[]string{"update t/4 d1"},
			},
			{"the key", b.NewUpdate().Model(&bDoc{ID: "d1"}).Set("id = 'd0'").WherePK(), []string{"update t/4 d0"}},
			{"ExcludeColumn", b.NewInsert().Model(doc("d2")).ExcludeColumn("title", "stars"), []string{"create /7 d2"}},
			{
				"Value of an insert", b.NewInsert().Model(doc("d3")).Value("title", "UPPER(?)", `it's \' ( " x`),
				[]string{`create IT'S \' ( " X/7 d3`},
			},
			{"a delete by key", b.NewDelete().Model(&bDoc{ID: "d2"}).WherePK(), []string{"delete /7 d2"}},
		})
	})
}

// bTypes has a column of each type.
type bTypes struct {
	bun.BaseModel `bun:"table:b_types"`
	ID            int64 `bun:",pk"`
	N             int32
	At            time.Time `bun:"type:timestamp"`
	Zoned         time.Time
	Perhaps       *time.Time
	Bytes         []byte
	Yes           bool
	Float         float64
	Object        map[string]any
	Unset         *string
	Text          string
}

// The row of a function is the one that a SELECT of the program reads, whatever it was told by.
func TestBunTypes(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		b.create(t, (*bTypes)(nil))
		var told *bTypes
		bunoutbox.On(b.ob, func(_ core.Op, m *bTypes) []core.Event {
			told = m
			return nil
		})
		at := time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)
		m := &bTypes{
			ID: 1, At: at, Zoned: at, Perhaps: &at, Bytes: []byte{0, 1, '\'', '\\'}, Yes: true, Float: 1.5,
			Object: map[string]any{"a": "it's \\ \"b\""}, Text: "it's \\ ( ?",
		}
		var row bTypes
		for name, q := range map[string]bunQuery{
			"insert":           b.NewInsert().Model(m),
			"update":           b.NewUpdate().Model(m).WherePK(),
			"update returning": b.NewUpdate().Model(&row).Set("n = 1").Where("id = 1").Returning("*"),
			"set":              b.NewUpdate().Model((*bTypes)(nil)).Set("n = 2").Where("id = 1"),
		} {
			told = nil
			_, err := b.Plain.ExecContext(t.Context(), "DELETE FROM b_types")
			fixture.NoError(t, err)
			if name != "insert" {
				b.exec(t, t.Context(), b.bare.NewInsert().Model(m))
			}
			b.exec(t, t.Context(), q)
			var stored bTypes
			fixture.NoError(t, b.bare.NewSelect().Model(&stored).Where("id = 1").Scan(t.Context()))
			if told == nil || !reflect.DeepEqual(*told, stored) {
				t.Errorf("%s: told %+v, stored %+v", name, told, stored)
			}
		}
	})
}

// bMoment has a key of times.
type bMoment struct {
	bun.BaseModel `bun:"table:b_moments"`
	At            time.Time `bun:"type:timestamp,pk"`
	N             int

	core.Recorder `bun:"-" json:"-"`
}

// bTexts has a key of two texts.
type bTexts struct {
	bun.BaseModel `bun:"table:b_texts"`
	A             string `bun:"type:varchar(32),pk"`
	B             string `bun:"type:varchar(32),pk"`
	N             int

	core.Recorder `bun:"-" json:"-"`
}

// bUUID has a key that PostgreSQL writes in lower case.
type bUUID struct {
	bun.BaseModel `bun:"table:b_uuids"`
	ID            string `bun:"type:uuid,pk"`
	N             int

	core.Recorder `bun:"-" json:"-"`
}

// The database compares keys. An event has the key as it is stored.
func TestBunKeys(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		b.create(t, (*bMoment)(nil), (*bTexts)(nil))
		at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
		moment := &bMoment{At: at}
		if b.db.Dialect != core.MySQL { // where Bun writes the clock of the zone
			moment.At = at.In(time.FixedZone("x", 3600))
		}
		moment.Record(fixture.Happened{Name: "recorded"})
		b.steps(t, []step{{"a time", b.NewInsert().Model(moment), []string{"recorded 2026-03-04T05:06:07Z"}}})
		var texts []*bTexts
		for _, key := range [][2]string{{"a,b", "c"}, {"a", "b,c"}, {`a\`, "b"}} {
			one := &bTexts{A: key[0], B: key[1]}
			one.Record(fixture.Happened{Name: "recorded"})
			texts = append(texts, one)
		}
		keys := []string{`recorded a\,b,c`, `recorded a,b\,c`, `recorded a\\,b`}
		b.steps(t, []step{{"texts", b.NewInsert().Model(&texts), keys}})
		for _, one := range texts {
			one.Record(fixture.Happened{Name: "recorded"})
		}
		b.steps(t, []step{{"texts", b.NewUpdate().Model(&texts).Set("n = 1").WherePK(), keys}})
		if b.db.Dialect != core.Postgres {
			return
		}
		b.create(t, (*bUUID)(nil))
		id := "0190AAAA-BBBB-7CCC-8DDD-EEEEFFFF0000"
		upper := &bUUID{ID: id}
		for _, s := range []step{
			{"insert", b.NewInsert().Model(upper), nil},
			{"update", b.NewUpdate().Model(upper).Set("n = 1").WherePK(), nil},
			{"upsert", b.NewInsert().Model(upper).On("CONFLICT (id) DO UPDATE").Set("n = 2"), nil},
			{"delete", b.NewDelete().Model(upper).WherePK(), nil},
		} {
			upper.Record(fixture.Happened{Name: "recorded"})
			s.want = []string{"recorded " + strings.ToLower(id)}
			b.steps(t, []step{s})
			fixture.Check(t, len(upper.Recorded()) == 0, "%s: the event is still recorded", s.name)
		}
	})
}

// bLog has no key.
type bLog struct {
	bun.BaseModel `bun:"table:b_logs"`
	Text          string
}

// OnAll gets the rows of every model, but those of types that are passed over. The rows of a table
// without a key cannot be named everywhere.
func TestBunOnAll(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		b.create(t, (*bLog)(nil))
		bunoutbox.OnAll(b.ob, func(_ context.Context, op core.Op, model any) ([]core.Event, error) {
			return []core.Event{{Type: fmt.Sprintf("%T.%s", model, op)}}, nil
		}, (*bStrict)(nil))
		log := []string{"*bun_test.bLog.create"}
		update := []string{"*bun_test.bLog.update"}
		if b.db.Dialect == core.MySQL {
			update = nil
			if b.db.Name == "mysql" {
				log = nil
			}
		}
		b.steps(t, []step{
			{"one", b.NewInsert().Model(&bProduct{Name: "x"}), []string{"*bun_test.bProduct.create 1"}},
			{"soft delete", b.NewDelete().Model(&bProduct{ID: 1}).WherePK(), []string{"*bun_test.bProduct.delete 1"}},
			{"a pair", b.NewInsert().Model(&bPair{A: 1, B: "x"}), []string{"*bun_test.bPair.create 1,x"}},
			{"passed over", b.NewInsert().Model(&bStrict{Name: "x"}), nil},
			{"no key", b.NewInsert().Model(&bLog{Text: "x"}), log},
			{"an update without a key", b.NewUpdate().Model(&bLog{}).Set("text = 'y'").Where("text = 'x'"), update},
		})
		b.WantCount(t, "b_logs WHERE text = 'y'", 1)
	})
}

type bOutboxEvent struct {
	bun.BaseModel `bun:"table:outbox_event"`
	ID            []byte `bun:",pk"`
	EventType     string
}

type bInboxSeen struct {
	bun.BaseModel `bun:"table:shop_inbox_seen"`
	ID            int64 `bun:",pk"`
	N             int
}

// OnAll does not see the tables of the outbox and of the inbox. On does.
func TestBunOnAllAndItsOwnTables(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		b.create(t, (*bInboxSeen)(nil))
		bunoutbox.OnAll(b.ob, func(_ context.Context, op core.Op, model any) ([]core.Event, error) {
			return []core.Event{{Type: fmt.Sprintf("%s %T", op, model)}}, nil
		})
		b.exec(t, t.Context(), b.NewInsert().Model(&bInboxSeen{ID: 1}))
		b.exec(t, t.Context(), b.NewUpdate().Model((*bInboxSeen)(nil)).Set("n = 1").Where("n = 0"))
		b.wantRows(t)
		b.inTx(t, func(ctx context.Context, tx bun.Tx) { fixture.NoError(t, b.publish(ctx, tx, "kept")) })
		b.exec(t, t.Context(), b.NewDelete().Model((*bOutboxEvent)(nil)).Where("event_type = 'kept'"))
		b.wantRows(t)
		bunoutbox.On(b.ob, func(op core.Op, _ *bInboxSeen) []core.Event {
			return []core.Event{{Type: "seen." + op.String()}}
		})
		b.exec(t, t.Context(), b.NewDelete().Model(&bInboxSeen{ID: 1}).WherePK())
		b.wantRows(t, "seen.delete 1")
	})
}
