package suite_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
)

// captureMistakes are possible errors in an adapter, each with the cases that must fail for it.
var captureMistakes = map[string]struct {
	wrong   wrongCapture
	noticed []string
}{
	"rows that were skipped are reported": {
		wrongCapture{report: func(s suite.CaptureStatement, _ []suite.CaptureRow) bool {
			return s.Do == suite.CaptureSkip
		}},
		[]string{"Skip/a batch with one that is there/On", "Skip/one that is there/On, own keys"},
	},
	"all models of a slice are reported": {
		wrongCapture{report: func(s suite.CaptureStatement, _ []suite.CaptureRow) bool {
			return s.ByKey && s.Slice
		}},
		[]string{
			"Update/a slice and a condition/On", "Delete/a slice and a condition/On",
			"Update/a slice with one that is gone/On",
		},
	},
	"a model whose row is not changed is reported": {
		wrongCapture{report: func(s suite.CaptureStatement, _ []suite.CaptureRow) bool {
			return s.ByKey && !s.Slice
		}},
		[]string{"Update/one with a condition that does not hold/On", "Delete/one that is gone/On, own keys"},
	},
	"a row without a model is not reported": {
		wrongCapture{hide: func(s suite.CaptureStatement) bool {
			return len(s.Models) == 0 || !s.ByKey && s.Do >= suite.CaptureUpdate
		}},
		[]string{"Update/a condition/On", "Conditions/delete by a condition/On", "Random"},
	},
	"the payload is the model as it was": {
		wrongCapture{stale: true},
		[]string{
			"Update/an expression on one/On", "Upsert/some columns of one that is there/On",
			"Conditions/update by a condition/On",
		},
	},
	"the key is that of the model": {
		wrongCapture{ownKey: true},
		[]string{"Upsert/of one that is there under another key/On"},
	},
	"recorded events are published for rows that were not changed": {
		wrongCapture{recordedAlways: true},
		[]string{"Skip/a batch with one that is there/recorded", "Update/a slice and a condition/recorded", "Random"},
	},
	"recorded events are forgotten": {
		wrongCapture{forget: true},
		[]string{"Create/one/recorded", "Skip/one that is there/recorded", "Random"},
	},
	"everything is reported twice": {
		wrongCapture{twice: true},
		[]string{"Create/one/On", "Delete/a slice/On"},
	},
	"a create is an upsert": {
		wrongCapture{op: core.OpUpsert},
		[]string{"Create/a batch/On"},
	},
	"everything is refused": {
		wrongCapture{refuse: true},
		[]string{"Create/one/On", "Update/one/recorded", "Random"},
	},
	"an error comes late, and the transaction commits": {
		wrongCapture{refuseLate: true},
		[]string{"Random"},
	},
	"the error has no name": {
		wrongCapture{refuse: true, unnamed: true},
		[]string{"Delete/a condition/On", "Random"},
	},
	"a panic loses the event": {
		wrongCapture{commitsPanics: true},
		[]string{"Panic"},
	},
	"nil keys are refused": {
		wrongCapture{noNil: true},
		[]string{"Keys"},
	},
	"copies are stored": {
		wrongCapture{copies: true},
		[]string{"Recorder"},
	},
	"hidden recorders are stored": {
		wrongCapture{hidden: true},
		[]string{"Recorder"},
	},
}

// Every mistake must make its cases fail.
func TestCaptureMistakesAreNoticed(t *testing.T) {
	t.Parallel()
	for name, m := range captureMistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, noticed := range m.noticed {
				var patterns []string
				for part := range strings.SplitSeq(noticed, "/") {
					patterns = append(patterns, "^"+strings.ReplaceAll(part, " ", "_")+"$")
				}
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestCaptureWithMistake$/"+
					strings.Join(patterns, "/"))
				cmd.Env = append(os.Environ(), mistakeVariable+"="+name)
				out, err := cmd.CombinedOutput()
				if !strings.Contains(string(out), "--- FAIL: TestCaptureWithMistake/"+
					strings.ReplaceAll(noticed, " ", "_")) {
					t.Errorf("%s passes (%v):\n%s", noticed, err, out)
				}
			}
		})
	}
}

// TestCaptureWithMistake is the suite on an adapter with the mistake that the environment names.
// Without a mistake the adapter is correct and passes.
func TestCaptureWithMistake(t *testing.T) {
	name := os.Getenv(mistakeVariable)
	suite.TestCapture(t, suite.CaptureHarness{
		Statements: 1000, // with few, some mistakes are not met
		Refused:    refusedModels(),
		Open: func(*testing.T) suite.CaptureORM {
			w := &captureWorld{wrong: captureMistakes[name].wrong}
			return suite.CaptureORM{
				RunInTx: w.runInTx, Exec: w.exec, Hidden: w.storeHidden, Insert: w.insert, Rows: w.rows, Reset: w.reset,
				Events: func(context.Context) ([]suite.CapturedEvent, error) {
					return slices.Clone(w.committed.events), nil
				},
			}
		},
	})
}

