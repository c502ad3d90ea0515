package bun_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/feature"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The capture suite over Bun, PostgreSQL over both drivers, and with -short over pgx alone.
func TestCaptureSuiteBun(t *testing.T) {
	only := withConnector
	if testing.Short() {
		only = func(way adapters.BunWay) bool { return way.Connector && !way.PGDriver }
	}
	inBunWays(t, testdb.EveryWay, only, func(t *testing.T, db testdb.DB, way adapters.BunWay) {
		suite.TestCapture(t, adapters.CaptureHarness(db, bunRefuses,
			func(
				t *testing.T, db testdb.DB, tables *adapters.CaptureTables,
			) suite.CaptureORM {
				return bunCapture(t, db, tables, way)
			}))
	})
}

const bunRefuses = `
some are there, and Bun gives the generated keys to the wrong models
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
	// BColumns are the columns of the suite's tables.
	BColumns struct {
		Name  string
		Note  string
		Stock int64
	}
	bItem struct {
		bun.BaseModel `bun:"table:capture_items,alias:i"`
		ID            int64 `bun:",pk,autoincrement"`
		BColumns
	}
	bItemRecorder struct {
		bun.BaseModel `bun:"table:capture_items,alias:i"`
		ID            int64 `bun:",pk,autoincrement"`
		BColumns
		core.Recorder `bun:"-" json:"-"`
	}
	bItemBoth struct {
		bun.BaseModel `bun:"table:capture_items,alias:i"`
		ID            int64 `bun:",pk,autoincrement"`
		BColumns
		core.Recorder `bun:"-" json:"-"`
	}
	bItemPointer struct {
		bun.BaseModel `bun:"table:capture_items,alias:i"`
		ID            *adapters.CaptureKey `bun:",pk,autoincrement"`
		BColumns
		core.Recorder `bun:"-" json:"-"`
	}
	// BFilled has a column that the database can fill.
	BFilled struct {
		Name  string
		Note  string
		Stock int64 `bun:",nullzero,default:7"`
	}
	bDocument struct {
		bun.BaseModel `bun:"table:capture_documents"`
		ID            string `bun:",pk"`
		BFilled
	}
	bDocumentRecorder struct {
		bun.BaseModel `bun:"table:capture_documents"`
		ID            string `bun:",pk"`
		BFilled
		core.Recorder `bun:"-" json:"-"`
	}
	bDocumentBoth struct {
		bun.BaseModel `bun:"table:capture_documents"`
		ID            string `bun:",pk"`
		BFilled
		core.Recorder `bun:"-" json:"-"`
	}
	bItemHidden struct {
		bun.BaseModel `bun:"table:capture_items"`
		ID            int64 `bun:",pk,autoincrement"`
		Name          string
		Note          string
		Events        core.Recorder `bun:"-"`
	}
)

var (
	bItems = adapters.CaptureKind[bItem]{
		Fill: func(m *bItem, r suite.CaptureRow) {
			m.ID, m.BColumns = adapters.Number(r.Key), BColumns{r.Name, r.Note, r.Stock}
		},
		Row: func(m *bItem) suite.CaptureRow { return bRow(strconv.FormatInt(m.ID, 10), m.BColumns) },
	}
	bItemRecorders = adapters.CaptureKind[bItemRecorder]{
		Fill: func(m *bItemRecorder, r suite.CaptureRow) {
			m.ID, m.BColumns = adapters.Number(r.Key), BColumns{r.Name, r.Note, r.Stock}
		},
		Row:      func(m *bItemRecorder) suite.CaptureRow { return bRow(strconv.FormatInt(m.ID, 10), m.BColumns) },
		Recorder: func(m *bItemRecorder) *core.Recorder { return &m.Recorder },
	}
	bItemBoths = adapters.CaptureKind[bItemBoth]{
		Fill: func(m *bItemBoth, r suite.CaptureRow) {
			m.ID, m.BColumns = adapters.Number(r.Key), BColumns{r.Name, r.Note, r.Stock}
		},
		Row:      func(m *bItemBoth) suite.CaptureRow { return bRow(strconv.FormatInt(m.ID, 10), m.BColumns) },
		Recorder: func(m *bItemBoth) *core.Recorder { return &m.Recorder },
	}
	bItemPointers = adapters.CaptureKind[bItemPointer]{
		Fill: func(m *bItemPointer, r suite.CaptureRow) {
			m.ID, m.BColumns = adapters.NewCaptureKey(r.Key), BColumns{r.Name, r.Note, r.Stock}
		},
		Row:      func(m *bItemPointer) suite.CaptureRow { return bRow(m.ID.Text(), m.BColumns) },
		Recorder: func(m *bItemPointer) *core.Recorder { return &m.Recorder },
	}
	bDocuments = adapters.CaptureKind[bDocument]{
		Fill: func(m *bDocument, r suite.CaptureRow) { m.ID, m.BFilled = r.Key, BFilled{r.Name, r.Note, r.Stock} },
		Row:  func(m *bDocument) suite.CaptureRow { return bRow(m.ID, BColumns(m.BFilled)) },
	}
	bDocumentRecorders = adapters.CaptureKind[bDocumentRecorder]{
		Fill: func(m *bDocumentRecorder, r suite.CaptureRow) {
			m.ID, m.BFilled = r.Key, BFilled{r.Name, r.Note, r.Stock}
		},
		Row:      func(m *bDocumentRecorder) suite.CaptureRow { return bRow(m.ID, BColumns(m.BFilled)) },
		Recorder: func(m *bDocumentRecorder) *core.Recorder { return &m.Recorder },
	}
	bDocumentBoths = adapters.CaptureKind[bDocumentBoth]{
		Fill: func(m *bDocumentBoth, r suite.CaptureRow) {
			m.ID, m.BFilled = r.Key, BFilled{r.Name, r.Note, r.Stock}
		},
		Row:      func(m *bDocumentBoth) suite.CaptureRow { return bRow(m.ID, BColumns(m.BFilled)) },
		Recorder: func(m *bDocumentBoth) *core.Recorder { return &m.Recorder },
	}
)

func bRow(key string, c BColumns) suite.CaptureRow {
	return suite.CaptureRow{Key: key, Name: c.Name, Note: c.Note, Stock: c.Stock}
}

func bunCapture(t *testing.T, db testdb.DB, tables *adapters.CaptureTables, way adapters.BunWay,
) suite.CaptureORM {
	t.Helper()
	ob, err := bunoutbox.New(adapters.OpenBun(t, db, way), bunoutbox.Config{AutoCreate: true})
	fixture.NoError(t, err)
	bunoutbox.OnContext(ob, bItems.On())
	bunoutbox.OnContext(ob, bItemBoths.On())
	bunoutbox.OnContext(ob, bItemPointers.On())
	bunoutbox.OnContext(ob, bDocuments.On())
	bunoutbox.OnContext(ob, bDocumentBoths.On())
	return tables.ORM(suite.CaptureORM{
		RunInTx: func(ctx context.Context, fn func(context.Context) error) error {
			return ob.RunInTx(ctx, func(_ context.Context, tx bun.Tx) error {
				return fn(context.WithValue(ctx, adapters.CaptureTxKey{}, tx))
			})
		},
		Exec: func(ctx context.Context, s suite.CaptureStatement) (func() []string, error) {
			tx := ctx.Value(adapters.CaptureTxKey{}).(bun.Tx)
			switch {
			case s.Pointer:
				return bunExec(ctx, tx, s, bItemPointers)
			case s.Own && s.Mapped && s.Recorder:
				return bunExec(ctx, tx, s, bDocumentBoths)
			case s.Own && s.Recorder:
				return bunExec(ctx, tx, s, bDocumentRecorders)
			case s.Own:
				return bunExec(ctx, tx, s, bDocuments)
			case s.Mapped && s.Recorder:
				return bunExec(ctx, tx, s, bItemBoths)
			case s.Recorder:
				return bunExec(ctx, tx, s, bItemRecorders)
			default:
				return bunExec(ctx, tx, s, bItems)
			}
		},
		Hidden: func(ctx context.Context) error {
			_, err := ctx.Value(adapters.CaptureTxKey{}).(bun.Tx).NewInsert().Model(
				&bItemHidden{Name: "hidden"},
			).Exec(ctx)
			return err
		},
	})
}

// bunExec runs a statement. If the database refuses its text, as MariaDB refuses some RETURNING,
// Bun has no such statement.
func bunExec[T any](ctx context.Context, tx bun.Tx, s suite.CaptureStatement,
	kind adapters.CaptureKind[T],
) (func() []string, error) {
	one, slice, recorders := kind.Models(s)
	var model any = one // may be a nil pointer, whose type names the table
	if s.Slice {
		model = slice
	} else if one == nil && s.Returning != suite.CaptureReturnsNothing {
		model = new(T)
	}
	var returning string
	switch s.Returning {
	case suite.CaptureReturnsAll:
		returning = "*"
	case suite.CaptureReturnsKey:
		returning = "id"
	case suite.CaptureReturnsNote:
		returning = "note"
	}
	var err error
	switch s.Do {
	case suite.CaptureUpdate:
		err = bunUpdate(ctx, tx, s, model, returning)
	case suite.CaptureDelete:
		q := tx.NewDelete().Model(model)
		if returning != "" {
			if !tx.Dialect().Features().Has(feature.DeleteReturning) {
				return nil, adapters.NoStatement("there is no DELETE ... RETURNING")
			}
			q = q.Returning(returning)
		}
		if s.ByKey {
			q = q.WherePK()
		}
		if s.Where != nil {
			q = q.Where(s.Where.Text)
		}
		_, err = q.Exec(ctx)
	default:
		q := bunConflict(s, tx.NewInsert().Model(model), tx.Dialect().Features().Has(feature.InsertOnDuplicateKey))
		if returning != "" {
			if !tx.Dialect().Features().Has(feature.InsertReturning) {
				return nil, adapters.NoStatement("there is no INSERT ... RETURNING")
			}
			q = q.Returning(returning)
		}
		_, err = q.Exec(ctx)
	}
	return adapters.Waiting(recorders), err
}

func bunUpdate(ctx context.Context, tx bun.Tx, s suite.CaptureStatement, model any, returning string) error {
	q := tx.NewUpdate().Model(model)
	if returning != "" {
		if !tx.Dialect().Features().Has(feature.Returning) {
			return adapters.NoStatement("there is no UPDATE ... RETURNING")
		}
		q = q.Returning(returning)
	}
	bulk := s.Set == suite.CaptureSetModel && s.Slice
	switch {
	case s.Set == suite.CaptureSetNote:
		q = q.Set("note = ?", s.Note)
	case s.Set == suite.CaptureSetStock:
		q = q.Set("stock = stock + 1")
	case bulk && !tx.Dialect().Features().Has(feature.WithValues):
		return adapters.NoStatement("Bun has no bulk update there")
	case bulk && (s.Where != nil || returning != "" && returning != "*"):
		return adapters.NoStatement("its columns would be ambiguous in a bulk update")
	case bulk:
		q = q.Column("name", "note", "stock").Bulk()
	}
	if s.ByKey && !bulk {
		q = q.WherePK()
	}
	if s.Where != nil {
		q = q.Where(s.Where.Text)
	}
	_, err := q.Exec(ctx)
	return err
}

// bunConflict sets what an insert does with rows that exist already.
func bunConflict(s suite.CaptureStatement, q *bun.InsertQuery, onDuplicateKey bool) *bun.InsertQuery {
	target := "id"
	if s.OnName {
		target = "name"
	}
	excluded, own := func(column string) string { return "EXCLUDED." + column }, "?TableAlias."
	if onDuplicateKey {
		excluded, own = func(column string) string { return "VALUES(" + column + ")" }, ""
	}
	switch {
	case s.Do == suite.CaptureCreate:
		return q
	case s.Do == suite.CaptureSkip && (onDuplicateKey || !s.OnName):
		return q.Ignore()
	case s.Do == suite.CaptureSkip:
		return q.On("CONFLICT (" + target + ") DO NOTHING")
	case onDuplicateKey:
		q = q.On("DUPLICATE KEY UPDATE")
	default:
		q = q.On("CONFLICT (" + target + ") DO UPDATE")
	}
	switch s.Set {
	case suite.CaptureSetNote:
		return q.Set("note = " + excluded("note"))
	case suite.CaptureSetStock:
		return q.Set("stock = " + own + "stock + 1")
	default:
		return q.Set("name = " + excluded("name")).Set("note = " + excluded("note")).Set("stock = " + excluded("stock"))
	}
}
