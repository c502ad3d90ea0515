package core_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// New refuses a publisher that would fail for the first event.
func TestNilPublishersAreRefused(t *testing.T) {
	router := func(fill func(*core.Router)) core.Publisher {
		r := core.NewRouter()
		fill(r)
		return r
	}
	for want, p := range map[string]core.Publisher{
		"nil core.PublisherFunc":           core.PublisherFunc(nil),
		"nil *core.Router":                 (*core.Router)(nil),
		`Router.Handle("a") was given nil`: router(func(r *core.Router) { r.Handle("a", nil) }),
		`Router.Handle("b"): it is a nil`:  router(func(r *core.Router) { r.HandleFunc("b", nil) }),
		"Router.HandleOther: it is a nil":  router(func(r *core.Router) { r.HandleOther(core.PublisherFunc(nil)) }),
		"Publisher serves no topic":        core.NewRouter(),
		`Router.Handle("in"): Router.Handle`: router(func(r *core.Router) {
			r.Handle("in", router(func(r *core.Router) { r.Handle("x", nil) }))
		}),
	} {
		_, err := core.New(core.Config{Repository: outboxtest.NewRepository(), Publisher: p})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %q", err, want)
		}
	}
}

func TestUntypedDataNamesItsGoType(t *testing.T) {
	type orderPlaced struct{ OrderID string }
	table := outboxtest.NewRepository()
	ob := newOutbox(t, core.Config{Repository: table})
	var rec core.Recorder
	rec.Record(orderPlaced{"7"})
	err := publishTx(t.Context(), table.Transactor(), ob, rec.Recorded()...)
	if !errors.Is(err, core.ErrInvalidEvent) || !strings.Contains(err.Error(),
		"core_test.orderPlaced a method EventType() string") {
		t.Fatalf("%v", err)
	}
}

func TestPublishInAnEndedTransaction(t *testing.T) {
	table := outboxtest.NewRepository()
	ob := newOutbox(t, core.Config{Repository: table})
	tx, err := table.Begin(t.Context())
	must(t, err)
	must(t, tx.Commit())
	// The error is not ErrTxAborted, because a caller would then run the transaction again and do
	// committed work twice.
	if _, err := ob.Publish(t.Context(), tx, core.Event{Type: "a"}); !errors.Is(err, core.ErrNoTransaction) ||
		errors.Is(err, core.ErrTxAborted) {
		t.Fatalf("%v, want ErrNoTransaction", err)
	}
}
