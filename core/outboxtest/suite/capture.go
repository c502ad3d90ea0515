package suite

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// CaptureHarness gives TestCapture access to the statements of an ORM.
type CaptureHarness struct {
	// Open returns the ORM on an empty database. It is called once for each group of cases.
	Open func(t *testing.T) CaptureORM
	// Refused names the cases whose statements the adapter refuses with core.ErrNoAggregateID, and
	// gives the reason. A name is a case, "Update/a slice and a condition", or a variant, "Update/a
	// slice and a condition/recorded". Every other case must cause its events. A named case that
	// causes its events fails too, so that the list stays correct.
	Refused map[string]string
	// Statements is how many random statements are run in each group that has them. Default: 200.
	Statements int
	// Seed repeats the random statements of an earlier run, which printed its seed. Default: a new
	// seed each time.
	Seed uint64
}

// CaptureORM is an ORM with an outbox and two tables. In one table the database generates the
// integer keys. In the other the program makes the textual keys. Both have the columns id, name (a
// unique text), note (a text) and stock (an integer). Each table has three models: one with an
// OnContext function that returns CaptureEventInContext of the model, one with an embedded
// core.Recorder, and one with both. The first table has one more model with both, whose key is a
// pointer.
type CaptureORM struct {
	// RunInTx runs fn in a transaction of the ORM. The context of fn carries the transaction for
	// Exec, under a key of the harness. Exec runs its statement with another context.
	RunInTx func(ctx context.Context, fn func(ctx context.Context) error) error
	// Exec makes the models of a statement, records their events, and runs the statement in the
	// transaction that ctx carries. left returns the types of the events that are still recorded on
	// its models, during or after the transaction. An error wrapping errors.ErrUnsupported means
	// that the ORM has no such statement, with the reason. Then nothing was executed, and the case
	// logs the error.
	Exec func(ctx context.Context, s CaptureStatement) (left func() []string, err error)
	// Hidden stores a model that has a core.Recorder in a named field. Nil: the ORM has no
	// recorders.
	Hidden func(ctx context.Context) error

	// The functions below bypass the ORM and use connections of their own.

	// Insert stores rows. The database generates the Key of a row that has none.
	Insert func(ctx context.Context, own bool, rows []CaptureRow) error
	// Rows returns all rows of a table.
	Rows func(ctx context.Context, own bool) ([]CaptureRow, error)
	// Events returns all events of the outbox's table.
	Events func(ctx context.Context) ([]CapturedEvent, error)
	// Reset empties the tables, the outbox's included.
	Reset func(ctx context.Context) error
}

// CaptureRow is a row of either table.
type CaptureRow struct {
	Key   string // as text; "" if the database has not generated it yet
	Name  string
	Note  string
	Stock int64
}

// CapturedEvent is a stored event.
type CapturedEvent struct {
	Type    string
	Key     string // Event.AggregateID
	Payload []byte
}

// CaptureEvent returns the event that an On function returns for a model. For the rows of the group
// Panic it panics or ends its goroutine.
func CaptureEvent(op core.Op, row CaptureRow) core.Event {
	switch row.Note {
	case notePanics:
		panic(row.Note)
	case noteEnds:
		runtime.Goexit()
	case notePayloadPanics:
		return core.Event{Type: mappedType + op.String(), Data: panickingPayload{}}
	}
	return core.Event{Type: mappedType + op.String(), Data: row}
}

// CaptureEventInContext is CaptureEvent for functions with a context, such as OnContext's. It also
// requires that ctx carries the transaction of the statement, and reads in it.
func CaptureEventInContext(ctx context.Context, op core.Op, row CaptureRow) ([]core.Event, error) {
	tx, ok := core.TxFromContext(ctx)
	if !ok {
		return nil, errors.New("the context of the function carries no transaction")
	}
	if err := tx.Err(); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, "SELECT 7, 'seven' UNION ALL SELECT 8, 'eight'")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var read []string
	for rows.Next() {
		var n int
		var name string
		if err := rows.Scan(&n, &name); err != nil {
			return nil, err
		}
		read = append(read, fmt.Sprint(n, name))
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	if want := "7seven 8eight"; strings.Join(read, " ") != want {
		return nil, fmt.Errorf("the transaction of the context has read %q, want %s", read, want)
	}
	if _, err := tx.Exec(ctx, "UPDATE outbox_event SET status = status WHERE 1 = 0"); err != nil {
		return nil, err
	}
	return []core.Event{CaptureEvent(op, row)}, nil
}

const mappedType = "mapped."

// CaptureModel is a model that is passed to a statement.
type CaptureModel struct {
	CaptureRow
	// Record is the type of an event that was recorded on the model, or "" for none. The event has
	// no AggregateID.
	Record string
}

// CaptureDo is the kind of a statement.
type CaptureDo uint8

// Kinds of statements.
const (
	CaptureCreate CaptureDo = iota // INSERT that fails if a row exists
	CaptureSkip                    // INSERT that passes over rows that exist
	CaptureUpsert                  // INSERT that updates rows that exist
	CaptureUpdate
	CaptureDelete
)

