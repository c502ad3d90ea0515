package bun_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/feature"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/refused"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlpause"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// rItem has a key that the database counts.
type rItem struct {
	bun.BaseModel `bun:"table:r_items"`
	ID            int64  `bun:",pk,autoincrement"`
	Name          string `bun:"type:varchar(64)"`
	Qty           int
	core.Recorder `bun:"-" json:"-"`
}

// rDoc has a key that the program sets.
type rDoc struct {
	bun.BaseModel `bun:"table:r_docs"`
	ID            string `bun:"type:varchar(64),pk"`
	Name          string `bun:"type:varchar(64)"`
	Qty           int
}

// rKeyless has no key.
type rKeyless struct {
	bun.BaseModel `bun:"table:r_keyless"`
	Name          string `bun:"type:varchar(64),unique"`
	Qty           int
}

// rTagged has a column that not every text can be read into.
type rTagged struct {
	bun.BaseModel `bun:"table:r_tagged"`
	ID            int64             `bun:",pk"`
	Tags          map[string]string `bun:"type:varchar(64)"`
}

// rLog has a key that the database makes, and not by counting.
type rLog struct {
	bun.BaseModel `bun:"table:r_logs"`
	ID            string `bun:",pk,nullzero,default:made"`
	Name          string
}

// rMoment has a key that the column rounds.
type rMoment struct {
	bun.BaseModel `bun:"table:r_moments"`
	At            time.Time `bun:",pk"`
	N             int
}

// rView is a row of a view.
type rView struct {
	bun.BaseModel `bun:"table:r_view"`
	ID            int64 `bun:",pk"`
	Name          string
	Qty           int
}

func openRefused(t *testing.T, db testdb.DB) *bunEnv {
	t.Helper()
	return openRefusedIn(t, db, adapters.BunWay{Connector: true})
}

func openRefusedIn(t *testing.T, db testdb.DB, way adapters.BunWay) *bunEnv {
	t.Helper()
	b := newBunEnv(t, db, way)
	b.create(t, (*rItem)(nil), (*rDoc)(nil), (*rKeyless)(nil), (*rTagged)(nil))
	made := map[core.Dialect]string{
		core.Postgres: "gen_random_uuid()", core.MySQL: "(UUID())", core.SQLite: "(hex(randomblob(9)))",
	}[db.Dialect]
	moment := map[core.Dialect]string{core.Postgres: "TIMESTAMPTZ", core.MySQL: "DATETIME", core.SQLite: "TIMESTAMP"}
	for _, text := range []string{
		"CREATE TABLE r_logs (id VARCHAR(64) DEFAULT " + made + " PRIMARY KEY, name VARCHAR(64))",
		"CREATE TABLE r_moments (at " + moment[db.Dialect] + " PRIMARY KEY, n BIGINT)",
		"INSERT INTO r_items (id, name, qty) VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 3)",
		"INSERT INTO r_docs (id, name, qty) VALUES ('1', 'a', 1), ('2', 'b', 2)",
		"INSERT INTO r_keyless (name, qty) VALUES ('a', 1)",
		"INSERT INTO r_tagged (id, tags) VALUES (1, '{}')",
	} {
		fixture.MustExec(t, b.Plain, text)
	}
	if db.Dialect == core.Postgres {
		fixture.MustExec(t, b.Plain, "SELECT setval('r_items_id_seq', 3)")
	}
	told(b, func(d *rDoc) string { return d.Name })
	told(b, func(*rKeyless) string { return "keyless" })
	told(b, func(m *rTagged) string { return fmt.Sprint(m.Tags) })
	told(b, func(l *rLog) string { return l.Name })
	told(b, func(v *rView) string { return v.Name })
	told(b, func(*rMoment) string { return "moment" })
	return b
}

// told makes an event of each row of a type.
func told[T any](b *bunEnv, text func(*T) string) {
	bunoutbox.On(b.ob, func(_ core.Op, m *T) []core.Event { return []core.Event{{Type: "told " + text(m)}} })
}

func recorded(i rItem) *rItem {
	i.Record(fixture.Happened{Name: "recorded"})
	return &i
}

