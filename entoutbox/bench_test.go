package entoutbox_test

import (
	"context"
	"testing"

	"entgo.io/ent"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
)

// BenchmarkHook measures the cost of the hook for a mutation without events.
func BenchmarkHook(b *testing.B) {
	w := newWorld(b)
	none := entoutbox.OnMutation(func(context.Context, *fakeMutation, ent.Value) ([]core.Event, error) {
		return nil, nil
	})
	for name, hooks := range map[string][]ent.Hook{
		"without": nil, "taken": {w.ob.Hook(none)},
		"other type": {w.ob.Hook(ofEdges)},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			ctx := b.Context()
			m := w.create("a", 1)
			for b.Loop() {
				_ = mutate(ctx, m, hooks, func(context.Context) (ent.Value, error) { return 1, nil })
			}
		})
	}
}
