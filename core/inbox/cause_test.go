package inbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// publishing returns a handler that publishes an event, and what the event then says of its cause.
func publishing(t *testing.T, w *world) (h inbox.Handler, cause func() string) {
	t.Helper()
	ob, err := core.New(core.Config{Repository: w.repo})
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, tx core.Tx, _ inbox.Message) error {
			_, err := ob.Publish(ctx, tx, core.Event{Type: "out"})
			return err
		}, func() string {
			t.Helper()
			return lastCause(t, w.repo)
		}
}

func lastCause(t *testing.T, repo *outboxtest.Repository) string {
	t.Helper()
	rows := repo.Rows()
	if len(rows) == 0 {
		t.Fatal("nothing was published")
	}
	h := rows[len(rows)-1].Event.Headers
	return fmt.Sprint(h[core.HeaderCausationID], " of ", h[core.HeaderCorrelationID])
}

// The event that a handler publishes has the id of the handled event as its cause, and its chain.
func TestProcessCarriesTheCause(t *testing.T) {
	named := func(id string, headers ...string) inbox.Message {
		m := message("", headers...)
		delete(m.Headers, core.HeaderEventID)
		m.ID = id
		return m
	}
	structured := inbox.Message{
		Headers: map[string]string{"content-type": "application/cloudevents+json"},
		Payload: []byte(`{"specversion":"1.0","id":"e","source":"/s","type":"t","correlationid":"c"}`),
	}
	for name, c := range map[string]struct {
		msg  inbox.Message
		want string
	}{
		"it begins the chain": {message("e"), "e of e"},
		"in a chain":          {message("e", core.HeaderCorrelationID, "c"), "e of c"},
		"a caused one":        {message("e", core.HeaderCorrelationID, "c", core.HeaderCausationID, "d"), "e of c"},
		"an odd chain":        {message("e", core.HeaderCorrelationID, "a\x00b"), "e of e"},
		"without an event id": {named("uuid"), "uuid of uuid"},
		"a CloudEvent": {
			named("", "ce_id", "e", "ce_source", "/s", "ce_correlationid", "c"), "e of c",
		},
		"a structured CloudEvent": {structured, "e of c"},
		"under another identity": {
			inbox.Message{ID: "tenant e", Headers: map[string]string{core.HeaderEventID: "e"}}, "e of e",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			h, cause := publishing(t, w)
			w.wants(w.in.Process(t.Context(), c.msg, h), inbox.Ack, nil)
			if got := cause(); got != c.want {
				t.Errorf("published by %s, want %s", got, c.want)
			}
		})
	}
}

// A message that is handled again, after a failure, causes its event as the first time. A handler
// that lost its context causes nothing.
func TestTheCauseOfARetry(t *testing.T) {
	w := newWorld(t)
	h, cause := publishing(t, w)
	failures := 1
	again := func(ctx context.Context, tx core.Tx, m inbox.Message) error {
		if err := h(ctx, tx, m); err != nil || failures == 0 {
			return err
		}
		failures--
		return errHandler
	}
	w.wants(w.in.Process(t.Context(), message("e"), again), inbox.Retry, errHandler)
	w.wants(w.in.Process(t.Context(), message("e"), again), inbox.Ack, nil)
	if got := cause(); got != "e of e" || len(w.repo.Rows()) != 1 {
		t.Errorf("published by %s, %d rows", got, len(w.repo.Rows()))
	}
	w.wants(w.in.Process(t.Context(), message("f"), func(_ context.Context, tx core.Tx, m inbox.Message) error {
		return h(context.Background(), tx, m)
	}), inbox.Ack, nil)
	if got := cause(); got != " of " || len(w.repo.Rows()) != 2 {
		t.Errorf("a lost context caused %s", got)
	}
}

// A batch passes on the chain that all its messages share, and the cause if it is one message.
func TestABatchPassesOnASharedChain(t *testing.T) {
	in := func(chain, id string) inbox.Message { return message(id, core.HeaderCorrelationID, chain) }
	for name, c := range map[string]struct {
		batch []inbox.Message
		seen  string // was processed before
		want  string
	}{
		"one message":                {[]inbox.Message{in("c", "a")}, "", "a of c"},
		"one chain":                  {[]inbox.Message{in("c", "a"), in("c", "b")}, "", " of c"},
		"a chain and its first":      {[]inbox.Message{message("c"), in("c", "b")}, "", " of c"},
		"two chains":                 {[]inbox.Message{in("c", "a"), in("d", "b")}, "", " of "},
		"two chains and back":        {[]inbox.Message{in("c", "a"), in("d", "b"), in("c", "e")}, "", " of "},
		"two chains, then one twice": {[]inbox.Message{in("c", "a"), in("d", "b"), in("d", "e")}, "", " of "},
		"two that begin theirs":      {[]inbox.Message{message("a"), message("b")}, "", " of "},
		"one is seen before":         {[]inbox.Message{in("c", "a"), in("d", "b")}, "a", "b of d"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			h, cause := publishing(t, w)
			if c.seen != "" {
				w.wants(w.in.Process(t.Context(), message(c.seen), w.apply), inbox.Ack, nil)
			}
			for _, r := range w.in.ProcessBatch(t.Context(), c.batch,
				func(ctx context.Context, tx core.Tx, fresh []inbox.Message) error { return h(ctx, tx, fresh[0]) }) {
				w.wants(r, inbox.Ack, nil)
			}
			if got := cause(); got != c.want {
				t.Errorf("published by %s, want %s", got, c.want)
			}
		})
	}
}

// A message of a batch that failed is handled alone, and then causes its event alone.
func TestAMessageOfAFailedBatchCausesAlone(t *testing.T) {
	w := newWorld(t)
	h, cause := publishing(t, w)
	for _, r := range w.in.ProcessBatch(t.Context(), []inbox.Message{message("a"), message("b")},
		func(ctx context.Context, tx core.Tx, fresh []inbox.Message) error {
			if len(fresh) > 1 {
				return errHandler
			}
			return h(ctx, tx, fresh[0])
		}) {
		w.wants(r, inbox.Ack, nil)
	}
	if got := cause(); got != "b of b" {
		t.Errorf("published by %s", got)
	}
}

// The same without a transaction, under a lease.
func TestAtLeastOnceCarriesTheCause(t *testing.T) {
	repo := outboxtest.NewRepository()
	ob, err := core.New(core.Config{Repository: repo})
	if err != nil {
		t.Fatal(err)
	}
	runner, err := once.New(once.Config{Store: repo.OnceStore()})
	if err != nil {
		t.Fatal(err)
	}
	a, err := inbox.NewAtLeastOnce(inbox.AtLeastOnceConfig{Consumer: "billing", Handler: "invoice", Runner: runner})
	if err != nil {
		t.Fatal(err)
	}
	r := a.Process(t.Context(), message("e", core.HeaderCorrelationID, "c"),
		func(ctx context.Context, _ inbox.Message) error {
			return repo.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
				_, err := ob.Publish(ctx, tx, core.Event{Type: "out"})
				return err
			})
		})
	if got := lastCause(t, repo); r.Action != inbox.Ack || got != "e of c" {
		t.Errorf("%s %v: published by %s", r.Action, r.Err, got)
	}
}
