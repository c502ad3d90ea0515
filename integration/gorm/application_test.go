package gorm_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// The models of an ordinary application. Some columns have the names of reserved words.
type (
	appUser struct {
		gorm.Model
		Name   string   `gorm:"uniqueIndex;size:32"`
		Group  string   `gorm:"size:16;default:basic"`
		Quota  int64    `gorm:"default:0"`
		Tokens []appKey `gorm:"foreignKey:UserID"`
		Roles  []appRole
	}
	appKey struct {
		ID     int64
		UserID uint
		Key    string `gorm:"uniqueIndex;size:32"`
		Left   int64
	}
	appRole struct {
		AppUserID uint   `gorm:"primaryKey;autoIncrement:false"`
		Name      string `gorm:"primaryKey;size:32"`
		Rank      int
	}
	appOption struct {
		Key   string `gorm:"primaryKey;size:32"`
		Value string
	}
	appChannel struct {
		ID      int64
		Name    string
		Weight  *uint
		Balance float64
		Status  int
		Tags    []appTag `gorm:"many2many:app_channel_tags"`
	}
	appTag struct {
		ID   int64
		Name string `gorm:"uniqueIndex;size:32"`
	}
	appLog struct {
		ID     int64
		UserID uint
		Text   string
	}
)

// appTables are the tables of the models. Each row is compared by its key and by one more column.
var appTables = map[string]struct{ key, value string }{
	"app_users":    {"id", "quota"},
	"app_keys":     {"id", "user_id"},
	"app_roles":    {"name", "rank"},
	"app_options":  {"key", "value"},
	"app_channels": {"id", "status"},
	"app_tags":     {"id", "name"},
	"app_logs":     {"id", "text"},
}

// audit makes triggers that write each change of a row into the table audit.
func audit(t *testing.T, g *gormEnv, table, key, value string) {
	t.Helper()
	q := func(name string) string {
		var b strings.Builder
		g.QuoteTo(&b, name)
		return b.String()
	}
	table, key, value = q(table), q(key), q(value)
	for _, op := range []string{"INSERT", "UPDATE", "DELETE"} {
		row := "NEW"
		if op == "DELETE" {
			row = "OLD"
		}
		insert := fmt.Sprintf("INSERT INTO audit (tab, op, id, val) VALUES ('%s', '%s', %s.%s, %[3]s.%[5]s)",
			strings.Trim(table, "\"`"), op, row, key, value)
		name := q("audit_" + strings.Trim(table, "\"`") + "_" + strings.ToLower(op))
		head := fmt.Sprintf("CREATE TRIGGER %s AFTER %s ON %s FOR EACH ROW ", name, op, table)
		switch g.db.Dialect {
		case core.Postgres:
			fixture.MustExec(t, g.Plain, "CREATE FUNCTION "+name+"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "+
				insert+"; RETURN NULL; END $$")
			fixture.MustExec(t, g.Plain, head+"EXECUTE FUNCTION "+name+"()")
		case core.SQLite:
			fixture.MustExec(t, g.Plain, head+"BEGIN "+insert+"; END")
		default:
			fixture.MustExec(t, g.Plain, head+insert)
		}
	}
}

// auditAll makes the tables and their triggers, and functions that write the same as the triggers.
func auditAll(t *testing.T, g *gormEnv) {
	t.Helper()
	fixture.NoError(t, g.AutoMigrate(
		&appUser{}, &appKey{}, &appRole{}, &appOption{}, &appTag{}, &appChannel{}, &appLog{}))
	fixture.MustExec(t, g.Plain,
		"CREATE TABLE audit (tab VARCHAR(32), op VARCHAR(8), id VARCHAR(64), val VARCHAR(64))"+fixture.Engine(g.db))
	for table, of := range appTables {
		audit(t, g, table, of.key, of.value)
	}
	auditModel[appUser](t, g)
	auditModel[appKey](t, g)
	auditModel[appRole](t, g)
	auditModel[appOption](t, g)
	auditModel[appChannel](t, g)
	auditModel[appTag](t, g)
	auditModel[appLog](t, g)
}

