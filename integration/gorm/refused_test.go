package gorm_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/refused"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlpause"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// rItem has a key that the database counts.
type rItem struct {
	ID            int64
	Name          string `gorm:"size:64"`
	Qty           int
	core.Recorder `gorm:"-" json:"-"`
}

func (rItem) TableName() string { return "r_items" }

// rDoc has a key that the program sets.
type rDoc struct {
	ID            string `gorm:"primaryKey;size:64"`
	Name          string `gorm:"size:64"`
	Qty           int
	core.Recorder `gorm:"-" json:"-"`
}

func (rDoc) TableName() string { return "r_docs" }

// rKeyless has no key.
type rKeyless struct {
	Name string `gorm:"size:64;unique"`
	Qty  int
}

func (rKeyless) TableName() string { return "r_keyless" }

// rTagged has a column that not every text can be read into.
type rTagged struct {
	ID   int64
	Tags []string `gorm:"serializer:json;size:64"`
}

func (rTagged) TableName() string { return "r_tagged" }

// rLog has a key that the database makes, and not by counting.
type rLog struct {
	ID   string `gorm:"primaryKey;size:64;default:(made)"`
	Name string `gorm:"size:64"`
}

func (rLog) TableName() string { return "r_logs" }

// rMoment has a key that the column rounds.
type rMoment struct {
	At time.Time `gorm:"primaryKey"`
	N  int
}

func (rMoment) TableName() string { return "r_moments" }

// rView is a row of a view.
type rView struct {
	ID   int64
	Name string
	Qty  int
}

func (rView) TableName() string { return "r_view" }

func openRefused(t *testing.T, db testdb.DB) *gormEnv {
	t.Helper()
	return openRefusedWith(t, db, gormOptions{})
}

func openRefusedWith(t *testing.T, db testdb.DB, o gormOptions) *gormEnv {
	t.Helper()
	g := openGORM(t, db, o)
	fixture.NoError(t, g.AutoMigrate(&rItem{}, &rDoc{}, &rKeyless{}, &rTagged{}))
	moment := map[core.Dialect]string{core.Postgres: "TIMESTAMPTZ", core.MySQL: "DATETIME", core.SQLite: "TIMESTAMP"}
	made := map[core.Dialect]string{
		core.Postgres: "gen_random_uuid()", core.MySQL: "(UUID())", core.SQLite: "(hex(randomblob(9)))",
	}[db.Dialect]
	for _, text := range []string{
		"CREATE TABLE r_moments (at " + moment[db.Dialect] + " PRIMARY KEY, n BIGINT)",
		"CREATE TABLE r_logs (id VARCHAR(64) PRIMARY KEY DEFAULT " + made + ", name VARCHAR(64))",
		"INSERT INTO r_items (id, name, qty) VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 3)",
		"INSERT INTO r_docs (id, name, qty) VALUES ('1', 'a', 1), ('2', 'b', 2)",
		"INSERT INTO r_keyless (name, qty) VALUES ('a', 1)",
		"INSERT INTO r_tagged (id, tags) VALUES (1, '[]')",
	} {
		fixture.MustExec(t, g.Plain, text)
	}
	if db.Dialect == core.Postgres {
		fixture.MustExec(t, g.Plain, "SELECT setval('r_items_id_seq', 3)")
	}
	tell(g, func(d *rDoc) string { return d.Name })
	tell(g, func(*rKeyless) string { return "keyless" })
	tell(g, func(m *rTagged) string { return strings.Join(m.Tags, " ") })
	tell(g, func(l *rLog) string { return l.Name })
	tell(g, func(*rMoment) string { return "moment" })
	tell(g, func(v *rView) string { return v.Name })
	return g
}

func recorded(i rItem) *rItem {
	i.Record(fixture.Happened{Name: "recorded"})
	return &i
}

func tellItems(_ *testing.T, g *gormEnv) { tell(g, func(i *rItem) string { return i.Name }) }

