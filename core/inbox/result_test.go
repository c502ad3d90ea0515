package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// open wants Retry, an error that is not Final, and no dead event in the table.
func (w *world) open(results ...inbox.Result) {
	w.t.Helper()
	for n, r := range results {
		if r.Action != inbox.Retry || r.Err == nil || inbox.Final(r.Err) {
			w.t.Errorf("result %d: %s, %v; final: %t", n, r.Action, r.Err, inbox.Final(r.Err))
		}
	}
	if w.store == nil {
		return
	}
	if list, err := w.in.ListDead(context.Background(), inbox.DeadQuery{}); len(list) != 0 || err != nil {
		w.t.Errorf("%d dead events, %v", len(list), err)
	}
}

// brokenStore cannot record a failure.
type brokenStore struct{ inbox.Store }

func (brokenStore) Fail(context.Context, inbox.Failure) (inbox.State, int, error) {
	return 0, 0, errors.New("connection refused")
}

// finals are errors which say that something else is final.
func finals() []error {
	return []error{
		core.Permanent(errHandler), fmt.Errorf("other: %w", inbox.ErrDead),
		fmt.Errorf("other: %w", inbox.ErrInvalidMessage),
	}
}

// An event is dead when the inbox gave it up, and never because of an error that says so of another
// event: that of a handler, or the cause for which a context ended. errgroup.WithContext, for
// example, ends its context with the error of the first worker that fails.
func TestDeadIsDecidedByTheInbox(t *testing.T) {
	for _, final := range finals() {
		t.Run(final.Error(), func(t *testing.T) {
			ended, cancel := context.WithCancelCause(t.Context())
			cancel(final)
			w := newWorld(t)
			w.open(w.in.Process(ended, message("a"), w.apply))
			w.open(w.in.ProcessBatch(ended, []inbox.Message{message("b"), message("c")},
				func(context.Context, core.Tx, []inbox.Message) error { return nil })...)

			stopping, stop := context.WithCancel(t.Context())
			w.open(w.in.Process(stopping, message("d"), func(context.Context, core.Tx, inbox.Message) error {
				stop()
				return final
			}))
			stopping, stop = context.WithCancel(t.Context())
			w.open(w.in.ProcessBatch(stopping, []inbox.Message{message("e"), message("f")},
				func(context.Context, core.Tx, []inbox.Message) error {
					stop()
					return final
				})...)
			late, release := context.WithTimeout(t.Context(), time.Millisecond)
			defer release()
			w.open(w.in.ProcessBatch(late, []inbox.Message{message("g"), message("h")},
				func(ctx context.Context, _ core.Tx, _ []inbox.Message) error {
					<-ctx.Done()
					return final
				})...)

			w = newWorld(t, func(c *inbox.Config) { c.Store = brokenStore{c.Store} })
			w.open(w.in.Process(t.Context(), message("i"), func(context.Context, core.Tx, inbox.Message) error {
				return final
			}))
			w.open(w.in.ProcessBatch(t.Context(), []inbox.Message{message("j")},
				func(context.Context, core.Tx, []inbox.Message) error { return final })...)
		})
	}
}

// An error that wraps ErrDead or ErrInvalidMessage spends an attempt, as any other does. When the
// attempts are spent, the event is dead and the error is Final.
func TestErrorsOfAnotherInboxAreOrdinary(t *testing.T) {
	for _, final := range finals()[1:] {
		w := newWorld(t, func(c *inbox.Config) { c.MaxAttempts = 2 })
		fail := func(context.Context, core.Tx, inbox.Message) error { return final }
		inner := w.in.Process(t.Context(), message("e"), fail)
		w.open(inner)
		if !errors.Is(inner.Err, final) {
			t.Errorf("%v does not wrap %v", inner.Err, final)
		}
		// An error that another inbox left open is no reason to leave this event open.
		final = inner.Err
		r := w.in.Process(t.Context(), message("e"), fail)
		if w.wants(r, inbox.Dead, inbox.ErrDead); !inbox.Final(fmt.Errorf("wrapped: %w", r.Err)) {
			t.Errorf("%v is not final", r.Err)
		}
		batch := func(context.Context, core.Tx, []inbox.Message) error { return final }
		w.wants(w.in.ProcessBatch(t.Context(), []inbox.Message{message("f")}, batch)[0], inbox.Retry, final)
		w.wants(w.in.ProcessBatch(t.Context(), []inbox.Message{message("f")}, batch)[0], inbox.Dead, inbox.ErrDead)
	}
}

