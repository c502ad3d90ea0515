package truth_test

import (
	"context"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// TestGORM compares the events of GORM's plugin with what triggers have seen.
func TestGORM(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testdb.DB) { runPrograms(t, gormORM(), db) })
}

// The models. Their JSON has the names of the columns.
type (
	gParent struct {
		ID        int64     `json:"id"`
		Name      string    `json:"name"`
		Qty       int64     `json:"qty"`
		Tenant    int64     `json:"tenant"`
		UpdatedAt int64     `json:"updated_at"`
		Children  []*gChild `json:"-" gorm:"foreignKey:ParentID"`
		Tags      []*gTag   `json:"-" gorm:"many2many:parents_tags;joinForeignKey:ParentID;joinReferences:TagID"`
		Part      *gPart    `json:"-" gorm:"foreignKey:ParentID"`
	}
	gChild struct {
		ID       string `json:"id" gorm:"primaryKey"`
		Name     string `json:"name"`
		Qty      int64  `json:"qty"`
		Tenant   int64  `json:"tenant"`
		ParentID *int64 `json:"parent_id"`
	}
	gPair struct {
		Shop   string `json:"shop" gorm:"primaryKey"`
		Code   string `json:"code" gorm:"primaryKey"`
		Name   string `json:"name"`
		Qty    int64  `json:"qty"`
		Tenant int64  `json:"tenant"`
	}
	gSoft struct {
		ID        int64          `json:"id"`
		Name      string         `json:"name"`
		Qty       int64          `json:"qty"`
		Tenant    int64          `json:"tenant"`
		DeletedAt gorm.DeletedAt `json:"deleted_at"`
	}
	gRecord struct {
		ID            int64  `json:"id"`
		Name          string `json:"name"`
		Qty           int64  `json:"qty"`
		Tenant        int64  `json:"tenant"`
		core.Recorder `json:"-" gorm:"-"`
	}
	gTag struct {
		ID   int64  `json:"id"`
		Name string `json:"name"`
		Qty  int64  `json:"qty"`
	}
	gPart struct {
		ID       int64  `json:"id"`
		Name     string `json:"name"`
		Qty      int64  `json:"qty"`
		ParentID *int64 `json:"parent_id"`
	}
	gLock struct {
		ID      int64   `json:"id"`
		Name    string  `json:"name"`
		Qty     int64   `json:"qty"`
		Version version `json:"version"`
	}
	gFlag struct {
		ID      int64   `json:"id"`
		Name    string  `json:"name"`
		Qty     int64   `json:"qty"`
		Deleted flagged `json:"deleted"`
	}
	gHook struct {
		ID   int64  `json:"id"`
		Name string `json:"name"`
		Qty  int64  `json:"qty"`
	}
)

func (gParent) TableName() string { return "parents" }
func (gChild) TableName() string  { return "children" }
func (gPair) TableName() string   { return "pairs" }
func (gSoft) TableName() string   { return "softs" }
func (gRecord) TableName() string { return "records" }
func (gTag) TableName() string    { return "tags" }
func (gPart) TableName() string   { return "parts" }
func (gLock) TableName() string   { return "locks" }
func (gFlag) TableName() string   { return "flags" }
func (gHook) TableName() string   { return "hooks" }

// AfterCreate writes to its own row.
func (h *gHook) AfterCreate(tx *gorm.DB) error { return tx.Model(h).Update("qty", h.Qty+10).Error }

// version is an optimistic lock that works as that of gorm.io/plugin/optimisticlock: its condition
// comes with the statement's clauses, after every callback before gorm:update.
type version int64

// UpdateClauses implements schema.UpdateClausesInterface.
func (version) UpdateClauses(f *schema.Field) []clause.Interface {
	return []clause.Interface{modifier(func(stmt *gorm.Statement) {
		if v, zero := f.ValueOf(stmt.Context, stmt.ReflectValue); !zero {
			stmt.AddClause(clause.Where{Exprs: []clause.Expression{clause.Eq{Column: f.DBName, Value: v}}})
		}
		stmt.SetColumn(f.DBName, gorm.Expr(f.DBName+" + 1"), true)
	})}
}

// flagged is a soft delete that works as the flag of gorm.io/plugin/soft_delete.
type flagged int64

