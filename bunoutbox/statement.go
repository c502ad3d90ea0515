package bunoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/feature"
	"github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// statement is a captured INSERT, UPDATE or DELETE. It reports events of rows only when the
// database says which rows it changed: their keys came back in RETURNING, or as many rows were
// affected as it has models, each named by its key.
type statement struct {
	ob     *Outbox
	query  query
	table  *schema.Table
	op     core.Op
	text   parsed
	slice  bool
	models []reflect.Value // the models as the statement got them
	keys   []string        // their keys, "" where unknown
	on     onFunctions

	known    knowledge
	partly   bool            // it names its rows, and has further conditions
	why      string          // why the rows are unknown
	stale    map[string]bool // columns that an update sets to other values than the models have
	resolved []row           // rows that were found and locked before
	bound    bool            // the statement also named its rows by their keys
}

// knowledge says how the changed rows will be known.
type knowledge uint8

const (
	unknown     knowledge = iota
	byInsert              // they are the rows of VALUES
	byKeys                // the statement names them by the keys of its models
	byReturning           // RETURNING puts them into an empty model
	byRows                // they were found and locked before the statement
)

// row is a row that was changed.
type row struct {
	key   string
	model reflect.Value
}

// query is the common method of Bun's queries: a statement made by NewRaw runs where the query
// runs.
type query interface {
	NewRaw(query string, args ...any) *bun.RawQuery
}