// A transaction that the function of a batch ended says nothing about a message.
func TestEndedBatchIsNotDead(t *testing.T) {
	w := newWorld(t)
	w.open(w.in.ProcessBatch(t.Context(), []inbox.Message{message("a"), message("b")},
		func(_ context.Context, tx core.Tx, _ []inbox.Message) error {
			ended, ok := tx.(*outboxtest.Tx)
			if !ok {
				t.Fatalf("%T", tx)
			}
			return errors.Join(ended.Commit(), core.Permanent(errHandler))
		})...)
}

// The mode with a lease decides in the same way.
func TestDeadIsDecidedByAtLeastOnce(t *testing.T) {
	for _, final := range append(finals(), fmt.Errorf("other: %w", once.ErrInvalidKey)) {
		t.Run(final.Error(), func(t *testing.T) {
			w, keys := &world{t: t}, once.Config{Store: outboxtest.NewOnceStore()}
			a := newAtLeastOnce(t, keys, inbox.AtLeastOnceConfig{MaxAttempts: 2})
			ended, cancel := context.WithCancelCause(t.Context())
			cancel(final)
			w.open(a.Process(ended, message("a"), func(context.Context, inbox.Message) error {
				t.Error("the handler ran")
				return nil
			}))
			stopping, stop := context.WithCancel(t.Context())
			w.open(a.Process(stopping, message("b"), func(context.Context, inbox.Message) error {
				stop()
				return final
			}))
			fail := func(context.Context, inbox.Message) error { return final }
			if class, marked := core.ClassOf(final); marked && class == core.ClassPermanent {
				w.wants(a.Process(t.Context(), message("c"), fail), inbox.Dead, inbox.ErrDead)
				return
			}
			w.open(a.Process(t.Context(), message("c"), fail))
			w.wants(a.Process(t.Context(), message("c"), fail), inbox.Dead, inbox.ErrDead)
		})
	}
}

// A message without an id is dead, and no table has it. So the observer gets everything that says
// where the message is.
func TestInvalidMessageIsToldAsDead(t *testing.T) {
	var told []inbox.Info
	var records recorder
	w := newWorld(t, func(c *inbox.Config) {
		c.Observer = &inbox.Observer{
			Dead:   func(i inbox.Info) { told = append(told, i) },
			Failed: func(i inbox.Info) { t.Errorf("failed: %+v", i) },
		}
		c.Logger = slog.New(&records)
	})
	msg := inbox.Message{
		Topic: "orders", Partition: 3, Offset: 9, Located: true, Handler: "h",
		Headers: map[string]string{core.HeaderTenantID: "acme", core.HeaderEventType: "placed"},
	}
	want := inbox.Event{
		Key:  inbox.Key{Consumer: "billing", Handler: "h", Tenant: "acme"},
		Type: "placed", Topic: "orders", Partition: 3, Offset: 9, Located: true,
	}
	w.wants(w.in.Process(t.Context(), msg, w.apply), inbox.Dead, inbox.ErrInvalidMessage)
	rs := w.in.ProcessBatch(t.Context(), []inbox.Message{msg}, nil)
	w.wants(rs[0], inbox.Dead, inbox.ErrInvalidMessage)
	if len(told) != 2 {
		t.Fatalf("told %d times", len(told))
	}
	for _, i := range told {
		if i.Event != want || !errors.Is(i.Err, inbox.ErrInvalidMessage) || i.Attempt != 0 {
			t.Errorf("%+v; want %+v", i, want)
		}
	}
	for _, attr := range []string{"consumer=billing", "handler=h", "topic=orders", "partition=3", "offset=9"} {
		if len(records) != 2 || !slices.Contains(records[0], attr) {
			t.Errorf("%v has no %s", records, attr)
		}
	}
}

// recorder keeps the attributes of each record.
type recorder [][]string