// QueryClauses implements schema.QueryClausesInterface.
func (flagged) QueryClauses(f *schema.Field) []clause.Interface {
	return []clause.Interface{clause.Where{Exprs: []clause.Expression{clause.Eq{Column: f.DBName, Value: 0}}}}
}

// UpdateClauses implements schema.UpdateClausesInterface.
func (flagged) UpdateClauses(f *schema.Field) []clause.Interface {
	return []clause.Interface{modifier(func(stmt *gorm.Statement) {
		if stmt.SQL.Len() == 0 && !stmt.Unscoped {
			stmt.AddClause(clause.Where{Exprs: []clause.Expression{clause.Eq{Column: f.DBName, Value: 0}}})
		}
	})}
}

// DeleteClauses implements schema.DeleteClausesInterface.
func (flagged) DeleteClauses(f *schema.Field) []clause.Interface {
	return []clause.Interface{modifier(func(stmt *gorm.Statement) {
		if stmt.SQL.Len() > 0 || stmt.Unscoped {
			return
		}
		stmt.AddClause(clause.Set{{Column: clause.Column{Name: f.DBName}, Value: 1}})
		_, keys := schema.GetIdentityFieldValuesMap(stmt.Context, stmt.ReflectValue, stmt.Schema.PrimaryFields)
		if column, values := schema.ToQueryValues(stmt.Table, stmt.Schema.PrimaryFieldDBNames, keys); len(values) > 0 {
			stmt.AddClause(clause.Where{Exprs: []clause.Expression{clause.IN{Column: column, Values: values}}})
		}
		stmt.AddClause(clause.Where{Exprs: []clause.Expression{clause.Eq{Column: f.DBName, Value: 0}}})
		stmt.AddClauseIfNotExists(clause.Update{})
		stmt.Build(stmt.DB.Callback().Update().Clauses...)
	})}
}

// modifier is a clause of a schema.
type modifier func(*gorm.Statement)

func (modifier) Name() string                        { return "" }
func (modifier) Build(clause.Builder)                {}
func (modifier) MergeClause(*clause.Clause)          {}
func (m modifier) ModifyStatement(s *gorm.Statement) { m(s) }

// tenancy is a plugin that lets statements see the rows of tenant 1 alone.
type tenancy struct{}

func (tenancy) Name() string { return "tenancy" }

