package gorm_test

import (
	"context"
	"strconv"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The capture suite over GORM, with and without prepared statements.
func TestCaptureSuiteGORM(t *testing.T) {
	testdb.EveryWay(t, []testdb.Way[bool]{{Name: "plain"}, {Name: "prepared", Of: true}},
		func(t *testing.T, db testdb.DB, prepare bool) {
			refused := gormRefuses
			suite.TestCapture(t, adapters.CaptureHarness(db, refused,
				func(
					t *testing.T, db testdb.DB, tables *adapters.CaptureTables,
				) suite.CaptureORM {
					return gormCapture(t, db, tables, prepare)
				}))
		})
}

const gormRefuses = `
some are there, and GORM gives the generated keys to the wrong models
	Skip/a batch with one that is there/recorded
	Skip/a batch with one that is there, returning all/recorded
	Skip/a batch with one that is there, returning keys/recorded
	Skip/a batch with one that is there, returning another column/recorded
several rows are changed, and the model with recorded events has no key
	Update/a condition/recorded
	Update/a condition/recorded, own keys
	Update/a condition, returning all into one model/recorded
	Update/a condition, returning all into one model/recorded, own keys
	Delete/a condition/recorded
	Delete/a condition/recorded, own keys
	Delete/a condition, returning all into one model/recorded
	Delete/a condition, returning all into one model/recorded, own keys
another row than the model's is changed
	Upsert/of one that is there under another key/recorded
	Upsert/of one that is there under another key/recorded, own keys
`

type (
	// GColumns are the columns of the suite's tables.
	GColumns struct {
		Name  string
		Note  string
		Stock int64
	}
	gItem struct {
		ID int64
		GColumns
	}
	gItemRecorder struct {
		ID int64
		GColumns
		core.Recorder `gorm:"-" json:"-"`
	}
	gItemBoth struct {
		ID int64
		GColumns
		core.Recorder `gorm:"-" json:"-"`
	}
	gItemPointer struct {
		ID *adapters.CaptureKey
		GColumns
		core.Recorder `gorm:"-" json:"-"`
	}
	// GFilled has a column that the database can fill.
	GFilled struct {
		Name  string
		Note  string
		Stock int64 `gorm:"default:7"`
	}
	gDocument struct {
		ID string `gorm:"primaryKey"`
		GFilled
	}
	gDocumentRecorder struct {
		ID string `gorm:"primaryKey"`
		GFilled
		core.Recorder `gorm:"-" json:"-"`
	}
	gDocumentBoth struct {
		ID string `gorm:"primaryKey"`
		GFilled
		core.Recorder `gorm:"-" json:"-"`
	}
	gItemHidden struct {
		ID int64
		GColumns
		Events core.Recorder `gorm:"-"`
	}
)

func (gItem) TableName() string             { return "capture_items" }
func (gItemRecorder) TableName() string     { return "capture_items" }
func (gItemBoth) TableName() string         { return "capture_items" }
func (gItemPointer) TableName() string      { return "capture_items" }
func (gItemHidden) TableName() string       { return "capture_items" }
func (gDocument) TableName() string         { return "capture_documents" }
func (gDocumentRecorder) TableName() string { return "capture_documents" }
func (gDocumentBoth) TableName() string     { return "capture_documents" }

var (
	gItems = adapters.CaptureKind[gItem]{
		Fill: func(m *gItem, r suite.CaptureRow) {
			m.ID, m.GColumns = adapters.Number(r.Key), GColumns{r.Name, r.Note, r.Stock}
		},
		Row: func(m *gItem) suite.CaptureRow { return gRow(m.ID, m.GColumns) },
	}
	gItemRecorders = adapters.CaptureKind[gItemRecorder]{
		Fill: func(m *gItemRecorder, r suite.CaptureRow) {
			m.ID, m.GColumns = adapters.Number(r.Key), GColumns{r.Name, r.Note, r.Stock}
		},
		Row:      func(m *gItemRecorder) suite.CaptureRow { return gRow(m.ID, m.GColumns) },
		Recorder: func(m *gItemRecorder) *core.Recorder { return &m.Recorder },
	}
	gItemBoths = adapters.CaptureKind[gItemBoth]{
		Fill: func(m *gItemBoth, r suite.CaptureRow) {
			m.ID, m.GColumns = adapters.Number(r.Key), GColumns{r.Name, r.Note, r.Stock}
		},
		Row:      func(m *gItemBoth) suite.CaptureRow { return gRow(m.ID, m.GColumns) },
		Recorder: func(m *gItemBoth) *core.Recorder { return &m.Recorder },
	}
	gItemPointers = adapters.CaptureKind[gItemPointer]{
		Fill: func(m *gItemPointer, r suite.CaptureRow) {
			m.ID, m.GColumns = adapters.NewCaptureKey(r.Key), GColumns{r.Name, r.Note, r.Stock}
		},
		Row: func(m *gItemPointer) suite.CaptureRow {
			return suite.CaptureRow{Key: m.ID.Text(), Name: m.Name, Note: m.Note, Stock: m.Stock}
		},
		Recorder: func(m *gItemPointer) *core.Recorder { return &m.Recorder },
	}
	gDocuments = adapters.CaptureKind[gDocument]{
		Fill: func(m *gDocument, r suite.CaptureRow) { m.ID, m.GFilled = r.Key, GFilled{r.Name, r.Note, r.Stock} },
		Row: func(m *gDocument) suite.CaptureRow {
			return suite.CaptureRow{Key: m.ID, Name: m.Name, Note: m.Note, Stock: m.Stock}
		},
	}
	gDocumentRecorders = adapters.CaptureKind[gDocumentRecorder]{
		Fill: func(m *gDocumentRecorder, r suite.CaptureRow) {
			m.ID, m.GFilled = r.Key, GFilled{r.Name, r.Note, r.Stock}
		},
		Row: func(m *gDocumentRecorder) suite.CaptureRow {
			return suite.CaptureRow{Key: m.ID, Name: m.Name, Note: m.Note, Stock: m.Stock}
		},
		Recorder: func(m *gDocumentRecorder) *core.Recorder { return &m.Recorder },
	}
	gDocumentBoths = adapters.CaptureKind[gDocumentBoth]{
		Fill: func(m *gDocumentBoth, r suite.CaptureRow) {
			m.ID, m.GFilled = r.Key, GFilled{r.Name, r.Note, r.Stock}
		},
		Row: func(m *gDocumentBoth) suite.CaptureRow {
			return suite.CaptureRow{Key: m.ID, Name: m.Name, Note: m.Note, Stock: m.Stock}
		},
		Recorder: func(m *gDocumentBoth) *core.Recorder { return &m.Recorder },
	}
)

func gRow(id int64, c GColumns) suite.CaptureRow {
	return suite.CaptureRow{Key: strconv.FormatInt(id, 10), Name: c.Name, Note: c.Note, Stock: c.Stock}
}

func gormCapture(t *testing.T, db testdb.DB, tables *adapters.CaptureTables, prepare bool,
) suite.CaptureORM {
	t.Helper()
	gdb, err := gorm.Open(adapters.GORMDialector(db, db.Open(t)),
		&gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
	fixture.NoError(t, err)
	ob := gormoutbox.Plugin(gormoutbox.Config{AutoCreate: true})
	fixture.NoError(t, gdb.Use(ob))
	gormoutbox.OnContext(ob, gItems.On())
	gormoutbox.OnContext(ob, gItemBoths.On())
	gormoutbox.OnContext(ob, gItemPointers.On())
	gormoutbox.OnContext(ob, gDocuments.On())
	gormoutbox.OnContext(ob, gDocumentBoths.On())
	return tables.ORM(suite.CaptureORM{
		RunInTx: func(ctx context.Context, fn func(context.Context) error) error {
			return gdb.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				return fn(context.WithValue(ctx, adapters.CaptureTxKey{}, tx))
			})
		},
		Exec: func(ctx context.Context, s suite.CaptureStatement) (func() []string, error) {
			tx := ctx.Value(adapters.CaptureTxKey{}).(*gorm.DB)
			switch {
			case s.Pointer:
				return gormExec(tx, s, gItemPointers)
			case s.Own && s.Mapped && s.Recorder:
				return gormExec(tx, s, gDocumentBoths)
			case s.Own && s.Recorder:
				return gormExec(tx, s, gDocumentRecorders)
			case s.Own:
				return gormExec(tx, s, gDocuments)
			case s.Mapped && s.Recorder:
				return gormExec(tx, s, gItemBoths)
			case s.Recorder:
				return gormExec(tx, s, gItemRecorders)
			default:
				return gormExec(tx, s, gItems)
			}
		},
		Hidden: func(ctx context.Context) error {
			return ctx.Value(adapters.CaptureTxKey{}).(*gorm.DB).Create(
				&gItemHidden{GColumns: GColumns{Name: "hidden"}},
			).Error
		},
	})
}

