package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// An error names its package once, whatever it wraps.
func TestErrorsNameTheirPackageOnce(t *testing.T) {
	checked := 0
	check := func(err error, wants ...error) {
		t.Helper()
		checked++
		for _, want := range wants {
			if !errors.Is(err, want) {
				t.Errorf("%v does not wrap %v", err, want)
			}
		}
		for line := range strings.Lines(err.Error()) {
			for _, name := range []string{": inbox: ", ": once: ", ": outbox: "} {
				if strings.Count(": "+line, name) > 1 {
					t.Errorf("%s", line)
				}
			}
		}
	}
	told := func(i inbox.Info) { check(i.Err) }
	observer := &inbox.Observer{Failed: told, Dead: told}
	w := newWorld(t, func(c *inbox.Config) {
		c.MaxAttempts = 1
		c.Observer = observer
	})
	process := func(msg inbox.Message, err error) error {
		return w.in.Process(t.Context(), msg, func(context.Context, core.Tx, inbox.Message) error { return err }).Err
	}
	check(process(inbox.Message{}, nil), inbox.ErrInvalidMessage, inbox.ErrNoID)
	check(process(message(strings.Repeat("x", 300)), nil), inbox.ErrInvalidMessage, inbox.ErrInvalidKey)
	for n, err := range []error{
		inbox.ErrNoID, fmt.Errorf("inbox: another one: %w", inbox.ErrInProgress), once.ErrInvalidKey,
		core.ErrNoTransaction,
	} {
		id := fmt.Sprint(n)
		check(process(message(id), err), inbox.ErrDead, err)
		check(process(message(id), err), inbox.ErrDead) // as the table tells it
	}
	in := core.ContextWithTx(t.Context(), &outboxtest.Tx{})
	check(w.in.Process(in, message("e"), w.apply).Err, inbox.ErrInTransaction)
	check(w.in.ProcessBatch(in, []inbox.Message{message("e")}, nil)[0].Err, inbox.ErrInTransaction)
	canceled, cancel := context.WithCancelCause(t.Context())
	check(w.in.Process(canceled, message("f"), func(context.Context, core.Tx, inbox.Message) error {
		cancel(inbox.ErrInProgress)
		return inbox.ErrNoID
	}).Err, inbox.ErrNoID)
	_, err := w.in.Redrive(t.Context(), inbox.RedriveRequest{})
	check(err, inbox.ErrInvalidRequest)
	_, err = w.in.Redrive(t.Context(), inbox.RedriveRequest{Keys: []inbox.Key{{Consumer: "other"}}})
	check(err, inbox.ErrInvalidRequest)

	for _, store := range []once.Store{outboxtest.NewOnceStore(), doneBefore{outboxtest.NewOnceStore()}} {
		runner, err := once.New(once.Config{Store: store, Wait: -1})
		if err != nil {
			t.Fatal(err)
		}
		a, err := inbox.NewAtLeastOnce(inbox.AtLeastOnceConfig{
			Consumer: "mailer", Handler: "mail", Runner: runner, MaxAttempts: 1, MinAge: -1,
			Logger: slog.New(slog.DiscardHandler), Observer: observer,
		})
		if err != nil {
			t.Fatal(err)
		}
		check(a.Process(t.Context(), inbox.Message{}, nil).Err, inbox.ErrNoID)
		a.Process(t.Context(), message("e"), func(context.Context, inbox.Message) error { return inbox.ErrNoID })
		a.Process(t.Context(), message("f"), func(ctx context.Context, _ inbox.Message) error {
			return a.Process(ctx, message("f"), nil).Err
		})
	}
	if checked < 20 {
		t.Errorf("%d errors were checked", checked)
	}
}