// statement returns nil when the query has no events to capture.
func (o *Outbox) statement(event *bun.QueryEvent) (*statement, error) {
	s := &statement{ob: o}
	switch q := event.IQuery.(type) {
	case *bun.InsertQuery:
		s.query = q
	case *bun.UpdateQuery:
		s.query, s.op = q, core.OpUpdate
	case *bun.DeleteQuery:
		s.query, s.op = q, core.OpDelete
	case *bun.MergeQuery:
		s.query, s.op = q, core.OpUpsert
	default:
		return nil, nil
	}
	model, ok := event.Model.(bun.TableModel)
	if !ok {
		return nil, nil
	}
	s.table = model.Table()
	has, err := o.own.Recorders.Has(s.table.Type, apart)
	if err != nil {
		return nil, err
	}
	if s.on.mappers, s.on.resolve = o.own.Mappers.Of(s.table.Type); s.on.mappers == nil && !has {
		return nil, nil
	}
	s.models, s.slice = elements(model.Value()), isSlice(model.Value())
	if s.on.mappers == nil && !s.anyRecorded() {
		return nil, nil
	}
	s.keys = make([]string, len(s.models))
	for i, m := range s.models {
		if r, ok := adapter.RecorderOf(m); ok {
			if err := core.CheckRecorder(r); err != nil {
				return nil, err
			}
		}
		if s.keys[i], err = keyOf(s.table, m); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *statement) anyRecorded() bool {
	for _, m := range s.models {
		if r, ok := adapter.RecorderOf(m); ok && len(r.Recorded()) > 0 {
			return true
		}
	}
	return false
}

// before returns an error if the statement must not be executed.
func (s *statement) before(ctx context.Context, event *bun.QueryEvent) error {
	s.text = parse(event.Query, s.ob.own.Dialect())
	s.decide(event)
	resolve := s.on.resolve && s.op != core.OpCreate && s.op != core.OpUpsert &&
		(s.known == unknown || s.partly || s.uncounted())
	if !resolve {
		if err := s.refuse(ctx); err != nil {
			return err
		}
	}
	if s.on.mappers == nil && !s.anyRecorded() {
		s.models = nil
		return nil
	}
	err := s.visit(ctx, func(tx *sqltx.VisitedTx) error {
		if s.on.mappers != nil {
			s.on.keepTx(ctx, tx, event.DB.DB, s.run)
		}
		return s.ob.own.Check(ctx, inPool{tx, event.DB.DB})
	})
	if errors.Is(err, core.ErrNoTransaction) || errors.Is(err, core.ErrUntracked) {
		return adapter.CausesEvents(s.op, s.table.Name, fmt.Errorf("%w: use the tx that RunInTx gives, of the outbox "+
			"or of a pool opened with sqltx.Connector", err))
	}
	if err != nil || !resolve {
		return err
	}
	if err := s.lockRows(ctx); err != nil {
		return err
	}
	return s.refuse(ctx)
}

// uncounted reports whether MySQL does not count some rows of a named update that exist: those that
// already have the new values.
func (s *statement) uncounted() bool {
	return s.slice && s.op == core.OpUpdate && s.ob.own.Dialect() == core.MySQL
}

// inPool is the transaction of a statement, whose pool its *bun.DB knows.
type inPool struct {
	*sqltx.VisitedTx
	pool *sql.DB
}

// Pool is for core.Outbox.CheckTx.
func (t inPool) Pool() *sql.DB { return t.pool }

// laterInPool is inPool after the visit.
type laterInPool struct {
	core.Tx
	pool *sql.DB
}

// Pool is for core.Outbox.CheckTx.
func (t laterInPool) Pool() *sql.DB { return t.pool }

// run runs a statement where the query runs.
func (s *statement) run(ctx context.Context, text string) error { return run(ctx, s.query, text) }

func run(ctx context.Context, q query, text string) error {
	_, err := q.NewRaw(text).Exec(ctx)
	return err
}

// decide decides how the changed rows will be known.
func (s *statement) decide(event *bun.QueryEvent) {
	s.known = unknown
	returning := s.text.returning
	if _, ok := event.IQuery.(*bun.InsertQuery); ok {
		s.op = core.OpCreate
		if s.text.rows.upsert || !s.text.understood {
			s.op = core.OpUpsert
		}
	}
	switch _, merges := event.IQuery.(*bun.MergeQuery); {
	case merges:
		s.why = "is a MERGE, which does not say which rows it changes"
	case !s.text.understood:
		s.why = "has comments or parts that are not understood, so that nobody knows which rows it changes"
	case s.op == core.OpCreate || s.op == core.OpUpsert:
		s.decideInsert(event)
	case len(s.table.PKs) == 0:
		s.why = "is of a table without a primary key"
	case s.named(event):
		if s.slice && len(s.models) > 1 && returning.any && (returning.odd || !s.returnsKeys()) {
			s.why = "reads RETURNING over its models in any order (ask for all columns: Returning(\"*\"))"
			return
		}
		s.known = byKeys
		s.partly = s.slice && (!returning.any || !s.returnsKeys()) &&
			len(conjuncts(s.text.where, s.ob.own.Dialect())) > 1
		s.stale = s.staleColumns(event)
	case returning.any && !returning.odd && s.returnsKeys() && s.empty():
		s.known = byReturning
	default:
		s.why = "does not say which rows it changes"
	}
}

func (s *statement) decideInsert(event *bun.QueryEvent) {
	switch {
	case !s.text.rows.values || len(s.models) == 0:
		s.why = "does not say which rows it inserts"
	case s.slice && s.op == core.OpUpsert && !s.text.rows.skips && !event.DB.HasFeature(feature.InsertReturning) &&
		slices.Contains(s.keys, ""):
		s.why = "does not tell the keys of rows that were there already (set them)"
	default:
		s.known = byInsert
	}
}

// empty reports whether RETURNING fills a model that names no row by itself.
func (s *statement) empty() bool {
	if s.slice {
		return len(s.models) == 0
	}
	return len(s.models) == 1 && s.keys[0] == ""
}

func (s *statement) returnsKeys() bool {
	if len(s.table.PKs) == 0 {
		return false
	}
	for _, f := range s.table.PKs {
		if !s.text.returning.has(f.Name) {
			return false
		}
	}
	return true
}

// refuse returns an error when events depend on rows that cannot be known.
func (s *statement) refuse(ctx context.Context) error {
	if s.known == byRows {
		if s.bound {
			return nil
		}
		for i, m := range s.models {
			if r, ok := adapter.RecorderOf(m); ok && len(r.Recorded()) > 0 && !s.selfNamed(r) &&
				!s.hasResolved(s.keys[i]) {
				return s.unknown("does not change a model with recorded events, or does not name it by its key")
			}
		}
		return nil
	}
	if s.known != unknown {
		return nil
	}
	for _, m := range s.models {
		if r, ok := adapter.RecorderOf(m); ok && len(r.Recorded()) > 0 && !s.selfNamed(r) {
			return s.unknown(s.why)
		}
	}
	if s.on.mappers == nil {
		return nil
	}
	if !s.ob.own.AllowsKeyless(ctx, s.table.Type, s.op, s.table.Name) {
		return s.unknown(s.why)
	}
	s.on.mappers = nil
	return nil
}

const waysOut = "change loaded models with WherePK, register On with bunoutbox.ResolveRows(), call Publish, or set " +
	"Config.AllowKeyless"

func (s *statement) unknown(why string) error {
	return adapter.UnknownRows(s.op, s.table.Name, why, waysOut)
}

// selfNamed reports whether the events of r do not need the row: they name their aggregate, and
// there is only one model.
func (s *statement) selfNamed(r *core.Recorder) bool {
	return !s.slice && adapter.Named(r.Recorded())
}

func (s *statement) hasResolved(key string) bool {
	return key != "" && slices.ContainsFunc(s.resolved, func(r row) bool { return r.key == key })
}

// visit runs fn in the transaction of the statement.
func (s *statement) visit(ctx context.Context, fn func(tx *sqltx.VisitedTx) error) error {
	return visit(ctx, s.query, fn)
}

func visit(ctx context.Context, q query, fn func(tx *sqltx.VisitedTx) error) error {
	return sqltx.Visit(ctx, func(ctx context.Context, text string) error { return run(ctx, q, text) }, fn)
}

// named reports whether an UPDATE or DELETE changes only rows that its models name by their primary
// keys, with any further conditions. It names them by WherePK, by a bulk update, or by comparing
// the key of its one model with its value.
func (s *statement) named(event *bun.QueryEvent) bool {
	if len(s.models) == 0 || slices.Contains(s.keys, "") {
		return false
	}
	gen := event.DB.QueryGen()
	holds := map[string]bool{}
	for _, c := range conjuncts(s.text.where, s.ob.own.Dialect()) {
		holds[c] = true
	}
	if s.slice {
		for _, c := range s.keysIn(gen) {
			if holds[c] {
				return true
			}
		}
		return s.bulk(event) && s.eachPart(holds, func(name string, f *schema.Field) []string {
			return []string{name + " = _data." + string(f.SQLName)}
		})
	}
	model := s.models[0].Elem()
	return s.eachPart(holds, func(name string, f *schema.Field) []string {
		return []string{name + " = " + string(f.AppendValue(gen, nil, model))}
	})
}

// eachPart reports whether each part of the key has a condition in one of its spellings.
func (s *statement) eachPart(holds map[string]bool, spell func(name string, f *schema.Field) []string) bool {
	t := s.table
	for _, f := range t.PKs {
		found := false
		for _, name := range []string{
			string(f.SQLName), f.Name, string(t.SQLAlias) + "." + string(f.SQLName), t.Alias + "." + f.Name,
			string(t.SQLName) + "." + string(f.SQLName), t.Name + "." + f.Name,
		} {
			for _, c := range spell(name, f) {
				found = found || holds[c]
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// keysIn returns how Bun writes WherePK for the models of a slice, with and without an alias.
func (s *statement) keysIn(gen schema.QueryGen) []string {
	list := make([]string, 0, len(s.models))
	for _, m := range s.models {
		list = append(list, keyTuple(gen, s.table, m))
	}
	in := " IN (" + strings.Join(list, ", ") + ")"
	return []string{keyColumns(s.table, string(s.table.SQLAlias)+".") + in, keyColumns(s.table, "") + in}
}

// keyColumns writes the columns of the key.
func keyColumns(t *schema.Table, prefix string) string {
	names := make([]string, 0, len(t.PKs))
	for _, f := range t.PKs {
		names = append(names, prefix+string(f.SQLName))
	}
	return tuple(strings.Join(names, ", "), len(names))
}

// keyTuple writes the key of a model.
func keyTuple(gen schema.QueryGen, t *schema.Table, model reflect.Value) string {
	var b []byte
	for i, f := range t.PKs {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = f.AppendValue(gen, b, model.Elem())
	}
	return tuple(string(b), len(t.PKs))
}

func tuple(list string, n int) string {
	if n > 1 {
		return "(" + list + ")"
	}
	return list
}

// bulk reports whether the statement takes its values from the models of the slice: its text begins
// with WITH _data AS (VALUES ...).
func (s *statement) bulk(event *bun.QueryEvent) bool {
	values := event.DB.NewValues(event.Model.Value())
	gen := event.DB.QueryGen()
	columns, err := values.AppendColumns(gen, nil)
	if err != nil {
		return false
	}
	body, err := values.AppendQuery(gen, nil)
	if err != nil {
		return false
	}
	name := string(gen.AppendIdent(nil, "_data"))
	return s.text.with == "WITH "+name+" ("+string(columns)+") AS ("+string(body)+") "
}

// staleColumns returns the columns that an update sets to values that its models do not have.
func (s *statement) staleColumns(event *bun.QueryEvent) map[string]bool {
	if s.op != core.OpUpdate || s.on.mappers == nil {
		return nil
	}
	gen := event.DB.QueryGen()
	bulk := s.slice && s.bulk(event)
	var stale map[string]bool
	for _, a := range s.text.set {
		f := s.table.LookupField(a.column)
		switch {
		case f == nil:
		case bulk && a.value == "_data."+string(f.SQLName):
			continue
		case !s.slice && a.value == string(f.AppendValue(gen, nil, s.models[0].Elem())):
			continue
		}
		if stale == nil {
			stale = map[string]bool{}
		}
		stale[a.column] = true
	}
	return stale
}

// isSlice reports whether the value of a model is a slice of rows.
func isSlice(value any) bool {
	v := reflect.ValueOf(value)
	return v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Slice
}