func auditModel[T any](t *testing.T, g *gormEnv) {
	t.Helper()
	stmt := gorm.Statement{DB: g.DB}
	fixture.NoError(t, stmt.Parse(new(T)))
	of := appTables[stmt.Table]
	gormoutbox.OnContext(g.ob, func(ctx context.Context, op core.Op, m *T) ([]core.Event, error) {
		return []core.Event{{Type: strings.Join([]string{
			stmt.Table, op.String(), column(ctx, stmt.Schema, of.key, m), column(ctx, stmt.Schema, of.value, m),
		}, " ")}}, nil
	})
}

// column returns the text of a column of a model.
func column(ctx context.Context, s *schema.Schema, name string, model any) string {
	v, _ := s.FieldsByDBName[name].ValueOf(ctx, reflect.ValueOf(model).Elem())
	return fmt.Sprint(v)
}

// application is what an ordinary application does, with functions of the kinds that are found
// there.
var application = []struct {
	name string
	run  func(db *gorm.DB) error
}{
	{"register", func(db *gorm.DB) error { return db.Create(&appUser{Name: "ada", Quota: 10}).Error }},
	{"register, with keys and roles", func(db *gorm.DB) error {
		return db.Create(&appUser{
			Name: "bob", Quota: 5, Tokens: []appKey{{Key: "k1", Left: 1}, {Key: "k2", Left: 2}},
			Roles: []appRole{{Name: "reader"}, {Name: "writer", Rank: 1}},
		}).Error
	}},
	{"register many", func(db *gorm.DB) error {
		return db.CreateInBatches([]*appUser{{Name: "cyd"}, {Name: "dan", Quota: 3}, {Name: "eve"}}, 2).Error
	}},
	{"save a loaded user", func(db *gorm.DB) error {
		var u appUser
		if err := db.Preload("Tokens").First(&u, "name = ?", "bob").Error; err != nil {
			return err
		}
		u.Quota = 6
		return db.Save(&u).Error
	}},
	{"save of what is not there", func(db *gorm.DB) error {
		return db.Save(&appChannel{ID: 77, Name: "saved", Status: 1}).Error
	}},
	{"increase the quota", func(db *gorm.DB) error {
		return db.Model(&appUser{}).Where("id = ?", 1).Update("quota", gorm.Expr("quota + ?", 5)).Error
	}},
	{"use the quota, if there is enough", func(db *gorm.DB) error {
		return db.Model(&appUser{}).Where("id = ? AND quota >= ?", 1, 1000).
			Updates(map[string]any{"quota": gorm.Expr("quota - ?", 1000)}).Error
	}},
	{"change the group", func(db *gorm.DB) error {
		return db.Model(&appUser{}).Where(map[string]any{"group": "basic"}).Update("group", "gold").Error
	}},
	{"change a profile", func(db *gorm.DB) error {
		return db.Model(&appUser{Model: gorm.Model{ID: 2}}).Updates(appUser{Name: "bobby"}).Error
	}},
	{"selected columns, zero too", func(db *gorm.DB) error {
		return db.Model(&appUser{Model: gorm.Model{ID: 2}}).Select("name", "quota").Updates(appUser{Name: "bob"}).Error
	}},
	{"omitted column", func(db *gorm.DB) error {
		return db.Omit("name").Updates(&appUser{Model: gorm.Model{ID: 3}, Name: "no", Quota: 8}).Error
	}},
	{"update columns", func(db *gorm.DB) error {
		return db.Model(&appKey{ID: 1}).UpdateColumns(map[string]any{"user_id": 1}).Error
	}},
	{"a subquery", func(db *gorm.DB) error {
		rich := db.Model(&appUser{}).Select("id").Where("quota > ?", 5)
		return db.Model(&appKey{}).Where("user_id IN (?)", rich).Update("left", 0).Error
	}},
	{"log", func(db *gorm.DB) error { return db.Create(&appLog{UserID: 1, Text: "login"}).Error }},
	{"log many", func(db *gorm.DB) error {
		return db.Create(&[]appLog{{UserID: 1, Text: "a"}, {UserID: 2, Text: "b"}, {UserID: 2, Text: "c"}}).Error
	}},
	{"delete old logs", func(db *gorm.DB) error { return db.Where("id < ?", 2).Delete(&appLog{}).Error }},
	{"delete in parts", func(db *gorm.DB) error {
		var logs []appLog
		return db.Where("user_id = ?", 2).FindInBatches(&logs, 1, func(tx *gorm.DB, _ int) error {
			return tx.Delete(&logs).Error
		}).Error
	}},
	{"an option, first time", func(db *gorm.DB) error {
		o := appOption{Key: "theme"}
		if err := db.FirstOrCreate(&o, appOption{Key: "theme"}).Error; err != nil {
			return err
		}
		o.Value = "dark"
		return db.Save(&o).Error
	}},
	{"an option, again", func(db *gorm.DB) error {
		return db.Clauses(clause.OnConflict{UpdateAll: true}).Create(&appOption{Key: "theme", Value: "light"}).Error
	}},
	{"options", func(db *gorm.DB) error {
		return db.Save(&[]appOption{{Key: "theme", Value: "blue"}, {Key: "lang", Value: "en"}}).Error
	}},
	{"assign", func(db *gorm.DB) error {
		return db.Where(appOption{Key: "lang"}).Assign(appOption{Value: "de"}).FirstOrCreate(&appOption{}).Error
	}},
	{"a tag that may be there", func(db *gorm.DB) error {
		skip := clause.OnConflict{DoNothing: true}
		return errors.Join(db.Clauses(skip).Create(&appTag{Name: "fast"}).Error,
			db.Clauses(skip).Create(&appTag{Name: "fast"}).Error)
	}},
	{"a channel with tags", func(db *gorm.DB) error {
		return db.Create(&appChannel{Name: "c1", Tags: []appTag{{Name: "cheap"}, {Name: "new"}}}).Error
	}},
	{"replace tags", func(db *gorm.DB) error {
		var c appChannel
		if err := db.First(&c, "name = ?", "c1").Error; err != nil {
			return err
		}
		return db.Model(&c).Association("Tags").Replace([]appTag{{Name: "other"}})
	}},
	{"status and log, without a transaction", func(db *gorm.DB) error {
		return errors.Join(db.Model(&appChannel{}).Where("name = ?", "c1").Update("status", 2).Error,
			db.Create(&appLog{UserID: 1, Text: "status"}).Error)
	}},
	{"the same status", func(db *gorm.DB) error {
		return db.Model(&appChannel{}).Where("status = ?", 2).Update("status", 2).Error
	}},
	{"two conditions with OR", func(db *gorm.DB) error {
		return db.Model(&appChannel{}).Where("status = ?", 9).Or("name = ?", "saved").Update("status", 3).Error
	}},
	{"raw SQL beside", func(db *gorm.DB) error {
		return db.Transaction(func(tx *gorm.DB) error {
			if err := tx.Exec("UPDATE app_channels SET balance = 1 WHERE 1 = 0").Error; err != nil {
				return err
			}
			var n int64
			if err := tx.Raw("SELECT COUNT(*) FROM app_users").Scan(&n).Error; err != nil {
				return err
			}
			return tx.Create(&appLog{Text: fmt.Sprint(n)}).Error
		})
	}},
	{"generics", func(db *gorm.DB) error {
		ctx := db.Statement.Context
		if err := gorm.G[appLog](db).Create(ctx, &appLog{Text: "generic"}); err != nil {
			return err
		}
		_, err := gorm.G[appLog](db).Where("text = ?", "generic").Update(ctx, "text", "generics")
		return err
	}},
	{"a transaction that is rolled back", func(db *gorm.DB) error {
		err := db.Transaction(func(tx *gorm.DB) error {
			return errors.Join(tx.Create(&appLog{Text: "never"}).Error, fixture.ErrNoStock)
		})
		if !errors.Is(err, fixture.ErrNoStock) {
			return fmt.Errorf("the transaction: %w", err)
		}
		return nil
	}},
	{"remove a user", func(db *gorm.DB) error { return db.Delete(&appUser{}, 4).Error }},
	{"restore", func(db *gorm.DB) error {
		return db.Unscoped().Model(&appUser{}).Where("id = ?", 4).Update("deleted_at", nil).Error
	}},
	{"remove for ever, with roles and keys", func(db *gorm.DB) error {
		return db.Transaction(func(tx *gorm.DB) error {
			u := appUser{Model: gorm.Model{ID: 2}}
			return errors.Join(tx.Where("app_user_id = ?", u.ID).Delete(&appRole{}).Error,
				tx.Where("user_id = ?", u.ID).Delete(&appKey{}).Error, tx.Unscoped().Delete(&u).Error)
		})
	}},
	{"remove loaded rows", func(db *gorm.DB) error {
		var keys []appKey
		if err := db.Find(&keys).Error; err != nil || len(keys) == 0 {
			return fmt.Errorf("%d keys: %w", len(keys), err)
		}
		return db.Delete(&keys).Error
	}},
	{"remove with selected children", func(db *gorm.DB) error {
		u := appUser{Name: "fay", Tokens: []appKey{{Key: "k9"}}}
		if err := db.Create(&u).Error; err != nil {
			return err
		}
		return db.Select("Tokens").Delete(&u).Error
	}},
}

