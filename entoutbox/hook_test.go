package entoutbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"entgo.io/ent"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/entoutbox"
)

// world is a client and an outbox in memory.
type world struct {
	testing.TB
	*Client
	ob   *entoutbox.Outbox
	repo *outboxtest.Repository
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, repo: outboxtest.NewRepository()}
	shared, err := core.New(core.Config{Repository: w.repo})
	if err != nil {
		t.Fatal(err)
	}
	if w.ob, err = entoutbox.New(memory(), entoutbox.Config{Outbox: shared}); err != nil {
		t.Fatal(err)
	}
	w.Client = NewClient(w.ob.Driver())
	return w
}

func (w *world) want(events ...string) {
	w.Helper()
	var got []string
	for _, r := range w.repo.Rows() {
		got = append(got, r.Event.Type+" "+r.Event.AggregateID)
	}
	if !slices.Equal(got, events) {
		w.Fatalf("recorded %q, want %q", got, events)
	}
}

func byStatus(_ context.Context, m *OrderMutation, v ent.Value) ([]core.Event, error) {
	if m.status != v.(*Order).Status {
		return nil, fmt.Errorf("%s was stored for %s", v.(*Order).Status, m.status)
	}
	return []core.Event{{Type: m.status}}, nil
}

// Outside of a transaction a statement that causes events has one of its own. Its row and its event
// commit together.
func TestHookWithoutTransaction(t *testing.T) {
	w := newWorld(t)
	w.Use(w.ob.Hook(entoutbox.OnMutation(byStatus)))
	if _, err := w.CreateOrder(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.want("a 1")
	fails := newWorld(t)
	fails.Use(fails.ob.Hook(entoutbox.OnMutation(func(context.Context, ent.Mutation, ent.Value) ([]core.Event, error) {
		return []core.Event{{Type: "lost"}}, errDown
	})))
	if _, err := fails.CreateOrder(t.Context(), "a"); !errors.Is(err, errDown) {
		t.Errorf("%v, want the error of the function", err)
	}
	fails.want()
}

// strangeMutation was not generated.
type strangeMutation struct{ ent.Mutation }

func (*strangeMutation) Op() ent.Op   { return ent.OpCreate }
func (*strangeMutation) Type() string { return "Strange" }

// Code that Ent did not generate as this package knows it is refused before it is executed, as is a
// client on another driver.
func TestHookOfUnknownCode(t *testing.T) {
	w := newWorld(t)
	executed := false
	hook := w.ob.Hook()(ent.MutateFunc(func(context.Context, ent.Mutation) (ent.Value, error) {
		executed = true
		return 1, nil
	}))
	if _, err := hook.Mutate(t.Context(), &strangeMutation{}); err == nil ||
		!strings.Contains(err.Error(), "a version of Ent that is not known") || executed {
		t.Errorf("%v, executed %v", err, executed)
	}
	bare := NewClient(memory())
	bare.Use(w.ob.Hook())
	if _, err := bare.CreateOrder(t.Context(), "a"); !errors.Is(err, core.ErrNotInstalled) {
		t.Errorf("%v, want ErrNotInstalled", err)
	}
}

// BenchmarkHook measures the cost of the hook for a mutation without events.
func BenchmarkHook(b *testing.B) {
	for name, mappers := range map[string][]entoutbox.Mapper{
		"without functions": nil,
		"nil": {entoutbox.OnMutation(func(context.Context, *OrderMutation, ent.Value) ([]core.Event, error) {
			return nil, nil
		})},
	} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			w.Use(w.ob.Hook(mappers...))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.CreateOrder(b.Context(), "a"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
