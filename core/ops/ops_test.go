package ops_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
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

// other is a Repository that cannot be listed.
type other struct{ core.Repository }

func (other) CheckTx(context.Context, core.Tx) error { return nil }

func TestNewRefuses(t *testing.T) {
	if _, err := ops.New(nil); err == nil {
		t.Error("a nil Outbox was accepted")
	}
	ob, err := core.New(core.Config{Repository: other{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ops.New(ob); err == nil || !strings.Contains(err.Error(), "ops.Store") {
		t.Errorf("a Repository that is no Store: %v", err)
	}
}