// An ordinary application works with the plugin as without, and each change of a row is told with
// the stored values.
func TestGORMApplication(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		auditAll(t, g)
		for _, f := range application {
			g.forget(t)
			fixture.MustExec(t, g.Plain, "DELETE FROM audit")
			if err := f.run(g.Session(&gorm.Session{NewDB: true})); err != nil {
				t.Errorf("%s: %v", f.name, err)
				continue
			}
			compareAudit(t, f.name, g.Column(t, "event_type"), audited(t, g))
		}
	}, func(o *gormOptions) { o.gorm.SkipDefaultTransaction = true })
}

// audited returns what the triggers wrote.
func audited(t *testing.T, g *gormEnv) []string {
	t.Helper()
	changes := fixture.Query(t, g.Plain, "SELECT tab, op, id, val FROM audit", func(rows *sql.Rows) (string, error) {
		var c [4]string
		err := rows.Scan(&c[0], &c[1], &c[2], &c[3])
		return strings.Join(c[:], " "), err
	})
	if g.db.Dialect == core.MySQL { // where DO NOTHING is an update of a column to itself
		changes = slices.DeleteFunc(changes, func(c string) bool { return strings.HasPrefix(c, "app_tags UPDATE") })
	}
	return changes
}

// compareAudit compares events with what triggers wrote. A trigger does not know an upsert, nor that
// an update is a soft delete.
func compareAudit(t *testing.T, name string, events, changes []string) {
	t.Helper()
	ops := map[string][]string{
		"create": {"INSERT"}, "update": {"UPDATE"}, "upsert": {"INSERT", "UPDATE"}, "delete": {"DELETE", "UPDATE"},
	}
	left := slices.Clone(changes)
	for _, e := range events {
		words := strings.SplitN(e, " ", 3)
		i := slices.IndexFunc(left, func(c string) bool {
			is := strings.SplitN(c, " ", 3)
			return is[0] == words[0] && is[2] == words[2] && slices.Contains(ops[words[1]], is[1])
		})
		if i < 0 {
			t.Errorf("%s: event %q without such a change: %q", name, e, changes)
			return
		}
		left = slices.Delete(left, i, i+1)
	}
	fixture.Check(t, len(left) == 0, "%s: no events of %q, only %q", name, left, events)
}
