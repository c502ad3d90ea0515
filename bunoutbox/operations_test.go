package bunoutbox_test

import (
	"errors"
	"testing"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
)

// The methods of an outbox that is nil, or was not made by the package, return an error.
func TestOutboxNotInstalled(t *testing.T) {
	t.Parallel()
	for name, ob := range map[string]*bunoutbox.Outbox{"nil": nil, "zero": {}} {
		ctx := t.Context()
		errs := map[string]error{
			"Run": ob.Run(ctx), "Drain": ob.Drain(ctx), "Publish": ob.Publish(ctx, nil, core.Event{Type: "x"}),
		}
		_, errs["Backlog"] = ob.Backlog(ctx)
		_, errs["ListDead"] = ob.ListDead(ctx, core.DeadQuery{})
		_, errs["Redrive"] = ob.Redrive(ctx, core.AdminRequest{})
		_, errs["Discard"] = ob.Discard(ctx, core.AdminRequest{})
		_, errs["ResetKeys"] = ob.ResetKeys(ctx)
		for method, err := range errs {
			if !errors.Is(err, core.ErrNotInstalled) {
				t.Errorf("%s: %s: %v, want ErrNotInstalled", name, method, err)
			}
		}
		if ob.Outbox() != nil {
			t.Errorf("%s: there is a core.Outbox", name)
		}
	}
}