// execs returns a preparation by texts.
func execs(texts ...string) func(t *testing.T, b *bunEnv) {
	return func(t *testing.T, b *bunEnv) {
		t.Helper()
		told(b, func(i *rItem) string { return i.Name })
		for _, text := range texts {
			fixture.MustExec(t, b.Plain, text)
		}
	}
}

// onMySQL returns an error unless the database is MySQL or MariaDB.
func onMySQL(tx bun.IDB) error {
	if tx.Dialect().Name() != dialect.MySQL {
		return fmt.Errorf("%w: the database has no such statement", errors.ErrUnsupported)
	}
	return nil
}

func result(q bunQuery) error {
	_, err := q.Exec(context.Background())
	return err
}

type bunRefusal = refused.Case[*bunEnv, bun.IDB]

// The table of what is refused says what happens.
func TestBunRefused(t *testing.T) {
	t.Parallel()
	refused.Test(t, refused.ORM[*bunEnv, bun.IDB]{
		Name: "Bun", Open: openRefused,
		Tx: func(ctx context.Context, b *bunEnv, fn func(tx bun.IDB) error) error {
			return b.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return fn(tx) })
		},
		Lacks: map[string]string{
			"than a statement can have parameters": "Bun writes the keys of models into the text",
		},
	}, slices.Concat(bunRefusedEverywhere(), bunRefusedPlaces(), bunRefusedChanges(), bunRefusedInserts()))
}

func bunRefusedEverywhere() []bunRefusal {
	many := execs("INSERT INTO r_items (name, qty) VALUES " + strings.TrimSuffix(strings.Repeat("('many', 5),",
		100_001),
		","))
	return []bunRefusal{
		{Line: "it has no key, and several rows changed", Do: func(_ context.Context, tx bun.IDB) error {
			return result(tx.NewUpdate().Model(recorded(rItem{})).Set("qty = 2").Where("qty = 1"))
		}},
		{Line: "only other rows changed (`OR`)", Do: func(_ context.Context, tx bun.IDB) error {
			return result(tx.NewUpdate().Model(recorded(rItem{ID: 1})).Set("qty = 2").Where("name = 'b'"))
		}},
		{
			Line: "generated keys inserted only some rows",
			Set:  execs("CREATE UNIQUE INDEX r_name ON r_items (name)"),
			Do: func(_ context.Context, tx bun.IDB) error {
				batch := []*rItem{recorded(rItem{Name: "a"}), recorded(rItem{Name: "new"})}
				return result(tx.NewInsert().Model(&batch).Ignore())
			},
		},
		{Line: "cannot be read back into the model", Do: func(_ context.Context, tx bun.IDB) error {
			return result(tx.NewUpdate().Model((*rTagged)(nil)).Set("tags = 'z'").Where("id = 1"))
		}},
		{
			Line: "more than 100,000 rows", Name: "update", After: "PostgreSQL, SQLite", Long: true, Set: many,
			Do: func(_ context.Context, tx bun.IDB) error {
				return result(tx.NewUpdate().Model((*rItem)(nil)).Set("qty = 6").Where("qty = 5"))
			},
		},
		{
			Line: "more than 100,000 rows", Name: "delete", After: "PostgreSQL, SQLite, MariaDB", Long: true, Set: many,
			Do: func(_ context.Context, tx bun.IDB) error {
				return result(tx.NewDelete().Model((*rItem)(nil)).Where("qty = 5"))
			},
		},
	}
}