// refusedModels are cases with recorded events on a model that names no row.
func refusedModels() map[string]string {
	refused := map[string]string{}
	for _, do := range []string{"Update/", "Delete/"} {
		for _, c := range []string{
			"a condition", "a condition on one row",
			"a condition, returning all into one model",
		} {
			for _, v := range []string{"/recorded", "/recorded, own keys"} {
				refused[do+c+v] = "the model names no row"
			}
		}
	}
	return refused
}

// wrongCapture says which mistakes an adapter has. The zero value is correct: such an adapter
// compares the table before and after each statement.
type wrongCapture struct {
	report                      func(s suite.CaptureStatement, changed []suite.CaptureRow) bool // report all models
	hide                        func(s suite.CaptureStatement) bool
	stale, ownKey, twice        bool
	recordedAlways, forget      bool
	op                          core.Op
	refuse, refuseLate, unnamed bool
	copies, hidden, noNil       bool
	commitsPanics               bool
}

// captureWorld is an ORM on two tables in memory.
type captureWorld struct {
	wrong     wrongCapture
	mu        sync.Mutex
	committed captureState
	open      captureState
	next      int
}

type captureState struct {
	tables map[bool]map[string]suite.CaptureRow // by key
	events []suite.CapturedEvent
	ended  []func(core.Outcome)
	// panicked: a statement did not return.
	panicked bool
}

func (s captureState) clone() captureState {
	c := captureState{tables: map[bool]map[string]suite.CaptureRow{}, events: slices.Clone(s.events)}
	for own, t := range s.tables {
		c.tables[own] = maps.Clone(t)
	}
	for _, own := range []bool{false, true} {
		if c.tables[own] == nil {
			c.tables[own] = map[string]suite.CaptureRow{}
		}
	}
	return c
}

func (w *captureWorld) reset(context.Context) error { w.committed = captureState{}; return nil }

func (w *captureWorld) insert(_ context.Context, own bool, rows []suite.CaptureRow) error {
	w.committed = w.committed.clone()
	for _, r := range rows {
		r.Key = w.key(r.Key)
		w.committed.tables[own][r.Key] = r
	}
	return nil
}

func (w *captureWorld) key(key string) string {
	if key == "" {
		w.next++
		key = strconv.Itoa(w.next)
	}
	return key
}

func (w *captureWorld) rows(_ context.Context, own bool) ([]suite.CaptureRow, error) {
	return slices.Collect(maps.Values(w.committed.tables[own])), nil
}

func (w *captureWorld) runInTx(ctx context.Context, fn func(context.Context) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = w.committed.clone()
	err := fn(ctx)
	if w.open.panicked && !w.wrong.commitsPanics {
		err = errors.Join(err, errors.New("a statement panicked"))
	}
	outcome := core.RolledBack
	if err == nil {
		outcome = core.Committed
		w.committed = w.open
	}
	for _, ended := range w.open.ended {
		ended(outcome)
	}
	return err
}

func (w *captureWorld) storeHidden(context.Context) error {
	if w.wrong.hidden {
		w.open.tables[false][w.key("")] = suite.CaptureRow{Name: "hidden"}
		return nil
	}
	return core.ErrHiddenRecorder
}

// exec runs a statement and reports it.
func (w *captureWorld) exec(_ context.Context, s suite.CaptureStatement) (func() []string, error) {
	recorders := make([]*core.Recorder, len(s.Models))
	left := func() (types []string) {
		for _, r := range recorders {
			for _, e := range r.Recorded() {
				types = append(types, e.Type)
			}
		}
		return types
	}
	for i, m := range s.Models {
		if recorders[i] = new(core.Recorder); m.Record != "" {
			recorders[i].Record(core.Event{Type: m.Record})
		}
	}
	if s.Copies && !w.wrong.copies {
		return left, core.ErrRecorderCopied
	}
	if w.wrong.refuse || w.wrong.noNil && s.Pointer && (len(s.Models) == 0 || s.Models[0].Key == "") {
		return left, w.refusal()
	}
	if s.Do >= suite.CaptureUpdate && slices.ContainsFunc(s.Models,
		func(m suite.CaptureModel) bool { return m.Record != "" && m.Key == "" }) {
		return left, core.ErrNoAggregateID // no key says whose event it is
	}
	before := w.open.clone().tables[s.Own]
	if err := w.change(s); err != nil {
		return left, err
	}
	if w.wrong.refuseLate {
		return left, w.refusal()
	}
	w.open.panicked = true
	w.tell(s, before, recorders)
	w.open.panicked = false
	return left, nil
}