func gormExec[T any](tx *gorm.DB, s suite.CaptureStatement,
	kind adapters.CaptureKind[T],
) (func() []string, error) {
	one, slice, recorders := kind.Models(s)
	var model any = one
	if s.Slice {
		model = slice
	} else if one == nil {
		model = new(T)
	}
	if s.Slice && !s.ByKey && s.Do >= suite.CaptureUpdate && len(s.Models) > 0 {
		return nil, adapters.NoStatement("models in a slice name rows")
	}
	if s.Do == suite.CaptureUpdate && s.Returning != suite.CaptureReturnsNothing && tx.Name() == "mysql" {
		return nil, adapters.NoStatement("MariaDB has no UPDATE ... RETURNING")
	}
	switch s.Returning {
	case suite.CaptureReturnsAll:
		tx = tx.Clauses(clause.Returning{})
	case suite.CaptureReturnsKey:
		tx = tx.Clauses(clause.Returning{Columns: []clause.Column{{Name: "id"}}})
	case suite.CaptureReturnsNote:
		tx = tx.Clauses(clause.Returning{Columns: []clause.Column{{Name: "note"}}})
	}
	if s.Where != nil {
		tx = tx.Where(s.Where.Text)
	}
	var err error
	switch s.Do {
	case suite.CaptureCreate:
		err = tx.Create(model).Error
	case suite.CaptureSkip, suite.CaptureUpsert:
		err = tx.Clauses(gormConflict(s)).Create(model).Error
	case suite.CaptureDelete:
		err = tx.Delete(model).Error
	case suite.CaptureUpdate:
		switch {
		case s.Set == suite.CaptureSetNote:
			err = tx.Model(model).Update("note", s.Note).Error
		case s.Set == suite.CaptureSetStock:
			err = tx.Model(model).Update("stock", gorm.Expr("stock + 1")).Error
		case s.Where == nil:
			err = tx.Save(model).Error
		case s.Slice:
			return nil, adapters.NoStatement("Save takes no condition")
		default:
			err = tx.Model(model).Select("*").Updates(model).Error
		}
	}
	return adapters.Waiting(recorders), err
}

func gormConflict(s suite.CaptureStatement) clause.OnConflict {
	c := clause.OnConflict{Columns: []clause.Column{{Name: "id"}}}
	if s.OnName {
		c.Columns[0].Name = "name"
	}
	table := adapters.CaptureTable(s.Own)
	switch {
	case s.Do == suite.CaptureSkip && !s.OnName:
		return clause.OnConflict{DoNothing: true}
	case s.Do == suite.CaptureSkip:
		c.DoNothing = true
	case s.Set == suite.CaptureSetNote:
		c.DoUpdates = clause.AssignmentColumns([]string{"note"})
	case s.Set == suite.CaptureSetStock:
		c.DoUpdates = clause.Assignments(map[string]any{"stock": gorm.Expr(table + ".stock + 1")})
	default:
		c.UpdateAll = true
	}
	return c
}