// execs returns a preparation by texts.
func execs(texts ...string) func(t *testing.T, g *gormEnv) {
	return func(t *testing.T, g *gormEnv) {
		t.Helper()
		tellItems(t, g)
		for _, text := range texts {
			fixture.MustExec(t, g.Plain, text)
		}
	}
}

// lacking is the error for a database that has no such statement.
func lacking(tx *gorm.DB, dialects ...string) error {
	if slices.Contains(dialects, tx.Name()) {
		return fmt.Errorf("%w: %s has no such statement", errors.ErrUnsupported, tx.Name())
	}
	return nil
}

type gormRefusal = refused.Case[*gormEnv, *gorm.DB]

// The table of what is refused says what happens.
func TestGORMRefused(t *testing.T) {
	t.Parallel()
	cases := slices.Concat(gormRefusedEverywhere(), gormRefusedChanges(), gormRefusedInserts())
	for name, in := range untracked {
		cases = append(cases, gormRefusal{
			Line: "a transaction that the plugin cannot track", Name: name,
			Open: func(t *testing.T, db testdb.DB) *gormEnv {
				return openRefusedWith(t, db, gormOptions{before: in.before})
			},
			Tx: func(_ context.Context, g *gormEnv, fn func(tx *gorm.DB) error) error {
				return in.run(t, g, fn)
			},
			Do: func(_ context.Context, tx *gorm.DB) error { return tx.Create(&rDoc{ID: "9"}).Error },
		})
	}
	refused.Test(t, refused.ORM[*gormEnv, *gorm.DB]{
		Name: "GORM", Open: openRefused,
		Tx: func(_ context.Context, g *gormEnv, fn func(tx *gorm.DB) error) error { return g.Transaction(fn) },
	}, cases)
}

func gormRefusedEverywhere() []gormRefusal {
	many := func(n int) func(t *testing.T, g *gormEnv) {
		return func(t *testing.T, g *gormEnv) {
			t.Helper()
			values := strings.TrimSuffix(strings.Repeat("('many', 5),", n), ",")
			execs("INSERT INTO r_items (name, qty) VALUES "+values)(t, g)
		}
	}
	return []gormRefusal{
		{Line: "it has no key, and several rows changed", Do: func(_ context.Context, tx *gorm.DB) error {
			return tx.Model(recorded(rItem{})).Where("qty = 1").Update("qty", 2).Error
		}},
		{Line: "only other rows changed (`OR`)", Do: func(_ context.Context, tx *gorm.DB) error {
			return tx.Model(recorded(rItem{ID: 1})).Where("name = 'b'").Or("name = 'x'").Update("qty", 2).Error
		}},
		{
			Line: "generated keys inserted only some rows",
			Set:  execs("CREATE UNIQUE INDEX r_name ON r_items (name)"),
			Do: func(_ context.Context, tx *gorm.DB) error {
				batch := []*rItem{recorded(rItem{Name: "a"}), recorded(rItem{Name: "new"})}
				return tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&batch).Error
			},
		},
		{
			Line: "that `clause.Returning{}` filled",
			Do: func(_ context.Context, tx *gorm.DB) error {
				items := []rItem{*recorded(rItem{ID: 1}), {ID: 2}}
				items[0].Recorder = core.Recorder{}
				items[0].Record(fixture.Happened{Name: "recorded"})
				return tx.Clauses(clause.Returning{}).Where("name = 'b'").Delete(&items).Error
			},
		},
		{Line: "cannot be read back into the model", Do: func(_ context.Context, tx *gorm.DB) error {
			return tx.Model(&rTagged{ID: 1}).Updates(map[string]any{"tags": []string{"z"}}).Error
		}},
		{
			Line: "more than 100,000 rows", Name: "update", After: "PostgreSQL, SQLite", Long: true, Set: many(100_001),
			Do: func(_ context.Context, tx *gorm.DB) error {
				return tx.Model(&rItem{}).Where("qty = 5").Update("qty", 6).Error
			},
		},
		{
			Line: "more than 100,000 rows", Name: "delete", After: "PostgreSQL, SQLite, MariaDB", Long: true,
			Set: many(100_001),
			Do: func(_ context.Context, tx *gorm.DB) error {
				return tx.Where("qty = 5").Delete(&rItem{}).Error
			},
		},
		{
			Line: "than a statement can have parameters", Long: true,
			Do: func(_ context.Context, tx *gorm.DB) error {
				items := make([]*rItem, 33_000)
				if tx.Name() == "sqlite" {
					items = items[:16_400]
				}
				for i := range items {
					items[i] = recorded(rItem{ID: int64(i + 1)})
				}
				return tx.Delete(&items).Error
			},
		},
	}
}