func (w *captureWorld) refusal() error {
	if w.wrong.unnamed {
		return errors.New("refused")
	}
	return core.ErrNoAggregateID
}

// change executes the statement on the tables.
func (w *captureWorld) change(s suite.CaptureStatement) error {
	table := w.open.tables[s.Own]
	if s.Do <= suite.CaptureUpsert {
		for _, m := range s.Models {
			there := ""
			for key, r := range table {
				if r.Name == m.Name || key == m.Key {
					there = key
				}
			}
			switch {
			case there == "":
				r := m.CaptureRow
				r.Key = w.key(r.Key)
				table[r.Key] = r
			case s.Do == suite.CaptureCreate:
				return fmt.Errorf("%s is there", m.Name)
			case s.Do == suite.CaptureUpsert:
				table[there] = set(s, table[there], m)
			}
		}
		return nil
	}
	for key, r := range table {
		model := slices.IndexFunc(s.Models, func(m suite.CaptureModel) bool { return m.Key == key })
		if s.ByKey && model < 0 || s.Where != nil && !s.Where.Holds(r) {
			continue
		}
		if s.Do == suite.CaptureDelete {
			delete(table, key)
			continue
		}
		m := suite.CaptureModel{CaptureRow: r}
		if model >= 0 {
			m = s.Models[model]
		}
		m.Note = map[bool]string{true: s.Note, false: m.Note}[s.Set == suite.CaptureSetNote]
		table[key] = set(s, r, m)
	}
	return nil
}

func set(s suite.CaptureStatement, r suite.CaptureRow, m suite.CaptureModel) suite.CaptureRow {
	switch s.Set {
	case suite.CaptureSetNote:
		r.Note = m.Note
	case suite.CaptureSetStock:
		r.Stock++
	default:
		r.Note, r.Stock = m.Note, m.Stock
	}
	return r
}

// tell publishes the events of the changed rows.
func (w *captureWorld) tell(s suite.CaptureStatement, before map[string]suite.CaptureRow,
	recorders []*core.Recorder,
) {
	after := w.open.tables[s.Own]
	publish := func(e core.Event) {
		data, _ := json.Marshal(e.Data)
		w.open.events = append(w.open.events, suite.CapturedEvent{Type: e.Type, Key: e.AggregateID, Payload: data})
	}
	names := map[string]bool{} // names of changed rows
	keys := map[string]bool{}
	mapped := func(op core.Op, r suite.CaptureRow) {
		if names[r.Name], keys[r.Key] = true, true; !s.Mapped || w.wrong.hide != nil && w.wrong.hide(s) {
			return
		}
		if w.wrong.op != 0 && op == core.OpCreate {
			op = w.wrong.op
		}
		e := suite.CaptureEvent(op, r)
		e.AggregateID = r.Key
		for _, m := range s.Models {
			if w.wrong.ownKey && m.Name == r.Name && m.Key != "" {
				e.AggregateID = m.Key
			}
		}
		publish(e)
		if w.wrong.twice {
			publish(e)
		}
	}
	for key, r := range after {
		old, there := before[key]
		switch {
		case there && old == r:
		case there && s.Do == suite.CaptureUpdate:
			mapped(core.OpUpdate, map[bool]suite.CaptureRow{true: old, false: r}[w.wrong.stale])
		case there:
			mapped(core.OpUpsert, map[bool]suite.CaptureRow{true: old, false: r}[w.wrong.stale])
		case s.Do == suite.CaptureCreate:
			mapped(core.OpCreate, r)
		default:
			mapped(core.OpUpsert, r)
		}
	}
	for key, r := range before {
		if _, there := after[key]; !there {
			mapped(core.OpDelete, r)
		}
	}
	for i, m := range s.Models {
		changed := s.Do <= suite.CaptureUpsert && names[m.Name] || keys[m.Key]
		if w.wrong.report != nil && s.Mapped && !changed && w.wrong.report(s, nil) {
			e := suite.CaptureEvent(core.OpUpsert, m.CaptureRow)
			e.AggregateID = m.Key
			publish(e)
		}
		if !changed && !w.wrong.recordedAlways {
			if w.wrong.forget {
				recorders[i].Forget()
			}
			continue
		}
		events, ended, _ := recorders[i].HandOver()
		w.open.ended = append(w.open.ended, ended)
		for _, e := range events {
			if e.AggregateID = m.Key; s.Do <= suite.CaptureUpsert {
				for key, r := range after {
					if r.Name == m.Name {
						e.AggregateID = key
					}
				}
			}
			if !w.wrong.forget {
				publish(e)
			}
		}
	}
}
