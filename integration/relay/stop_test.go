package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// warnings fails its test for each line that an alert may hang on.
type warnings struct {
	slog.Handler
	t *testing.T
}

func (w warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (w warnings) WithAttrs([]slog.Attr) slog.Handler           { return w }
func (w warnings) WithGroup(string) slog.Handler                { return w }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	w.t.Errorf("%s: %s", r.Level, r.Message)
	return nil
}

// A relay that stops in the middle of its work says nothing, and nothing is lost.
func TestCleanStopsSayNothing(t *testing.T) {
	if testing.Short() {
		return // takes long
	}
	t.Parallel()
	const stops, each = 60, 20
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		p := fixture.NewProcess(t, db, core.Config{Logger: slog.New(warnings{t: t})})
		for n := range stops {
			stop := p.Run()
			for k := range each {
				p.Publish(core.Event{
					Type: "t", Topic: fmt.Sprint("t", k%3), Key: fmt.Sprint(k % 5), Payload: []byte("{}"),
				})
			}
			if n%2 == 0 {
				fixture.Await(t, "it is in the middle", func() bool { return p.Statuses()[1] > n*each/2 })
			}
			stop()
		}
		stop := p.Run()
		p.AwaitDone(stops * each)
		stop()
	})
}
