package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

func TestStatusNames(t *testing.T) {
	text, err := json.Marshal([]ops.Status{
		ops.StatusNew, ops.StatusDone, ops.StatusRetry, ops.StatusDead,
		ops.StatusDiscarded,
	})
	if want := `["new","done","retry","dead","discarded"]`; err != nil || string(text) != want {
		t.Errorf("%s %v, want %s", text, err, want)
	}
	var back []ops.Status
	if err := json.Unmarshal(text, &back); err != nil || len(back) != 5 || back[3] != ops.StatusDead {
		t.Errorf("%v %v", back, err)
	}
	if _, err := ops.ParseStatus("asleep"); err == nil || !strings.Contains(err.Error(), "discarded") {
		t.Errorf("an unknown name: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := ops.New(nil, outboxtest.NewRepository()); err == nil {
		t.Error("a nil Outbox was accepted")
	}
}

// A Store that knows no tables beside its own has none of them.
func TestNothingBeside(t *testing.T) {
	repo := outboxtest.NewRepository()
	ob, err := core.New(core.Config{Repository: repo})
	if err != nil {
		t.Fatal(err)
	}
	api, err := ops.New(ob, repo)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if c, err := api.Consumers(ctx); err != nil || c.There {
		t.Errorf("%+v, %v", c, err)
	}
	if m, err := api.Messages(ctx, inbox.FailedQuery{}); err != nil || m.There {
		t.Errorf("%+v, %v", m, err)
	}
	if e, err := api.ListEffects(ctx, command.Query{}); err != nil || e.There {
		t.Errorf("%+v, %v", e, err)
	}
	if k, err := api.IdempotencyKeys(ctx); err != nil || k.There {
		t.Errorf("%+v, %v", k, err)
	}
	if _, err := api.RedriveMessages(ctx, ops.MessageRequest{}); !errors.Is(err, core.ErrNoTables) {
		t.Errorf("redrive: %v", err)
	}
}

// desk is an inbox with a prefix.
type desk struct{ inbox.Desk }

func (desk) Backlog(context.Context, int) ([]inbox.Backlog, error) {
	return []inbox.Backlog{{Consumer: "billing"}}, nil
}

type prefixed struct{ *outboxtest.Repository }

func (prefixed) Beside() ops.Beside { return ops.Beside{Inbox: desk{}} }

// A program brings the tables of another prefix.
func TestBesideOfAnotherPrefix(t *testing.T) {
	repo := prefixed{outboxtest.NewRepository()}
	ob, err := core.New(core.Config{Repository: repo})
	if err != nil {
		t.Fatal(err)
	}
	api, err := ops.New(ob, repo)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := api.Consumers(t.Context()); err != nil || !c.There || c.Handlers[0].Consumer != "billing" {
		t.Errorf("%+v, %v", c, err)
	}
	if e, err := api.Effects(t.Context()); err != nil || e.There {
		t.Errorf("%+v, %v", e, err)
	}
}