func gormRefusedChanges() []gormRefusal {
	all := []gormRefusal{
		{Line: "no primary key: updates", Name: "update", Do: func(_ context.Context, tx *gorm.DB) error {
			return tx.Model(&rKeyless{}).Where("qty = 1").Update("qty", 2).Error
		}},
		{Line: "no primary key: updates", Name: "upsert", Do: func(_ context.Context, tx *gorm.DB) error {
			return tx.Clauses(clause.OnConflict{
				Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"qty"}),
			}).Create(&rKeyless{Name: "a", Qty: 7}).Error
		}},
		{Line: "no primary key: updates", Name: "do nothing", Do: func(_ context.Context, tx *gorm.DB) error {
			return tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&rKeyless{Name: "b", Qty: 7}).Error
		}},
		{Line: "no primary key: other inserts", Name: "insert", Do: func(_ context.Context, tx *gorm.DB) error {
			return tx.Create(&rKeyless{Name: "b", Qty: 7}).Error
		}},
		{Line: "no primary key: other inserts", Name: "delete", Do: func(_ context.Context, tx *gorm.DB) error {
			return tx.Where("qty = 1").Delete(&rKeyless{}).Error
		}},
		{
			Line: "keys are no integers", Long: true,
			Set: func(t *testing.T, g *gormEnv) {
				t.Helper()
				for from := 0; from < 66_000; from += 1000 {
					var values []string
					for i := range 1000 {
						values = append(values, fmt.Sprintf("('k%d', 'many', 5)", from+i))
					}
					fixture.MustExec(t, g.Plain, "INSERT INTO r_docs (id, name, qty) VALUES "+strings.Join(values,
						", "))
				}
			},
			Do: func(_ context.Context, tx *gorm.DB) error {
				return tx.Model(&rDoc{}).Where("qty = 5").Update("qty", 6).Error
			},
		},
		{
			Line: "for which `RETURNING` fails",
			Set: func(t *testing.T, g *gormEnv) {
				t.Helper()
				switch g.db.Dialect {
				case core.Postgres:
					execs("CREATE TABLE r_view (id BIGINT PRIMARY KEY, name TEXT, qty BIGINT)",
						"CREATE RULE r_rule AS ON UPDATE TO r_view DO INSTEAD UPDATE r_items SET qty = 4")(t, g)
				case core.SQLite:
					execs("CREATE VIRTUAL TABLE r_view USING fts5(id, name, qty)")(t, g)
				}
			},
			Do: func(_ context.Context, tx *gorm.DB) error {
				if err := lacking(tx, "mysql"); err != nil {
					return err
				}
				return tx.Model(&rView{ID: 1}).Update("qty", 2).Error
			},
		},
		{
			Line: "READ COMMITTED",
			Open: func(t *testing.T, db testdb.DB) *gormEnv {
				t.Helper()
				db.Wrap = sqlpause.Connector
				return openRefusedWith(t, db, gormOptions{connector: true})
			},
			Tx: func(ctx context.Context, g *gormEnv, fn func(tx *gorm.DB) error) error {
				var once sync.Once
				statements := 0
				insert := func() (err error) {
					if statements++; statements == 2 { // the first one is the SELECT
						once.Do(func() {
							_, err = g.Plain.ExecContext(context.Background(),
								"INSERT INTO r_docs (id, name, qty) VALUES ('9', 'late', 9)")
						})
					}
					return err
				}
				defer g.Plain.ExecContext(context.Background(), "DELETE FROM r_docs WHERE id = '9'")
				return g.Transaction(func(tx *gorm.DB) error {
					if tx.Name() != "mysql" {
						return fn(tx)
					}
					// The adapter has asked for the version before.
					if err := tx.Model(&rDoc{}).Where("qty = 8").Update("qty", 8).Error; err != nil {
						return err
					}
					return fn(tx.WithContext(suite.ContextWithPause(ctx, insert)))
				}, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			},
			Do: func(_ context.Context, tx *gorm.DB) error {
				if err := lacking(tx, "sqlite", "postgres"); err != nil {
					return err
				}
				return tx.Model(&rDoc{}).Where("qty = 9").Update("qty", 10).Error
			},
		},
		{
			Line: "is not in its view",
			Set:  execs("CREATE VIEW r_view AS SELECT id, name, qty FROM r_items WHERE qty < 10"),
			Do: func(_ context.Context, tx *gorm.DB) error {
				if err := lacking(tx, "sqlite"); err != nil {
					return err
				}
				return tx.Model(&rView{ID: 1}).Update("qty", 20).Error
			},
		},
	}
	conditions := func(do func(tx *gorm.DB) *gorm.DB) func(context.Context, *gorm.DB) error {
		return func(_ context.Context, tx *gorm.DB) error {
			if err := lacking(tx, "sqlite", "postgres"); err != nil {
				return err
			}
			var errs []error
			for _, text := range refused.Conditions {
				errs = append(errs, do(tx.Where(text)).Error)
			}
			return refused.All(errs...)
		}
	}
	return append(all,
		gormRefusal{Line: "`RAND()`", Name: "update", Do: conditions(func(tx *gorm.DB) *gorm.DB {
			return tx.Model(&rDoc{}).Update("qty", 4)
		})},
		gormRefusal{Line: "`RAND()`", Name: "delete", On: "MySQL", Do: conditions(func(tx *gorm.DB) *gorm.DB {
			return tx.Delete(&rDoc{})
		})},
		gormRefusal{Line: "`RAND()`", Name: "several tables", Do: func(_ context.Context, tx *gorm.DB) error {
			if err := lacking(tx, "sqlite", "postgres"); err != nil {
				return err
			}
			return tx.Table("r_docs JOIN r_items ON r_items.name = r_docs.name").Model(&rDoc{}).
				Where("r_items.id = 1").Update("r_docs.qty", 4).Error
		}})
}