// CaptureSet selects the columns that an update or an upsert sets.
type CaptureSet uint8

// Assignments of an update or an upsert.
const (
	CaptureSetModel CaptureSet = iota // sets all columns to the model's values
	CaptureSetNote                    // note, to Note of the statement (an upsert: to Note of the model)
	CaptureSetStock                   // stock, to the expression stock + 1
)

// CaptureReturning selects the columns of the changed rows that a statement returns.
type CaptureReturning uint8

// Results of a statement.
const (
	CaptureReturnsNothing CaptureReturning = iota // the statement that the ORM makes by default
	CaptureReturnsAll                             // all columns
	CaptureReturnsKey                             // the key
	CaptureReturnsNote                            // another column
)

// CaptureWhere is a condition.
type CaptureWhere struct {
	Text  string                  // the text that the program writes, without placeholders
	Holds func(r CaptureRow) bool // whether the condition holds for r
}

// CaptureStatement is one statement that a program may write by the means of its ORM.
type CaptureStatement struct {
	Do       CaptureDo
	Own      bool // on the table whose keys the program makes
	Mapped   bool // models have an On function
	Recorder bool // models embed a core.Recorder
	// Pointer: the key of the models is a pointer to a type with methods for values (String,
	// MarshalText, driver.Valuer), and nil if the key is "". Own is not set; Mapped and Recorder
	// are.
	Pointer bool
	// Models are the models that are passed to the statement: one model, or a slice if Slice is
	// set. Without models, the statement gets only the type, or an empty slice.
	Models []CaptureModel
	Slice  bool
	Values bool // the slice has structs; otherwise it has pointers
	// Copies: the models were copied after their events had been recorded, and the copies are
	// passed to the statement.
	Copies bool

	// ByKey: an update or a delete names its rows by the keys of the models. Otherwise only Where
	// selects the rows.
	ByKey bool
	Where *CaptureWhere
	Set   CaptureSet
	Note  string
	// OnName: an upsert or a skip looks for existing rows by name. Otherwise it looks for them by
	// key.
	OnName    bool
	Returning CaptureReturning
}

// String formats s for the log of a test.
func (s CaptureStatement) String() string {
	var b strings.Builder
	say := func(ok bool, text string, args ...any) {
		if ok {
			fmt.Fprintf(&b, text, args...)
		}
	}
	b.WriteString([]string{"create", "create or skip", "create or update", "update", "delete"}[s.Do])
	say(s.Do == CaptureUpsert || s.Do == CaptureUpdate, ", setting %s",
		[]string{"the model", "note", "stock + 1"}[s.Set])
	say(s.Own, ", own keys")
	say(s.Pointer, ", pointers to keys")
	say(s.OnName, ", on name")
	say(s.ByKey, ", by key")
	say(s.Where != nil, ", where ")
	if s.Where != nil {
		fmt.Fprintf(&b, "%q", s.Where.Text)
	}
	b.WriteString([]string{"", ", returning *", ", returning key", ", returning note"}[s.Returning])
	say(s.Slice, ", a slice")
	say(s.Values, " of values")
	say(s.Copies, ", of copies")
	say(s.Mapped, ", On")
	say(s.Recorder, ", Recorder")
	for _, m := range s.Models {
		fmt.Fprintf(&b, "\n\t%+v", m)
	}
	return b.String()
}

// TestCapture is the conformance suite of the events that adapters make of statements. Every case
// checks which rows a statement changed, by comparing the table before and after it. The stored
// events, with their keys and payloads, must match the changed rows. Otherwise the statement or its
// transaction must fail with core.ErrNoAggregateID, and nothing may be written. The groups are:
//
//   - Create, Skip, Upsert, Update, Delete: statements that programs write, which must cause their
//     events unless the harness names them in Refused
//   - Conditions: statements that do not name the rows that they change
//   - Recorder: copies of models with recorded events, and recorders in fields
//   - Panic: On functions and payloads that panic
//   - Keys: keys that are nil pointers until the row is stored
//   - Random: statements of all kinds, with errors returned or ignored by the program
func TestCapture(t *testing.T, h CaptureHarness) {
	names := map[string]bool{}
	for _, group := range []struct {
		name  string
		cases []captureCase
	}{
		{"Create", captureCreateCases()},
		{"Skip", captureSkipCases()},
		{"Upsert", captureUpsertCases()},
		{"Update", captureChangeCases(CaptureUpdate)},
		{"Delete", captureChangeCases(CaptureDelete)},
		{conditions, captureConditionCases()},
	} {
		for _, c := range group.cases {
			names[group.name+"/"+c.name] = true
			for _, v := range captureVariants {
				names[group.name+"/"+c.name+"/"+v.name] = true
			}
		}
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			orm := h.Open(t)
			for _, c := range group.cases { // one after the other, because they share the tables
				t.Run(c.name, func(t *testing.T) {
					for _, v := range captureVariants {
						if group.name == conditions && !v.mapped {
							continue // their models have no keys, so the rows of recorded events are not known
						}
						t.Run(v.name, func(t *testing.T) {
							f := &captureFixture{T: t, CaptureORM: orm, variant: v}
							f.why = cmp.Or(h.Refused[group.name+"/"+c.name],
								h.Refused[group.name+"/"+c.name+"/"+v.name])
							f.is(f.statement(c))
						})
					}
				})
			}
		})
	}
	for name := range h.Refused {
		if !names[name] {
			t.Errorf("Refused names %q, which is no case", name)
		}
	}
	t.Run("Recorder", func(t *testing.T) {
		t.Parallel()
		captureRecorders(&captureFixture{T: t, CaptureORM: h.Open(t)})
	})
	t.Run("Panic", func(t *testing.T) {
		t.Parallel()
		capturePanics(t, h)
	})
	t.Run("Keys", func(t *testing.T) {
		t.Parallel()
		captureKeys(t, h)
	})
	t.Run("Random", func(t *testing.T) {
		t.Parallel()
		captureRandom(t, h)
	})
}

