package suite

import (
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
)

// captureCase is one statement on the rows a, b and c.
type captureCase struct {
	name string
	make func(m captureModels) CaptureStatement
}

// captureModels makes models for a statement.
type captureModels struct {
	rows map[string]CaptureRow // the stored rows, by name
	own  bool
}

const oldNote = "old"

func captureStock(own bool) []CaptureRow {
	rows := []CaptureRow{
		{Name: "a", Note: oldNote, Stock: 1},
		{Name: "b", Note: oldNote, Stock: 2},
		{Name: "c", Note: oldNote, Stock: 3},
	}
	for i := range rows {
		rows[i].Key = captureKey(own, rows[i].Name)
	}
	return rows
}

func captureKey(own bool, name string) string {
	if own {
		return "key of " + name
	}
	return ""
}

// statement stores a, b and c and returns the statement of a case.
func (f *captureFixture) statement(c captureCase) CaptureStatement {
	f.Helper()
	s := c.make(captureModels{rows: f.reset(f.variant.own, captureStock(f.variant.own)...), own: f.variant.own})
	s.Own, s.Mapped, s.Recorder = f.variant.own, f.variant.mapped, f.variant.recorder
	if s.Recorder {
		s.record(func() bool { return true })
	}
	return s
}

// record records events on the models for which some returns true.
func (s *CaptureStatement) record(some func() bool) {
	for i := range s.Models {
		if some() {
			s.Models[i].Record = fmt.Sprintf("recorded.%s.%d", s.Models[i].Name, i)
		}
	}
}

// loaded returns models with the stored values.
func (m captureModels) loaded(names ...string) (all []CaptureModel) {
	for _, n := range names {
		all = append(all, CaptureModel{CaptureRow: m.rows[n]})
	}
	return all
}

// changed returns models whose values differ from the stored ones.
func (m captureModels) changed(names ...string) []CaptureModel {
	all := m.loaded(names...)
	for i := range all {
		all[i].Note = freshNote()
		all[i].Stock += 10
	}
	return all
}

// fresh returns models without a key that the database generates, so that they are or seem new.
func (m captureModels) fresh(names ...string) (all []CaptureModel) {
	for _, n := range names {
		all = append(all, CaptureModel{CaptureRow: CaptureRow{
			Key: captureKey(m.own, n), Name: n, Note: freshNote(),
			Stock: 40,
		}})
	}
	return all
}

// gone returns models whose rows do not exist.
func (m captureModels) gone(names ...string) []CaptureModel {
	all := m.fresh(names...)
	for i := range all {
		if !m.own {
			all[i].Key = "987654"
		}
	}
	return all
}

func captureCreateCases() []captureCase {
	create := func(slice bool, returning CaptureReturning, names ...string) func(m captureModels) CaptureStatement {
		return func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: CaptureCreate, Models: m.fresh(names...), Slice: slice, Returning: returning}
		}
	}
	return []captureCase{
		{"one", create(false, CaptureReturnsNothing, "d")},
		{"a batch", create(true, CaptureReturnsNothing, "d", "e", "f")},
		{"a batch of values", func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: CaptureCreate, Models: m.fresh("d", "e"), Slice: true, Values: true}
		}},
		{"a batch of one", create(true, CaptureReturnsNothing, "d")},
		{"one, returning all", create(false, CaptureReturnsAll, "d")},
		{"a batch, returning all", create(true, CaptureReturnsAll, "d", "e", "f")},
		{"a batch, returning keys", create(true, CaptureReturnsKey, "d", "e", "f")},
		{"a batch, returning another column", create(true, CaptureReturnsNote, "d", "e")},
	}
}

func captureSkipCases() []captureCase {
	skip := func(slice bool, returning CaptureReturning, names ...string) func(m captureModels) CaptureStatement {
		return func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: CaptureSkip, Models: m.fresh(names...), Slice: slice, Returning: returning}
		}
	}
	return []captureCase{
		{"one that is new", skip(false, CaptureReturnsNothing, "d")},
		{"one that is there", skip(false, CaptureReturnsNothing, "b")},
		{"a batch of new ones", skip(true, CaptureReturnsNothing, "d", "e")},
		{"a batch with one that is there", skip(true, CaptureReturnsNothing, "d", "b", "e")},
		{"a batch with one that is there, returning all", skip(true, CaptureReturnsAll, "d", "b", "e")},
		{"a batch with one that is there, returning keys", skip(true, CaptureReturnsKey, "d", "b", "e")},
		{"a batch with one that is there, returning another column", skip(true, CaptureReturnsNote, "d", "b", "e")},
		{"a batch of which all are there", skip(true, CaptureReturnsNothing, "a", "b")},
	}
}

