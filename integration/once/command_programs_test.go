package once_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// Two programs whose workers execute one channel are told, on each database.
func TestTwoProgramsOfOneChannel(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		for _, c := range []struct {
			channel, program string
			others           []string
		}{
			{"mail", "example.com/a", nil},
			{"mail", "example.com/a", nil},
			{"fax", "example.com/b", nil},
			{"mail", "example.com/b", []string{"example.com/a"}},
			{"mail", "example.com/a", []string{"example.com/b"}},
		} {
			others, err := w.store.Register(t.Context(), c.channel, c.program)
			if err != nil || !slices.Equal(others, c.others) {
				t.Errorf("%s registers %s: %v, %v, want %v", c.program, c.channel, others, err, c.others)
			}
		}
		shared, err := w.store.Shared(t.Context())
		if err != nil || len(shared) != 1 || !slices.Equal(shared["mail"], []string{"example.com/a", "example.com/b"}) {
			t.Errorf("shared are %v, %v", shared, err)
		}
		var log bytes.Buffer
		worker := w.worker(func(context.Context, command.Effect) (string, error) { return "", nil },
			func(c *command.WorkerConfig) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		for range 2 {
			_ = worker.Publish(t.Context(), core.Delivery{Event: core.Event{
				AggregateID: "none", Topic: command.Topic("mail"),
			}})
		}
		fixture.Check(t, strings.Count(log.String(), "another program") == 2, "logged %s", log.String())
	})
}
