package outboxui

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// dead is a table with so many dead effects.
type dead struct {
	command.Store
	many int
}

func (d dead) Backlog(context.Context, int) ([]command.Backlog, error) { return nil, nil }

func (d dead) List(_ context.Context, q command.Query) (page []command.Record, _ error) {
	first := 1
	if q.After != "" {
		if _, err := fmt.Sscanf(q.After, "effect-%d", &first); err != nil {
			return nil, err
		}
		first++
	}
	for n := first; n <= d.many && len(page) < q.Limit; n++ {
		page = append(page, command.Record{
			Effect: command.Effect{ID: fmt.Sprintf("effect-%d", n), Channel: "mail"}, Status: command.StatusDead,
		})
	}
	return page, nil
}

type withEffects struct {
	ops.Store
	effects command.Store
}

func (s withEffects) Beside() ops.Beside { return ops.Beside{Effects: s.effects} }

// The page looks at a bounded number of dead effects. It does not say of those behind them that
// somebody else was faster.
func TestEffectsFarBehind(t *testing.T) {
	t.Parallel()
	ob := outboxtest.NewOutbox(t, core.Config{Logger: slog.New(slog.DiscardHandler)})
	api := func(many int) *ops.API {
		api, err := ops.New(ob.Outbox, withEffects{ob.Repository, dead{many: many}})
		must(t, err)
		return api
	}
	w := newWorld(t, Config{Outboxes: []Outbox{
		{Name: "few", API: api(3), Database: "few"},
		{Name: "many", API: api(lookedAt + 1), Database: "many"},
	}})
	defer func() { must(t, w.page.Close()) }()
	last := fmt.Sprintf("effect-%d", lookedAt+1)
	for path, words := range map[string]string{
		"few/confirm?do=effect-redrive&effect=gone":                 "is dead any more: somebody else",
		"few/confirm?do=effect-redrive&effect=gone&effect=effect-2": "1 that is not dead any more",

		"many/confirm?do=effect-redrive&effect=" + last:                  "among the first 10,000 dead ones",
		"many/confirm?do=effect-discard&effect=effect-1&effect=" + last:  "1 not found among the first 10,000",
		"many/confirm?do=effect-redrive&effect=effect-1&effect=effect-2": "Execute 2 effects",
	} {
		res := w.get("/" + path)
		if res.Code != http.StatusOK && res.Code != http.StatusConflict {
			t.Errorf("%s: %d", path, res.Code)
		}
		says(t, res.Body.String(), words)
	}
}
