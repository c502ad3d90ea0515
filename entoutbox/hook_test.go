package entoutbox_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"entgo.io/ent"
	"entgo.io/ent/dialect"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/entoutbox"
)

// fakeDriver begins transactions that execute nothing.
type fakeDriver struct{ dialect.Driver }

func (*fakeDriver) Dialect() string                        { return dialect.Postgres }
func (*fakeDriver) Tx(context.Context) (dialect.Tx, error) { return &fakeTx{}, nil }

type fakeTx struct {
	dialect.Tx
	executed []string
}

func (t *fakeTx) Exec(_ context.Context, query string, _, _ any) error {
	t.executed = append(t.executed, query)
	return nil
}
func (*fakeTx) Commit() error   { return nil }
func (*fakeTx) Rollback() error { return nil }

// world is an outbox with one of its transactions. Its table keeps "type aggregate_id" of each
// event.
type world struct {
	testing.TB
	ob   *entoutbox.Outbox
	tx   dialect.Tx
	repo *recording
}

type recording struct {
	*outboxtest.Repository
	mu     sync.Mutex
	calls  int
	events []string
}

func (r *recording) Insert(_ context.Context, _ core.Tx, req core.InsertRequest) ([]core.Inserted, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	for _, row := range req.Rows {
		r.events = append(r.events, row.Event.Type+" "+row.Event.AggregateID)
	}
	return make([]core.Inserted, len(req.Rows)), nil
}

func newWorld(t testing.TB, options ...func(*entoutbox.Config)) *world {
	t.Helper()
	w := &world{TB: t, repo: &recording{Repository: outboxtest.NewRepository()}}
	shared, err := core.New(core.Config{Repository: w.repo})
	if err != nil {
		t.Fatal(err)
	}
	cfg := entoutbox.Config{Outbox: shared}
	for _, set := range options {
		set(&cfg)
	}
	if w.ob, err = entoutbox.New(&fakeDriver{}, cfg); err != nil {
		t.Fatal(err)
	}
	if w.tx, err = w.ob.Driver().Tx(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) want(events ...string) {
	w.Helper()
	if !slices.Equal(w.repo.events, events) {
		w.Fatalf("recorded %q, want %q", w.repo.events, events)
	}
}

// fakeMutation stands for generated code: it is bound to conn, and runs a statement.
type fakeMutation struct {
	ent.Mutation
	conn entoutbox.Conn
	op   ent.Op
	name string
	id   any
}

func (m *fakeMutation) Op() ent.Op   { return m.op }
func (m *fakeMutation) Type() string { return "Thing" }
func (m *fakeMutation) ID() (any, bool) {
	return m.id, m.id != nil
}

func (m *fakeMutation) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return m.conn.ExecContext(ctx, query, args...)
}

// keylessMutation has no method ID, like the mutation of an edge with a composite key.
type keylessMutation struct {
	ent.Mutation
	conn entoutbox.Conn
	op   ent.Op
}

func (m *keylessMutation) Op() ent.Op   { return m.op }
func (m *keylessMutation) Type() string { return "Edge" }
func (m *keylessMutation) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return m.conn.ExecContext(ctx, query, args...)
}

func (w *world) create(name string, id any) *fakeMutation {
	return &fakeMutation{conn: w.tx.(entoutbox.Conn), op: ent.OpCreate, name: name, id: id}
}

// mutate runs a mutation through hooks, the first outermost. do stands for the mutation's own work.
func mutate(ctx context.Context, m ent.Mutation, hooks []ent.Hook,
	do func(ctx context.Context) (ent.Value, error),
) error {
	var mutator ent.Mutator = ent.MutateFunc(func(ctx context.Context, _ ent.Mutation) (ent.Value, error) {
		return do(ctx)
	})
	for _, h := range slices.Backward(hooks) {
		mutator = h(mutator)
	}
	_, err := mutator.Mutate(ctx, m)
	return err
}

func (w *world) statement(query string) func(context.Context) (ent.Value, error) {
	return func(ctx context.Context) (ent.Value, error) {
		var told sql.Result // generated code asks for the result of an entity
		return 1, w.tx.Exec(ctx, query, []any{}, &told)
	}
}

// bulk runs creates as Ent does: each create within the one before, with one context and one
// statement for all.
func (w *world) bulk(ctx context.Context, hooks []ent.Hook, query string, creates ...*fakeMutation) error {
	var run func(i int) error
	run = func(i int) error {
		return mutate(ctx, creates[i], hooks, func(inner context.Context) (ent.Value, error) {
			if i == len(creates)-1 {
				rows := strings.Repeat("(1), ", len(creates)-1) + "(1)"
				return w.statement(strings.Replace(query, "(1)", rows, 1))(inner)
			}
			return 1, run(i + 1)
		})
	}
	return run(0)
}

var byName = entoutbox.OnMutation(func(ctx context.Context, m *fakeMutation, _ ent.Value) ([]core.Event, error) {
	if m.name == "" {
		return nil, nil
	}
	if m.name == "broken" {
		return nil, errBroken
	}
	return []core.Event{{Type: m.name + "." + entoutbox.OpOf(ctx).String()}}, nil
})