func bunRefusedPlaces() []bunRefusal {
	outside := func(_ context.Context, b *bunEnv, fn func(tx bun.IDB) error) error { return fn(b.DB) }
	plain := func(t *testing.T, db testdb.DB) *bunEnv {
		t.Helper()
		return openRefusedIn(t, db, adapters.BunWay{})
	}
	insert := func(_ context.Context, tx bun.IDB) error { return result(tx.NewInsert().Model(&rDoc{ID: "9"})) }
	return []bunRefusal{
		{Line: "a pool without the outbox's", Name: "outside of a transaction", Open: plain, Tx: outside, Do: insert},
		{Line: "a pool without the outbox's", Name: "a transaction", Open: plain, Do: insert},
		{
			Line: "a pool without the outbox's", Name: "BEGIN",
			Tx: func(ctx context.Context, b *bunEnv, fn func(tx bun.IDB) error) error {
				conn, err := b.Conn(ctx)
				if err != nil {
					return err
				}
				defer conn.Close()
				if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
					return err
				}
				if err := fn(conn); err != nil {
					return err
				}
				_, err = conn.ExecContext(ctx, "COMMIT")
				return err
			},
			Do: insert,
		},
		{
			Line: "a later query hook",
			Tx: func(ctx context.Context, b *bunEnv, fn func(tx bun.IDB) error) error {
				var conn bun.IConn
				db := b.WithQueryHook(hooks{before: func(event *bun.QueryEvent) {
					event.IQuery.(*bun.InsertQuery).Conn(conn)
				}})
				return db.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error {
					conn = tx.Tx
					return fn(tx)
				})
			},
			Do: insert,
		},
		{Line: "MERGE", Do: func(_ context.Context, tx bun.IDB) error {
			if !tx.Dialect().Features().Has(feature.Merge) {
				return errors.ErrUnsupported
			}
			return result(tx.NewMerge().Model(&rDoc{}).Using("(VALUES ('x')) AS v (name)").On("FALSE").
				WhenInsert("NOT MATCHED", func(q *bun.InsertQuery) *bun.InsertQuery {
					return q.Value("id", "v.name")
				}))
		}},
	}
}

func bunRefusedChanges() []bunRefusal {
	all := []bunRefusal{
		{Line: "no primary key: updates", Name: "update", Do: func(_ context.Context, tx bun.IDB) error {
			return result(tx.NewUpdate().Model((*rKeyless)(nil)).Set("qty = 2").Where("qty = 1"))
		}},
		{Line: "no primary key: updates", Name: "upsert", Do: func(_ context.Context, tx bun.IDB) error {
			q := tx.NewInsert().Model(&rKeyless{Name: "a", Qty: 7})
			if onMySQL(tx) == nil {
				return result(q.On("DUPLICATE KEY UPDATE").Set("qty = VALUES(qty)"))
			}
			return result(q.On("CONFLICT (name) DO UPDATE").Set("qty = EXCLUDED.qty"))
		}},
		{Line: "no primary key: other inserts", Name: "insert", Do: func(_ context.Context, tx bun.IDB) error {
			return result(tx.NewInsert().Model(&rKeyless{Name: "b", Qty: 7}))
		}},
		{Line: "no primary key: other inserts", Name: "delete", Do: func(_ context.Context, tx bun.IDB) error {
			return result(tx.NewDelete().Model((*rKeyless)(nil)).Where("qty = 1"))
		}},
		{
			Line: "keys are no integers", Long: true,
			Set: func(t *testing.T, b *bunEnv) {
				t.Helper()
				for from := 0; from < 66_000; from += 1000 {
					var values []string
					for i := range 1000 {
						values = append(values, fmt.Sprintf("('k%d', 'many', 5)", from+i))
					}
					fixture.MustExec(t, b.Plain, "INSERT INTO r_docs (id, name, qty) VALUES "+strings.Join(values,
						", "))
				}
			},
			Do: func(_ context.Context, tx bun.IDB) error {
				return result(tx.NewUpdate().Model((*rDoc)(nil)).Set("qty = 6").Where("qty = 5"))
			},
		},
		{
			Line: "is not in its view",
			Set:  execs("CREATE VIEW r_view AS SELECT id, name, qty FROM r_items WHERE qty < 10"),
			Do: func(_ context.Context, tx bun.IDB) error {
				if tx.Dialect().Name() == dialect.SQLite {
					return errors.ErrUnsupported
				}
				return result(tx.NewUpdate().Model(&rView{ID: 1}).Set("qty = 20").WherePK())
			},
		},
		{
			Line: "for which `RETURNING` fails",
			Set: func(t *testing.T, b *bunEnv) {
				t.Helper()
				switch b.db.Dialect {
				case core.Postgres:
					execs("CREATE TABLE r_view (id BIGINT PRIMARY KEY, name TEXT, qty BIGINT)",
						"CREATE RULE r_rule AS ON UPDATE TO r_view DO INSTEAD UPDATE r_items SET qty = 4")(t, b)
				case core.SQLite:
					execs("CREATE VIRTUAL TABLE r_view USING fts5(id, name, qty)")(t, b)
				}
			},
			Do: func(_ context.Context, tx bun.IDB) error {
				if onMySQL(tx) == nil {
					return errors.ErrUnsupported
				}
				return result(tx.NewUpdate().Model(&rView{ID: 1}).Set("qty = 2").WherePK())
			},
		},
		{
			Line: "READ COMMITTED",
			Open: func(t *testing.T, db testdb.DB) *bunEnv {
				t.Helper()
				db.Wrap = sqlpause.Connector
				return openRefused(t, db)
			},
			Tx: func(ctx context.Context, b *bunEnv, fn func(tx bun.IDB) error) error {
				if b.db.Dialect != core.MySQL {
					return fn(b)
				}
				defer b.Plain.ExecContext(ctx, "DELETE FROM r_docs WHERE id = '9'")
				return b.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted},
					func(_ context.Context, tx bun.Tx) error { return fn(pausing{tx, b}) })
			},
			Do: func(ctx context.Context, tx bun.IDB) error {
				if err := onMySQL(tx); err != nil {
					return err
				}
				return tx.(pausing).late(ctx)
			},
		},
	}
	conditions := func(do func(tx bun.IDB, text string) bunQuery) func(context.Context, bun.IDB) error {
		return func(_ context.Context, tx bun.IDB) error {
			if err := onMySQL(tx); err != nil {
				return err
			}
			var errs []error
			for _, text := range refused.Conditions {
				errs = append(errs, result(do(tx, text)))
			}
			return refused.All(errs...)
		}
	}
	return append(all,
		bunRefusal{Line: "`RAND()`", Name: "update", Do: conditions(func(tx bun.IDB, text string) bunQuery {
			return tx.NewUpdate().Model((*rDoc)(nil)).Set("qty = 4").Where(text)
		})},
		bunRefusal{Line: "`RAND()`", Name: "delete", On: "MySQL", Do: conditions(func(tx bun.IDB,
			text string,
		) bunQuery {
			return tx.NewDelete().Model((*rDoc)(nil)).Where(text)
		})},
		bunRefusal{Line: "`RAND()`", Name: "several tables", Do: func(_ context.Context, tx bun.IDB) error {
			if err := onMySQL(tx); err != nil {
				return err
			}
			return result(tx.NewUpdate().Model((*rDoc)(nil)).Table("r_items").Set("r_doc.qty = 4").
				Where("r_items.name = r_doc.name"))
		}})
}