func captureUpsertCases() []captureCase {
	upsert := func(set CaptureSet, names ...string) func(m captureModels) CaptureStatement {
		return func(m captureModels) CaptureStatement {
			return CaptureStatement{
				Do: CaptureUpsert, Models: m.fresh(names...), Slice: len(names) > 1, Set: set,
				OnName: !m.own,
			}
		}
	}
	return []captureCase{
		{"one that is new", upsert(CaptureSetModel, "d")},
		{"one that is there", upsert(CaptureSetModel, "b")},
		{"some columns of one that is there", upsert(CaptureSetNote, "b")},
		{"an expression on one that is there", upsert(CaptureSetStock, "b")},
		{"a batch", upsert(CaptureSetModel, "d", "b", "e")},
		{"some columns of a batch", upsert(CaptureSetNote, "d", "b", "e")},
		{"loaded models by their keys", func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: CaptureUpsert, Models: m.changed("a", "b"), Slice: true}
		}},
		{"a batch with one of them twice", func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: CaptureUpsert, Models: m.changed("a", "b", "a"), Slice: true}
		}},
		{"of one that is there under another key", func(m captureModels) CaptureStatement {
			models := m.fresh("b")
			if models[0].Key = "887766"; m.own {
				models[0].Key = "another key"
			}
			return CaptureStatement{Do: CaptureUpsert, Models: models, Set: CaptureSetNote, OnName: true}
		}},
	}
}

// nameIsNotB and the variables below are conditions with the texts that programs write.
var (
	nameIsNotB  = &CaptureWhere{"name <> 'b'", func(r CaptureRow) bool { return r.Name != "b" }}
	nameIsB     = &CaptureWhere{"name = 'b'", func(r CaptureRow) bool { return r.Name == "b" }}
	nobody      = &CaptureWhere{"name = 'nobody'", func(CaptureRow) bool { return false }}
	aOrC        = &CaptureWhere{"name = 'a' OR name = 'c'", func(r CaptureRow) bool { return r.Name != "b" }}
	onTwoLines  = &CaptureWhere{"name = 'b'\nOR\nstock > 2", func(r CaptureRow) bool { return r.Name != "a" }}
	quotedWords = &CaptureWhere{
		"name <> ' OR (id = 1) -- ' AND stock < 3",
		func(r CaptureRow) bool { return r.Stock < 3 },
	}
)

// captureChangeCases are the cases of updates and deletes.
func captureChangeCases(do CaptureDo) []captureCase {
	change := func(
		names []string, slice bool, where *CaptureWhere, returning CaptureReturning,
	) func(m captureModels) CaptureStatement {
		return func(m captureModels) CaptureStatement {
			return CaptureStatement{
				Do: do, ByKey: len(names) > 0, Models: m.loaded(names...), Slice: slice, Where: where,
				Returning: returning, Set: CaptureSetNote, Note: freshNote(),
			}
		}
	}
	one, three := []string{"b"}, []string{"a", "b", "c"}
	cases := []captureCase{
		{"one", change(one, false, nil, CaptureReturnsNothing)},
		{"one with a condition that holds", change(one, false, nameIsB, CaptureReturnsNothing)},
		{"one with a condition that does not hold", change(one, false, nameIsNotB, CaptureReturnsNothing)},
		{"one with OR in its condition", change(one, false, aOrC, CaptureReturnsNothing)},
		{"one with OR on a line of its own", change(one, false, onTwoLines, CaptureReturnsNothing)},
		{"one with words in quotes", change(one, false, quotedWords, CaptureReturnsNothing)},
		{"one that is gone", func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: do, ByKey: true, Models: m.gone("x"), Set: CaptureSetNote, Note: freshNote()}
		}},
		{"one, returning all", change(one, false, nil, CaptureReturnsAll)},
		{"a slice", change(three, true, nil, CaptureReturnsNothing)},
		{"a slice, returning all", change(three, true, nil, CaptureReturnsAll)},
		{"a slice and a condition", change(three, true, nameIsNotB, CaptureReturnsNothing)},
		{"a slice and a condition, returning all", change(three, true, nameIsNotB, CaptureReturnsAll)},
		{"a slice and a condition, returning keys", change(three, true, nameIsNotB, CaptureReturnsKey)},
		{"a slice and a condition, returning another column", change(three, true, nameIsNotB, CaptureReturnsNote)},
		{"a slice and OR", change(three[:2], true, onTwoLines, CaptureReturnsNothing)},
		{"a slice with one that is gone", func(m captureModels) CaptureStatement {
			return CaptureStatement{
				Do: do, ByKey: true, Models: append(m.loaded("a", "b"), m.gone("x")...),
				Slice: true, Set: CaptureSetNote, Note: freshNote(),
			}
		}},
		{"a slice with one of them twice", change([]string{"a", "a"}, true, nil, CaptureReturnsNothing)},
		{"a condition", func(m captureModels) CaptureStatement {
			return CaptureStatement{
				Do: do, Models: m.unkeyed(), Where: nameIsNotB, Set: CaptureSetNote,
				Note: freshNote(),
			}
		}},
		{"a condition on one row", func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: do, Models: m.unkeyed(), Where: nameIsB, Set: CaptureSetNote, Note: freshNote()}
		}},
		{"a condition, returning all into a slice", func(captureModels) CaptureStatement {
			return CaptureStatement{
				Do: do, Slice: true, Where: nameIsNotB, Returning: CaptureReturnsAll,
				Set: CaptureSetNote, Note: freshNote(),
			}
		}},
		{"a condition, returning all into one model", func(m captureModels) CaptureStatement {
			return CaptureStatement{
				Do: do, Models: m.unkeyed(), Where: nameIsNotB, Returning: CaptureReturnsAll,
				Set: CaptureSetNote, Note: freshNote(),
			}
		}},
	}
	if do == CaptureDelete {
		return cases
	}
	return append(cases,
		captureCase{"all columns of one", func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: do, ByKey: true, Models: m.changed("b"), Set: CaptureSetModel}
		}},
		captureCase{"all columns of a slice", func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: do, ByKey: true, Models: m.changed("a", "b"), Slice: true, Set: CaptureSetModel}
		}},
		captureCase{"an expression on one", func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: do, ByKey: true, Models: m.loaded("b"), Set: CaptureSetStock}
		}},
		captureCase{"an expression on one, returning all", func(m captureModels) CaptureStatement {
			return CaptureStatement{
				Do: do, ByKey: true, Models: m.loaded("b"), Set: CaptureSetStock,
				Returning: CaptureReturnsAll,
			}
		}},
		captureCase{"an expression on a slice", func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: do, ByKey: true, Models: m.loaded("a", "b"), Slice: true, Set: CaptureSetStock}
		}},
	)
}