func gormRefusedInserts() []gormRefusal {
	byKey := clause.OnConflict{
		Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"qty"}),
	}
	itemUpsert := func(tx *gorm.DB) error {
		if err := lacking(tx, "sqlite", "postgres"); err != nil {
			return err
		}
		return tx.Clauses(byKey).Create(&[]rItem{{Name: "aaaa", Qty: 8}, {Name: "new", Qty: 9}}).Error
	}
	return []gormRefusal{
		{
			Line: "an upsert with a given key",
			Set:  execs("CREATE UNIQUE INDEX r_name ON r_docs (name)"),
			Do: func(_ context.Context, tx *gorm.DB) error {
				if err := lacking(tx, "sqlite", "postgres"); err != nil {
					return err
				}
				return tx.Clauses(byKey).Create(&[]rDoc{{ID: "8", Name: "a", Qty: 8}, {
					ID: "9", Name: "z",
					Qty: 9,
				}}).Error
			},
		},
		{
			Line: "a batch upsert with generated keys", Name: "two unique keys",
			Set: func(t *testing.T, g *gormEnv) {
				t.Helper()
				execs("UPDATE r_items SET qty = id", "CREATE UNIQUE INDEX r_name ON r_items (name)",
					"CREATE UNIQUE INDEX r_qty ON r_items (qty)")(t, g)
			},
			Do: func(_ context.Context, tx *gorm.DB) error { return itemUpsert(tx) },
		},
		{
			Line: "a batch upsert with generated keys", Name: "a prefix",
			Set: func(t *testing.T, g *gormEnv) {
				t.Helper()
				if g.db.Dialect == core.MySQL {
					execs("CREATE UNIQUE INDEX r_name ON r_items (name(3))")(t, g)
				}
			},
			Do: func(_ context.Context, tx *gorm.DB) error { return itemUpsert(tx) },
		},
		{
			Line: "a batch upsert with generated keys", Name: "an expression",
			Set: func(t *testing.T, g *gormEnv) {
				t.Helper()
				if g.db.Name == "mysql" {
					execs("CREATE UNIQUE INDEX r_name ON r_items ((lower(name)))")(t, g)
				}
			},
			Do: func(_ context.Context, tx *gorm.DB) error { return itemUpsert(tx) },
		},
		{
			Line: "in which the database generates keys", Set: tellItems, Do: func(_ context.Context,
				tx *gorm.DB,
			) error {
				batch := []*rItem{{Name: "x"}, {ID: 100, Name: "y"}, {Name: "z"}, {ID: 1}}
				return tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&batch).Error
			},
		},
		{Line: "whose key the column rounds", Do: func(_ context.Context, tx *gorm.DB) error {
			return tx.Create(&rMoment{At: time.Date(2026, 3, 4, 5, 6, 7, 600_000_000, time.UTC)}).Error
		}},
		{
			Line: "`clientFoundRows=true`",
			Open: func(t *testing.T, db testdb.DB) *gormEnv {
				t.Helper()
				return openRefused(t, refused.FoundRows(db))
			},
			Do: func(_ context.Context, tx *gorm.DB) error {
				return tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&[]rDoc{{ID: "1"}, {ID: "9"}}).Error
			},
		},
		{
			Line: "another transaction has just deleted",
			Tx: func(ctx context.Context, g *gormEnv, fn func(tx *gorm.DB) error) error {
				defer g.Plain.ExecContext(ctx, "INSERT INTO r_docs (id, name, qty) VALUES ('1', 'a', 1)")
				return g.Transaction(func(tx *gorm.DB) error {
					if err := tx.Find(&[]rDoc{}).Error; err != nil { // the snapshot
						return err
					}
					if g.db.Dialect != core.SQLite { // where one transaction writes at a time
						if _, err := g.Plain.ExecContext(ctx, "DELETE FROM r_docs WHERE id = '1'"); err != nil {
							return err
						}
					}
					return fn(tx)
				})
			},
			Do: func(_ context.Context, tx *gorm.DB) error {
				return tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&[]rDoc{{ID: "1"}, {ID: "9"}}).Error
			},
		},
		{
			Line: "whose key is an expression", Name: "an expression", On: "MySQL",
			Do: func(_ context.Context, tx *gorm.DB) error {
				return tx.Model(&rDoc{}).Create(map[string]any{
					"id": gorm.Expr("TRIM('n')"), "name": "n",
					"qty": 1,
				}).Error
			},
		},
		{
			Line: "whose key is an expression", Name: "an upsert",
			Do: func(_ context.Context, tx *gorm.DB) error {
				return tx.Model(&rDoc{}).Clauses(clause.OnConflict{DoNothing: true}).Create(map[string]any{
					"id": gorm.Expr("TRIM('n')"), "name": "n", "qty": 1,
				}).Error
			},
		},
		{
			Line: "whose key is an expression", Name: "a default", On: "MySQL",
			Do: func(_ context.Context, tx *gorm.DB) error { return tx.Create(&rLog{Name: "n"}).Error },
		},
		{
			Line: "if several unique keys may have found that row",
			Set:  execs("CREATE UNIQUE INDEX r_name ON r_docs (name)", "CREATE UNIQUE INDEX r_qty ON r_docs (qty)"),
			Do: func(_ context.Context, tx *gorm.DB) error {
				if err := lacking(tx, "sqlite", "postgres"); err != nil {
					return err
				}
				return tx.Clauses(clause.OnConflict{
					Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.Assignments(map[string]any{"name": "x"}),
				}).Create(&rDoc{ID: "9", Name: "b", Qty: 1}).Error
			},
		},
	}
}