var ofEdges = entoutbox.OnMutation(func(context.Context, *keylessMutation, ent.Value) ([]core.Event, error) {
	return []core.Event{{Type: "edge"}}, nil
})

var errBroken = errors.New("broken")

const insert, upsert, skip = "INSERT INTO t (n) VALUES (1)", "INSERT INTO t (n) VALUES (1) ON CONFLICT (n) DO " +
	"UPDATE SET n = 1", "INSERT INTO t (n) VALUES (1) ON CONFLICT DO NOTHING"

func TestHookBulk(t *testing.T) {
	for name, tc := range map[string]struct {
		query string
		op    string
	}{"inserts": {insert, "create"}, "upserts": {upsert, "upsert"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			// Two of the hooks each have their own events, and one is for other types.
			hooks := []ent.Hook{w.ob.Hook(byName), w.ob.Hook(byName), w.ob.Hook(ofEdges)}
			w.check(w.bulk(t.Context(), hooks, tc.query, w.create("a", 1), w.create("b", 2), w.create("", 3),
				w.create("c", 4)))
			all := []string{"a." + tc.op + " 1", "b." + tc.op + " 2", "c." + tc.op + " 4"}
			w.want(append(all, all...)...)
			if w.repo.calls != 2 {
				t.Errorf("%d statements for the events of two hooks", w.repo.calls)
			}
			// The next bulk of the transaction has a group of its own.
			w.repo.events = nil
			w.check(w.bulk(t.Context(), hooks[:1], insert, w.create("d", 5)))
			w.want("d.create 5")
		})
	}
}

// Ent does not tell which rows of a bulk were skipped, so the bulk is not executed.
func TestHookBulkWithDoNothing(t *testing.T) {
	w := newWorld(t)
	hooks := []ent.Hook{w.ob.Hook(byName)}
	hooks = append(hooks, w.ob.Hook(ofEdges))
	if err := w.bulk(t.Context(), hooks, skip, w.create("a", 1), w.create("b", 2)); !errors.Is(err,
		core.ErrNoAggregateID) {
		t.Fatalf("%v, want ErrNoAggregateID", err)
	}
	w.check(w.bulk(t.Context(), hooks, skip, w.create("alone", 3)))
	w.want("alone.upsert 3")

	w = newWorld(t, func(c *entoutbox.Config) { c.AllowKeyless = true })
	w.check(w.bulk(t.Context(), []ent.Hook{w.ob.Hook(byName)}, skip, w.create("a", 1), w.create("b", 2)))
	w.want()
}

func TestHookBulkThatFails(t *testing.T) {
	w := newWorld(t)
	hooks := []ent.Hook{w.ob.Hook(byName)}
	if err := w.bulk(t.Context(), hooks, insert, w.create("a", 1), w.create("broken", 2),
		w.create("c", 3)); !errors.Is(err, errBroken) {
		t.Fatalf("%v, want the error of the On function", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = mutate(t.Context(), w.create("lost", 4), hooks, func(context.Context) (ent.Value, error) { panic("stop") })
	}()
	w.want()
	// This create is not taken for a part of those that failed.
	w.check(mutate(t.Context(), w.create("d", 5), hooks, w.statement(insert)))
	w.want("d.create 5")
}

// A create that a hook causes is not part of the bulk around it, with the context of the bulk or
// with another one.
func TestHookNestedCreate(t *testing.T) {
	for name, detached := range map[string]bool{"its context": false, "another context": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			nested := func(next ent.Mutator) ent.Mutator {
				return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
					v, err := next.Mutate(ctx, m)
					if err == nil {
						if detached {
							ctx = context.Background()
						}
						err = mutate(ctx, w.create("nested", 9), []ent.Hook{w.ob.Hook(byName)}, w.statement(upsert))
					}
					return v, err
				})
			}
			hooks := []ent.Hook{w.ob.Hook(byName), nested}
			w.check(w.bulk(t.Context(), hooks, insert, w.create("a", 1), w.create("b", 2)))
			w.want("nested.upsert 9", "nested.upsert 9", "a.create 1", "b.create 2")
		})
	}
}