// pausing is a transaction at READ COMMITTED in which another row comes between the SELECT and the
// UPDATE.
type pausing struct {
	bun.Tx
	b *bunEnv
}

func (p pausing) late(ctx context.Context) error {
	if _, err := p.NewUpdate().Model((*rDoc)(nil)).Set("qty = 8").Where("qty = 8").Exec(ctx); err != nil {
		return err // the adapter has asked for the version
	}
	n := 0
	ctx = suite.ContextWithPause(ctx, func() (err error) {
		if n++; n == 2 {
			_, err = p.b.Plain.ExecContext(context.Background(),
				"INSERT INTO r_docs (id, name, qty) VALUES ('9', 'l', 9)")
		}
		return err
	})
	_, err := p.NewUpdate().Model((*rDoc)(nil)).Set("qty = 10").Where("qty = 9").Exec(ctx)
	return err
}

func bunRefusedInserts() []bunRefusal {
	upsert := func(tx bun.IDB, model any) error {
		if err := onMySQL(tx); err != nil {
			return err
		}
		return result(tx.NewInsert().Model(model).On("DUPLICATE KEY UPDATE").Set("qty = VALUES(qty)"))
	}
	items := func(_ context.Context, tx bun.IDB) error {
		return upsert(tx, &[]rItem{{Name: "aaaa", Qty: 8}, {Name: "new", Qty: 9}})
	}
	return []bunRefusal{
		{
			Line: "an upsert with a given key",
			Set:  execs("CREATE UNIQUE INDEX r_name ON r_docs (name)"),
			Do: func(_ context.Context, tx bun.IDB) error {
				return upsert(tx, &[]rDoc{{ID: "8", Name: "a", Qty: 8}, {ID: "9", Name: "z", Qty: 9}})
			},
		},
		{
			Line: "a batch upsert with generated keys", Name: "two unique keys",
			Set: execs("UPDATE r_items SET qty = id", "CREATE UNIQUE INDEX r_name ON r_items (name)",
				"CREATE UNIQUE INDEX r_qty ON r_items (qty)"),
			Do: items,
		},
		{
			Line: "a batch upsert with generated keys", Name: "a prefix",
			Set: func(t *testing.T, b *bunEnv) {
				t.Helper()
				if b.db.Dialect == core.MySQL {
					execs("CREATE UNIQUE INDEX r_name ON r_items (name(3))")(t, b)
				}
			},
			Do: items,
		},
		{
			Line: "in which the database generates keys", Set: execs(), Do: func(_ context.Context, tx bun.IDB) error {
				return result(tx.NewInsert().Ignore().
					Model(&[]rItem{{Name: "x"}, {ID: 100, Name: "y"}, {Name: "z"}, {ID: 1}}))
			},
		},
		{Line: "whose key the column rounds", Do: func(_ context.Context, tx bun.IDB) error {
			return result(tx.NewInsert().Model(&rMoment{At: time.Date(2026, 3, 4, 5, 6, 7, 600_000_000, time.UTC)}))
		}},
		{
			Line: "`clientFoundRows=true`",
			Open: func(t *testing.T, db testdb.DB) *bunEnv {
				t.Helper()
				return openRefused(t, refused.FoundRows(db))
			},
			Do: func(_ context.Context, tx bun.IDB) error {
				if err := onMySQL(tx); err != nil {
					return err
				}
				return result(tx.NewInsert().Model(&[]rDoc{
					{ID: "1"},
					{ID: "9"},
				}).On("DUPLICATE KEY UPDATE").Set("id = id"))
			},
		},
		{
			Line: "another transaction has just deleted",
			Tx: func(ctx context.Context, b *bunEnv, fn func(tx bun.IDB) error) error {
				defer b.Plain.ExecContext(ctx, "INSERT INTO r_docs (id, name, qty) VALUES ('1', 'a', 1)")
				return b.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
					if _, err := tx.ExecContext(ctx, "SELECT COUNT(*) FROM r_docs"); err != nil { // the snapshot
						return err
					}
					if b.db.Dialect != core.SQLite { // where one transaction writes at a time
						if _, err := b.Plain.ExecContext(ctx, "DELETE FROM r_docs WHERE id = '1'"); err != nil {
							return err
						}
					}
					return fn(tx)
				})
			},
			Do: func(_ context.Context, tx bun.IDB) error {
				return result(tx.NewInsert().Ignore().Model(&[]rDoc{{ID: "1"}, {ID: "9"}}))
			},
		},
		{
			Line: "whose key is an expression", Name: "an expression", On: "MySQL",
			Do: func(_ context.Context, tx bun.IDB) error {
				return result(tx.NewInsert().Model(&rDoc{Name: "n"}).Value("id", "TRIM('n')"))
			},
		},
		{
			Line: "whose key is an expression", Name: "a default", On: "MySQL",
			Do: func(_ context.Context, tx bun.IDB) error { return result(tx.NewInsert().Model(&rLog{Name: "n"})) },
		},
		{
			Line: "whose key is an expression", Name: "of a SELECT", On: "MySQL",
			Do: func(_ context.Context, tx bun.IDB) error {
				return result(tx.NewInsert().Model((*rDoc)(nil)).
					TableExpr("(SELECT '9' AS id, 'n' AS name, 9 AS qty) AS s"))
			},
		},
		{
			Line: "if several unique keys may have found that row",
			Set:  execs("CREATE UNIQUE INDEX r_name ON r_docs (name)", "CREATE UNIQUE INDEX r_qty ON r_docs (qty)"),
			Do: func(_ context.Context, tx bun.IDB) error {
				if err := onMySQL(tx); err != nil {
					return err
				}
				return result(tx.NewInsert().Model(&rDoc{ID: "9", Name: "b", Qty: 1}).On("DUPLICATE KEY UPDATE").
					Set("name = 'x'"))
			},
		},
	}
}
