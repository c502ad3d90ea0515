package entoutbox

import (
	"context"
	sqldriver "database/sql/driver"
	"reflect"
	"slices"
	"testing"

	"entgo.io/ent"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestEntityRead(t *testing.T) {
	for text, want := range map[string]struct {
		table   string
		columns []string
	}{
		`SELECT "t"."id", "t"."name" FROM "t"`:              {`"t"`, []string{`"id"`, `"name"`}},
		"SELECT `t`.`oid` FROM `t`":                         {"`t`", []string{"`oid`"}},
		`SELECT "s"."t"."id", "s"."t"."order" FROM "s"."t"`: {`"s"."t"`, []string{`"id"`, `"order"`}},
	} {
		var e entity
		if table := e.read(text); table != want.table || !slices.Equal(e.columns, want.columns) {
			t.Errorf("%s: %s, %v, want %+v", text, table, e.columns, want)
		}
	}
}

// A table without its schema is found if there is only one of that name.
func TestDriverFind(t *testing.T) {
	a, b, c := &entity{name: "A"}, &entity{name: "B"}, &entity{name: "C"}
	one := client{of: 1, tables: withBare(map[string]*entity{"s.a": a, "s.b": b, "r.b": c, "q.b": a})}
	two := client{of: 2, tables: withBare(map[string]*entity{"a": c, "r.a": b})}
	d := &driver{}
	d.clients.Store(&[]client{})
	if _, e := d.find("a", nil); e != nil {
		t.Error("a type without clients")
	}
	d.clients.Store(&[]client{one, two})
	for _, want := range []struct {
		table string
		by    *call
		c     client
		e     *entity
	}{
		{"s.a", nil, one, a},
		{"a", nil, one, a},
		{"a", &call{of: two.of}, two, c},
		{"a", &call{of: one.of}, one, a},
		{"b", nil, client{}, nil},
		{"s.b", nil, one, b},
		{"r.b", &call{of: two.of}, one, c},
		{"x", nil, client{}, nil},
	} {
		if cl, e := d.find(want.table, want.by); cl.of != want.c.of || e != want.e {
			t.Errorf("%s: %v, %v", want.table, cl, e)
		}
	}
}

type valued struct{ n int64 }

func (v valued) Value() (sqldriver.Value, error) { return v.n, nil }

type named struct{ s string }

func (n named) String() string { return n.s }

type withID[T any] struct {
	ID   T
	Name string
}

func ofID[T any](id T) (*entity, reflect.Value) {
	typ := reflect.TypeFor[withID[T]]()
	f, _ := typ.FieldByName("ID")
	return &entity{name: "T", goType: typ, id: f.Index}, reflect.ValueOf(&withID[T]{ID: id})
}

// Ids of any type become the AggregateID.
func TestEntityKey(t *testing.T) {
	check := func(e *entity, model reflect.Value, want string) {
		t.Helper()
		if got, err := e.key(model); got != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	e, m := ofID(7)
	check(e, m, "7")
	e, m = ofID(uint64(8))
	check(e, m, "8")
	e, m = ofID(0)
	check(e, m, "0")
	e, m = ofID("text")
	check(e, m, "text")
	e, m = ofID([]byte{0xab, 0xcd})
	check(e, m, "abcd")
	e, m = ofID([2]byte{1, 2})
	check(e, m, "0102")
	e, m = ofID(valued{9})
	check(e, m, "9")
	e, m = ofID(named{"stringer"})
	check(e, m, "stringer")
	e, m = ofID(core.RowID{0x01, 0x98, 0xc5, 0xa4, 0, 0, 0x70, 0, 0x80})
	check(e, m, "0198c5a4-0000-7000-8000-000000000000")
	none := &entity{goType: reflect.TypeFor[struct{ Name string }]()}
	if key, err := none.key(reflect.ValueOf(&struct{ Name string }{"x"})); key != "" || err != nil {
		t.Errorf("an edge without an id has the key %q, %v", key, err)
	}
}

// Generated mutations keep the id in the type of the schema.
type (
	intMutation struct {
		ent.Mutation
		id *int
	}
	edgeMutation struct{ ent.Mutation }
)

func TestIDOf(t *testing.T) {
	twelve := 12
	if id := idOf(&intMutation{id: &twelve}); !id.IsValid() || id.Interface() != 12 {
		t.Errorf("the id is %v", id)
	}
	if idOf(&intMutation{}).IsValid() {
		t.Error("an id that is not known was found")
	}
	if idOf(&edgeMutation{}).IsValid() {
		t.Error("an edge has an id")
	}
}

func TestVarsOf(t *testing.T) {
	ctx := entsql.WithVar(entsql.WithIntVar(entsql.WithVar(context.Background(), "a", "1"), "b.c", 2), "a", "3")
	if got := varsOf(ctx); !reflect.DeepEqual(got, []string{"a", "b.c", "a"}) {
		t.Errorf("the variables are %q", got)
	}
	if got := varsOf(context.Background()); got != nil {
		t.Errorf("the variables are %q", got)
	}
}