// Several goroutines may create in one transaction. database/sql runs one statement at a time, and
// no event is lost.
func TestHookConcurrentCreates(t *testing.T) {
	w := newWorld(t)
	hooks := []ent.Hook{w.ob.Hook(byName)}
	var lock sync.Mutex
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			query, name := insert, "insert"
			if i%2 == 0 {
				query, name = upsert, "upsert"
			}
			if err := mutate(t.Context(), w.create(name, i+1), hooks, func(ctx context.Context) (ent.Value, error) {
				lock.Lock()
				defer lock.Unlock()
				return w.statement(query)(ctx)
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range 50 {
		want := fmt.Sprint("insert.create ", i+1)
		if i%2 == 0 {
			want = fmt.Sprint("upsert.upsert ", i+1)
		}
		if !slices.Contains(w.repo.events, want) {
			t.Errorf("no event %q", want)
		}
	}
	if n := len(w.repo.events); n != 50 {
		t.Errorf("%d events, want 50", n)
	}
}

func TestHookOps(t *testing.T) {
	for op, want := range map[ent.Op]string{
		ent.OpCreate: "create", ent.OpUpdate: "update", ent.OpUpdateOne: "update", ent.OpDelete: "delete",
		ent.OpDeleteOne: "delete",
	} {
		t.Run(op.String(), func(t *testing.T) {
			w := newWorld(t)
			m := w.create("a", 7)
			m.op = op
			query := "UPDATE t SET n = 1"
			if op.Is(ent.OpCreate) {
				query = insert
			}
			w.check(mutate(t.Context(), m, []ent.Hook{w.ob.Hook(byName)}, w.statement(query)))
			w.want("a." + want + " 7")
		})
	}
}

func TestHookOfNothingChanged(t *testing.T) {
	w := newWorld(t)
	m := w.create("a", 7)
	m.op = ent.OpDeleteOne
	w.check(mutate(t.Context(), m, []ent.Hook{w.ob.Hook(byName)},
		func(context.Context) (ent.Value, error) { return 0, nil }))
	w.want()
}

type valued struct{ n int64 }

func (v valued) Value() (sqldriver.Value, error) { return v.n, nil }

type named struct{ s string }

func (n named) String() string { return n.s }

func TestHookIDs(t *testing.T) {
	for want, id := range map[string]any{
		"7": 7, "8": uint64(8), "text": "text", "abcd": []byte{0xab, 0xcd}, "0102": [2]byte{1, 2}, "9": valued{9},
		"stringer": named{"stringer"}, "0198c5a4-0000-7000-8000-000000000000": core.RowID{
			0x01, 0x98, 0xc5, 0xa4, 0, 0,
			0x70, 0, 0x80,
		},
	} {
		w := newWorld(t)
		w.check(mutate(t.Context(), w.create("a", id), []ent.Hook{w.ob.Hook(byName)}, w.statement(insert)))
		w.want("a.create " + want)
	}
}

// Generated mutations return the id in the type of the schema.
type (
	intMutation  struct{ fakeMutation }
	textMutation struct{ fakeMutation }
)

func (*intMutation) ID() (int, bool)     { return 12, true }
func (*textMutation) ID() (string, bool) { return "", false }

func TestHookTypedIDs(t *testing.T) {
	w := newWorld(t)
	hook := w.ob.Hook(entoutbox.OnMutation(func(context.Context, ent.Mutation, ent.Value) ([]core.Event, error) {
		return []core.Event{{Type: "any"}}, nil
	}))
	known, unknown := &intMutation{*w.create("a", nil)}, &textMutation{*w.create("b", nil)}
	known.op, unknown.op = ent.OpUpdateOne, ent.OpUpdate
	w.check(mutate(t.Context(), known, []ent.Hook{hook}, w.statement("UPDATE t SET n = 1")))
	if err := mutate(t.Context(), unknown, []ent.Hook{hook}, w.statement("UPDATE t SET n = 1")); !errors.Is(err,
		core.ErrNoAggregateID) {
		t.Errorf("%v, want ErrNoAggregateID", err)
	}
	w.want("any 12")
}

// A mutation of a type without an id can tell what was created, but not what was changed.
func TestHookWithoutID(t *testing.T) {
	w := newWorld(t)
	hook := w.ob.Hook(ofEdges)
	m := &keylessMutation{conn: w.tx.(entoutbox.Conn), op: ent.OpCreate}
	w.check(mutate(t.Context(), m, []ent.Hook{hook}, w.statement(insert)))
	w.want("edge ")
	m.op = ent.OpDelete
	if err := mutate(t.Context(), m, []ent.Hook{hook}, w.statement("DELETE FROM t")); !errors.Is(err,
		core.ErrNoAggregateID) {
		t.Fatalf("%v, want ErrNoAggregateID", err)
	}
}

// commenting is a driver around the outbox's driver that adds a comment to each statement.
type commenting struct{ entoutbox.Conn }

func (c commenting) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return c.Conn.ExecContext(ctx, "/* app=shop */ "+query+" /* trace=1 */", args...)
}

func TestHookThroughCommentingDriver(t *testing.T) {
	w := newWorld(t)
	m := w.create("a", 1)
	m.conn = commenting{m.conn}
	w.check(mutate(t.Context(), m, []ent.Hook{w.ob.Hook(byName)}, w.statement(insert)))
	w.want("a.create 1")
}

// Outside a transaction the mutation is not executed.
func TestHookNeedsTransaction(t *testing.T) {
	w := newWorld(t)
	m := w.create("a", 1)
	m.conn = w.ob.Driver().(entoutbox.Conn)
	executed := false
	err := mutate(t.Context(), m, []ent.Hook{w.ob.Hook(byName)}, func(context.Context) (ent.Value, error) {
		executed = true
		return 1, nil
	})
	if !errors.Is(err, core.ErrNoTransaction) || executed {
		t.Fatalf("%v, executed %v", err, executed)
	}
}