// conditions is the name of a group.
const conditions = "Conditions"

// captureVariant is a kind of table and model.
type captureVariant struct {
	name                  string
	own, mapped, recorder bool
}

var captureVariants = []captureVariant{
	{"On", false, true, false},
	{"On, own keys", true, true, false},
	{"recorded", false, false, true},
	{"recorded, own keys", true, false, true},
}

// captureFixture has the state of a case.
type captureFixture struct {
	*testing.T
	CaptureORM
	variant captureVariant
	why     string // the reason why the adapter refuses the statement
}

// captured has the results of a statement.
type captured struct {
	before, after []CaptureRow
	events        []CapturedEvent
	left          []string
	execErr, err  error // errors of the statement and of its transaction
}

// lacks reports whether the ORM has no such statement.
func (c *captured) lacks() bool { return errors.Is(c.execErr, errors.ErrUnsupported) }

// reset empties the tables and stores rows. It returns the rows with their keys.
func (f *captureFixture) reset(own bool, rows ...CaptureRow) map[string]CaptureRow {
	f.Helper()
	f.must(f.Reset(f.Context()))
	f.must(f.Insert(f.Context(), own, rows))
	return f.byName(own)
}

func (f *captureFixture) byName(own bool) map[string]CaptureRow {
	f.Helper()
	rows := map[string]CaptureRow{}
	for _, r := range f.rows(own) {
		rows[r.Name] = r
	}
	return rows
}

func (f *captureFixture) rows(own bool) []CaptureRow {
	f.Helper()
	rows, err := f.Rows(f.Context(), own)
	f.must(err)
	return rows
}

func (f *captureFixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// run runs a statement in a transaction of its own. If ignore is set, the program ignores an error
// of the statement.
func (f *captureFixture) run(s CaptureStatement, ignore bool) *captured {
	f.Helper()
	c := &captured{before: f.rows(s.Own)}
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	left := func() []string { return nil }
	c.err = f.RunInTx(ctx, func(ctx context.Context) error {
		l, err := f.Exec(ctx, s)
		if l != nil {
			left = l
		}
		c.execErr = err
		if ignore {
			return nil
		}
		return err
	})
	_, _ = checkText(f.T, c.execErr), checkText(f.T, c.err)
	c.left, c.after = left(), f.rows(s.Own)
	var err error
	c.events, err = f.Events(f.Context())
	f.must(err)
	return c
}

// is runs a statement and checks its results.
func (f *captureFixture) is(s CaptureStatement) *captured {
	f.Helper()
	c := f.run(s, false)
	if c.lacks() {
		f.Logf("the ORM has no such statement: %v", c.execErr)
		return c
	}
	switch {
	case f.why != "" && c.err == nil:
		f.Errorf("the harness says that this is refused (%s), and it was not: %s", f.why, s)
	case f.why == "" && c.err != nil:
		f.Errorf("%v: %s", c.err, s)
	}
	f.check(s, c)
	return c
}

// check compares the stored events with the changed rows.
func (f *captureFixture) check(s CaptureStatement, c *captured) {
	f.Helper()
	t := truth{statement: s, captured: c}
	for _, problem := range t.problems() {
		f.Errorf("%s\n%s\nbefore: %+v\nafter:  %+v\nevents: %s\nstill recorded: %q\nthe statement: %v\nthe "+
			"transaction: %v",
			problem, s, c.before, c.after, describeEvents(c.events), c.left, c.execErr, c.err)
	}
}

func describeEvents(events []CapturedEvent) string {
	var all []string
	for _, e := range events {
		all = append(all, fmt.Sprintf("%s of %q: %s", e.Type, e.Key, e.Payload))
	}
	return strings.Join(all, "; ")
}

var captureNotes struct {
	sync.Mutex
	n int
}

// freshNote returns a text that no row has. A row that was changed to it differs from before.
func freshNote() string {
	captureNotes.Lock()
	defer captureNotes.Unlock()
	captureNotes.n++
	return fmt.Sprintf("changed %d", captureNotes.n)
}

func rowOfPayload(payload []byte) (row CaptureRow, err error) {
	err = json.Unmarshal(payload, &row)
	return row, err
}
