package adapter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// every calls all methods that can fail.
func every(t *testing.T, p adapter.Operations) map[string]error {
	t.Helper()
	ctx := t.Context()
	errs := map[string]error{"Run": p.Run(ctx), "Drain": p.Drain(ctx)}
	_, errs["Backlog"] = p.Backlog(ctx)
	_, errs["ListDead"] = p.ListDead(ctx, core.DeadQuery{})
	_, errs["Redrive"] = p.Redrive(ctx, core.AdminRequest{})
	_, errs["Discard"] = p.Discard(ctx, core.AdminRequest{})
	_, errs["ResetKeys"] = p.ResetKeys(ctx, "ada", "failover")
	return errs
}

func TestOperationsBeforeOpen(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]adapter.Operations{
		"zero": {},
		"new":  adapter.New(adapter.Config{}, "open it").Operations(),
	} {
		for method, err := range every(t, p) {
			if !errors.Is(err, core.ErrNotInstalled) {
				t.Errorf("%s: %s: %v, want ErrNotInstalled", name, method, err)
			}
		}
		if p.Outbox() != nil {
			t.Errorf("%s: there is an outbox", name)
		}
	}
}

func TestOperationsReportMistakesOfOn(t *testing.T) {
	t.Parallel()
	ob := adapter.New(adapter.Config{}, "open it")
	if err := ob.Open(t.Context(), core.SQLite, pool); err != nil {
		t.Fatal(err)
	}
	adapter.On[order](&ob.Mappers, nil)
	for method, err := range every(t, ob.Operations()) {
		mistake := err != nil && strings.Contains(err.Error(), "On[adapter_test.order] was given a nil function")
		if mistake != (method == "Run" || method == "Drain") {
			t.Errorf("%s: %v", method, err)
		}
	}
	if err := ob.Publish(t.Context(), nil, core.Event{Type: "x"}); err == nil ||
		!strings.Contains(err.Error(), "nil function") {
		t.Errorf("Publish: %v", err)
	}
}

func TestOperationsReachTheOutbox(t *testing.T) {
	t.Parallel()
	ob := adapter.New(adapter.Config{}, "open it")
	if err := ob.Open(t.Context(), core.SQLite, pool); err != nil {
		t.Fatal(err)
	}
	want := map[string]error{
		"Run": core.ErrNoPublisher, "Drain": core.ErrNoPublisher,
		"Redrive": core.ErrInvalidRequest, "Discard": core.ErrInvalidRequest,
	}
	for method, err := range every(t, ob.Operations()) {
		if want[method] == nil {
			want[method] = errNowhere
		}
		if !errors.Is(err, want[method]) {
			t.Errorf("%s: %v, want %v", method, err, want[method])
		}
	}
	if err := ob.Publish(t.Context(), nil, core.Event{Type: "x"}); !errors.Is(err, core.ErrNoTransaction) {
		t.Errorf("Publish: %v", err)
	}
	if err := ob.Check(t.Context(), nil); !errors.Is(err, core.ErrNoTransaction) {
		t.Errorf("Check: %v", err)
	}
}
