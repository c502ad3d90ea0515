package core_test

import (
	"context"
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
	err := publishTx(t.Context(), table, ob, rec.Recorded()...)
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

// An event is refused before anything is written if the publisher of one of its topics can never
// publish it.
func TestTooLargeForThePublisherIsRefused(t *testing.T) {
	large := errors.New("it has more than 10 bytes: raise the broker's limit")
	limited := &outboxtest.Publisher{}
	limited.Sizes(func(e core.Event) error {
		if len(e.Payload)+len(e.Key)+len(e.Headers["h"]) > 10 {
			return large
		}
		return nil
	})
	router := core.NewRouter()
	router.Handle("small", limited)
	router.HandleFunc("any", func(context.Context, core.Delivery) error { return nil })
	only := core.NewRouter()
	only.HandleOther(limited)
	routes := map[string][]string{"both": {"any", "small"}, "elsewhere": {"another process"}}
	for name, tc := range map[string]struct {
		publisher core.Publisher
		event     core.Event
		refused   string // the topic that the error names
	}{
		"fits": {router, core.Event{Type: "t", Topic: "small", Payload: make([]byte, 10)}, ""},
		"payload": {
			router,
			core.Event{Type: "t", Topic: "small", Payload: make([]byte, 11)},
			"small",
		},
		"key": {router, core.Event{
			Type: "t", Topic: "small", AggregateID: "seven77",
			Payload: make([]byte, 4),
		}, "small"},
		"headers": {router, core.Event{
			Type: "t", Topic: "small",
			Headers: map[string]string{"h": "seven77"}, Payload: make([]byte, 4),
		}, "small"},
		"another topic":            {router, core.Event{Type: "t", Topic: "any", Payload: make([]byte, 11)}, ""},
		"one of two topics":        {router, core.Event{Type: "both", Payload: make([]byte, 11)}, "small"},
		"topic of another process": {router, core.Event{Type: "elsewhere", Payload: make([]byte, 11)}, ""},
		"without router":           {limited, core.Event{Type: "t", Payload: make([]byte, 11)}, "t"},
		"router with one for all":  {only, core.Event{Type: "t", Payload: make([]byte, 11)}, "t"},
		"no publisher":             {nil, core.Event{Type: "t", Payload: make([]byte, 11)}, ""},
		"publisher without a limit": {
			core.PublisherFunc(func(context.Context, core.Delivery) error { return nil }),
			core.Event{Type: "t", Payload: make([]byte, 11)},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			repo := outboxtest.NewRepository()
			ob := newOutbox(t, core.Config{Repository: repo, Publisher: tc.publisher, Routes: routes})
			err := repo.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				_, err := ob.Publish(ctx, tx, core.Event{Type: "both"}, tc.event)
				if err != nil && len(repo.Rows()) > 0 {
					t.Error("something was written")
				}
				return err
			})
			switch {
			case tc.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.refused != "" && (!errors.Is(err, core.ErrInvalidEvent) || !errors.Is(err, large) ||
				!strings.Contains(err.Error(), `topic "`+tc.refused+`"`)):
				t.Errorf("err = %v, want ErrInvalidEvent with what the publisher of topic %q says", err, tc.refused)
			}
		})
	}
}
