package gormoutbox_test

import (
	"errors"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

// The methods of an outbox that was not made by the package return an error.
func TestOutboxNotInstalled(t *testing.T) {
	t.Parallel()
	var missing *gormoutbox.Outbox
	if err := missing.Publish(t.Context(), nil, core.Event{Type: "x"}); !errors.Is(err, core.ErrNotInstalled) {
		t.Errorf("nil: Publish: %v, want ErrNotInstalled", err)
	}
	ctx, ob := t.Context(), &gormoutbox.Outbox{}
	errs := map[string]error{
		"Run": ob.Run(ctx), "Drain": ob.Drain(ctx), "Publish": ob.Publish(ctx, nil, core.Event{Type: "x"}),
	}
	_, errs["Backlog"] = ob.Backlog(ctx)
	_, errs["ListDead"] = ob.ListDead(ctx, core.DeadQuery{})
	_, errs["Redrive"] = ob.Redrive(ctx, core.AdminRequest{})
	_, errs["Discard"] = ob.Discard(ctx, core.AdminRequest{})
	_, errs["ResetKeys"] = ob.ResetKeys(ctx, "ada", "failover")
	for method, err := range errs {
		if !errors.Is(err, core.ErrNotInstalled) {
			t.Errorf("%s: %v, want ErrNotInstalled", method, err)
		}
	}
	if ob.Outbox() != nil {
		t.Error("there is a core.Outbox")
	}
}