func (*recorder) Enabled(context.Context, slog.Level) bool          { return true }
func (r *recorder) WithAttrs(attrs []slog.Attr) slog.Handler        { return recorded{r, attrs} }
func (r *recorder) WithGroup(string) slog.Handler                   { return r }
func (r *recorder) Handle(_ context.Context, rec slog.Record) error { return r.add(rec, nil) }

// recorded has the attributes of a Logger.
type recorded struct {
	*recorder
	attrs []slog.Attr
}

func (r recorded) Handle(_ context.Context, rec slog.Record) error { return r.add(rec, r.attrs) }

func (r *recorder) add(rec slog.Record, with []slog.Attr) error {
	var attrs []string
	for _, a := range with {
		attrs = append(attrs, a.String())
	}
	rec.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a.String())
		return true
	})
	*r = append(*r, attrs)
	return nil
}

// A context that carries a transaction is refused each time, so a loop with Again has to pause.
func TestAgainPausesInsideATransaction(t *testing.T) {
	for _, pause := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, func(c *inbox.Config) { c.RetryPause = pause })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			rounds := 0
			_ = w.repo.Transactor().RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
				res := w.in.Process(ctx, message("e"), w.apply)
				for ; res.Again(ctx) && rounds < 1000; rounds++ {
					res = w.in.Process(ctx, message("e"), w.apply)
				}
				w.wants(res, inbox.Retry, inbox.ErrInTransaction)
				rs := w.in.ProcessBatch(ctx, []inbox.Message{message("e")}, nil)
				w.wants(rs[0], inbox.Retry, inbox.ErrInTransaction)
				if rs[0].After == 0 {
					t.Error("a batch has no pause")
				}
				return nil
			})
			if rounds > 30 {
				t.Errorf("%d rounds in a second", rounds)
			}
		})
	}
}

// The answer of Config.Tenant is final, also the empty one.
func TestTenantOfConfig(t *testing.T) {
	w := newWorld(t, func(c *inbox.Config) { c.Tenant = func(inbox.Message) string { return "" } })
	for _, msg := range []inbox.Message{message("e", core.HeaderTenantID, "acme"), message("e")} {
		w.wants(w.in.Process(t.Context(), msg, w.apply), inbox.Ack, nil)
		if e, err := w.in.Event(msg); e.Tenant != "" || err != nil {
			t.Errorf("tenant %q, %v", e.Tenant, err)
		}
	}
	if w.effects["e"] != 1 {
		t.Errorf("%d effects", w.effects["e"])
	}
	msg := message("e")
	msg.Tenant = "t"
	if e, _ := w.in.Event(msg); e.Tenant != "t" {
		t.Errorf("tenant %q", e.Tenant)
	}
}

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
	check(process(inbox.Message{}, nil), inbox.ErrInvalidMessage)
	check(process(message(strings.Repeat("x", 300)), nil), inbox.ErrInvalidMessage)
	for n, err := range []error{
		errHandler, fmt.Errorf("inbox: another one: %w", inbox.ErrInProgress), once.ErrInvalidKey,
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
		return errHandler
	}).Err, errHandler)
	_, err := w.in.Redrive(t.Context(), nil, "", "")
	check(err, inbox.ErrInvalidRequest)
	_, err = w.in.Redrive(t.Context(), []inbox.Key{{Consumer: "other"}}, "", "")
	check(err, inbox.ErrInvalidRequest)

	for _, store := range []once.Store{outboxtest.NewOnceStore(), doneBefore{outboxtest.NewOnceStore()}} {
		keys := once.Config{Store: store, Wait: -1}
		a := newAtLeastOnce(t, keys, inbox.AtLeastOnceConfig{MaxAttempts: 1, Observer: observer})
		check(a.Process(t.Context(), inbox.Message{}, nil).Err, inbox.ErrInvalidMessage)
		a.Process(t.Context(), message("e"), func(context.Context, inbox.Message) error { return errHandler })
		a.Process(t.Context(), message("f"), func(ctx context.Context, _ inbox.Message) error {
			return a.Process(ctx, message("f"), nil).Err
		})
	}
	if checked < 20 {
		t.Errorf("%d errors were checked", checked)
	}
}