// unkeyed returns a model that names no row.
func (captureModels) unkeyed() []CaptureModel {
	return []CaptureModel{{CaptureRow: CaptureRow{Name: "nobody"}}}
}

// captureConditionCases must all cause events of On functions.
func captureConditionCases() []captureCase {
	var cases []captureCase
	for _, do := range []struct {
		name string
		do   CaptureDo
		set  CaptureSet
	}{
		{"update ", CaptureUpdate, CaptureSetNote},
		{"expression ", CaptureUpdate, CaptureSetStock},
		{"delete ", CaptureDelete, 0},
	} {
		statement := func(byKey bool, where *CaptureWhere, names ...string) func(m captureModels) CaptureStatement {
			return func(m captureModels) CaptureStatement {
				return CaptureStatement{
					Do: do.do, Set: do.set, ByKey: byKey, Models: m.loaded(names...),
					Slice: byKey && len(names) != 1, Where: where, Note: freshNote(),
				}
			}
		}
		cases = append(cases,
			captureCase{do.name + "by a condition", statement(false, nameIsNotB)},
			captureCase{do.name + "by a condition with OR", statement(false, aOrC)},
			captureCase{do.name + "by OR on a line of its own", statement(false, onTwoLines)},
			captureCase{do.name + "by a condition that nothing meets", statement(false, nobody)},
			captureCase{do.name + "of a slice with a condition", statement(true, nameIsNotB, "a", "b", "c")},
			captureCase{do.name + "of one", statement(true, nil, "b")},
			captureCase{do.name + "of a slice", statement(true, nil, "a", "c")},
		)
	}
	return cases
}

// captureRecorders checks recorders in places where an adapter does not look for them.
func captureRecorders(f *captureFixture) {
	if f.Hidden == nil {
		f.Log("there are no recorders")
		return
	}
	for _, own := range []bool{false, true} {
		rows := f.reset(own, captureStock(own)...)
		m := captureModels{rows: rows, own: own}
		for _, s := range []CaptureStatement{
			{Do: CaptureCreate, Models: m.fresh("d")},
			{Do: CaptureCreate, Models: m.fresh("d", "e"), Slice: true},
			{Do: CaptureSkip, Models: m.fresh("d")},
			{Do: CaptureUpsert, Models: m.fresh("d"), OnName: true},
			{Do: CaptureUpdate, ByKey: true, Models: m.loaded("b"), Note: freshNote(), Set: CaptureSetNote},
			{Do: CaptureUpdate, ByKey: true, Models: m.changed("b"), Set: CaptureSetModel},
			{
				Do: CaptureUpdate, ByKey: true, Models: m.loaded("a", "b"), Note: freshNote(), Set: CaptureSetNote,
				Slice: true,
			},
			{Do: CaptureDelete, ByKey: true, Models: m.loaded("b")},
		} {
			s.Own, s.Recorder, s.Copies = own, true, true
			s.record(func() bool { return true })
			c := f.run(s, false)
			if c.lacks() {
				f.Logf("the ORM has no such statement: %v", c.execErr)
				continue
			}
			if !errors.Is(c.err, core.ErrRecorderCopied) {
				f.Errorf("a copy was stored while the events of its original wait: %v: %s", c.err, s)
			}
			f.check(s, c)
		}
	}
	before := f.rows(false)
	if err := f.RunInTx(f.Context(), f.Hidden); !errors.Is(err, core.ErrHiddenRecorder) {
		f.Errorf("a model with a Recorder in a field: %v, want ErrHiddenRecorder", err)
	}
	if after := f.rows(false); len(after) != len(before) {
		f.Error("a model with a Recorder in a field was stored")
	}
}