func (tenancy) Initialize(db *gorm.DB) error {
	restrict := func(db *gorm.DB) {
		if db.Statement.Schema != nil && db.Statement.Schema.LookUpField("Tenant") != nil {
			db.Statement.AddClause(clause.Where{Exprs: []clause.Expression{
				clause.Eq{Column: clause.Column{Table: clause.CurrentTable, Name: "tenant"}, Value: 1},
			}})
		}
	}
	assign := func(db *gorm.DB) {
		if db.Statement.Schema != nil && db.Statement.Schema.LookUpField("Tenant") != nil {
			db.Statement.SetColumn("Tenant", 1, true)
		}
	}
	cb := db.Callback()
	for _, err := range []error{
		cb.Create().Before("gorm:create").Register("tenancy", assign),
		cb.Query().Before("gorm:query").Register("tenancy", restrict),
		cb.Update().Before("gorm:update").Register("tenancy", restrict),
		cb.Delete().Before("gorm:delete").Register("tenancy", restrict),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

type gormVariant struct {
	name          string
	config        gorm.Config
	before, after bool // tenancy, relative to the outbox
}

var gormVariants = []gormVariant{
	{name: "GORM"},
	{name: "GORM with PrepareStmt", config: gorm.Config{PrepareStmt: true}},
	{name: "GORM with a plugin for tenants before the outbox", before: true},
	{
		name:   "GORM with PrepareStmt and a plugin for tenants after the outbox",
		config: gorm.Config{PrepareStmt: true}, after: true,
	},
	{name: "GORM with SkipDefaultTransaction and TranslateError", config: gorm.Config{
		SkipDefaultTransaction: true, TranslateError: true,
	}},
}

func gormORM() orm[*gorm.DB] {
	o := orm[*gorm.DB]{
		name: "GORM", kinds: gormKinds(), open: openGORM,
		transaction: func(h *gorm.DB, fn func(*gorm.DB) error) error { return h.Transaction(fn) },
		with: func(ctx context.Context, h *gorm.DB, bare bool) *gorm.DB {
			return h.Session(&gorm.Session{Context: ctx, SkipDefaultTransaction: bare})
		},
		conn: gormConn,
	}
	for _, v := range gormVariants {
		o.variants = append(o.variants, v.name)
	}
	return o
}

// openGORM opens a database once for each variant, all on one pool.
func openGORM(t *testing.T, db testdb.DB, outbox bool, n *notes) (all []*gorm.DB) {
	t.Helper()
	pool := db.Open(t)
	var ob *core.Outbox
	if outbox {
		ob = fixture.NewOutbox(t, db, core.Config{})
	}
	for _, v := range gormVariants {
		cfg := v.config
		cfg.Logger = logger.Discard
		cfg.NowFunc = func() time.Time { return n.now }
		g, err := gorm.Open(adapters.GORMDialector(db, pool), &cfg)
		fixture.NoError(t, err)
		if v.before {
			fixture.NoError(t, g.Use(tenancy{}))
		}
		if outbox {
			plugin := gormoutbox.Plugin(gormoutbox.Config{Outbox: ob})
			fixture.NoError(t, g.Use(plugin))
			tellGORM[gParent](plugin)
			tellGORM[gChild](plugin)
			tellGORM[gPair](plugin)
			tellGORM[gSoft](plugin)
			tellGORM[gRecord](plugin)
			tellGORM[gTag](plugin)
			tellGORM[gPart](plugin)
			tellGORM[gLock](plugin)
			tellGORM[gFlag](plugin)
			tellGORM[gHook](plugin)
		}
		if v.after {
			fixture.NoError(t, g.Use(tenancy{}))
		}
		noteGORM(t, g, n)
		if outbox {
			// The first transaction asks which database it is in. If the context of its statement has
			// ended, the error has a text of its own.
			fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
				return gormoutbox.Publish(t.Context(), tx, fixture.Event("first"))
			}))
		}
		all = append(all, g)
	}
	return all
}

// tellGORM has each row told with its columns.
func tellGORM[T any, P interface {
	*T
	TableName() string
}](ob *gormoutbox.Outbox) {
	gormoutbox.OnContext(ob, func(_ context.Context, op core.Op, m *T) ([]core.Event, error) {
		return []core.Event{{Type: P(m).TableName() + "." + op.String(), Data: m}}, nil
	})
}

// gormConn returns the connection without its cache of statements. What is prepared and executed
// outside of GORM's callbacks is nothing that the plugin can follow.
func gormConn(db *gorm.DB) querier {
	switch conn := db.Statement.ConnPool.(type) {
	case *gorm.PreparedStmtTX:
		return conn.Tx
	case *gorm.PreparedStmtDB:
		return conn.ConnPool
	default:
		return conn
	}
}

// noteGORM notes what each statement wrote, right after it.
func noteGORM(t *testing.T, g *gorm.DB, n *notes) {
	t.Helper()
	note := func(op core.Op) func(*gorm.DB) {
		return func(db *gorm.DB) {
			stmt := db.Statement
			if stmt.SQL.Len() == 0 {
				return
			}
			conflict, upsert := stmt.Clauses["ON CONFLICT"].Expression.(clause.OnConflict)
			nothing := conflict.DoNothing
			if sets := conflict.DoUpdates; len(sets) == 1 && sets[0].Value == any(sets[0].Column) {
				nothing = true // the text that MariaDB and MySQL have for it
			}
			did := op
			if upsert && op == core.OpCreate && !nothing {
				did = core.OpUpsert
			}
			n.wrote(stmt.Context, gormConn(db), did, nothing)
		}
	}
	cb := g.Callback()
	fixture.NoError(t, cb.Create().After("gorm:create").Before("gorm:save_after_associations").
		Register("truth", note(core.OpCreate)))
	fixture.NoError(t, cb.Update().After("gorm:update").Before("gorm:save_after_associations").
		Register("truth", note(core.OpUpdate)))
	fixture.NoError(t, cb.Delete().After("gorm:delete").Before("gorm:after_delete").
		Register("truth", note(core.OpDelete)))
}
