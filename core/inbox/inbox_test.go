package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/inboxtest"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

var errHandler = errors.New("the handler does not like it")

// world is an inbox in memory. It counts how often each event had its effect in a transaction that
// committed.
type world struct {
	t       *testing.T
	in      *inbox.Inbox
	repo    *outboxtest.Repository
	store   *inboxtest.Store
	effects map[string]int
}

func newWorld(t *testing.T, set ...func(*inbox.Config)) *world {
	t.Helper()
	w := &world{
		t: t, repo: outboxtest.NewRepository(), store: inboxtest.NewStore(), effects: map[string]int{},
	}
	cfg := inbox.Config{
		Consumer: "billing", Handler: "invoice", Transactor: w.repo.Transactor(), Store: w.store, MinAge: -1,
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, fn := range set {
		fn(&cfg)
	}
	var err error
	if w.in, err = inbox.New(cfg); err != nil {
		t.Fatal(err)
	}
	return w
}

// apply is the handler.
func (w *world) apply(_ context.Context, tx core.Tx, msg inbox.Message) error {
	tx.OnOutcome(func(o core.Outcome) {
		if o == core.Committed {
			w.effects[msg.Headers[core.HeaderEventID]]++
		}
	})
	return nil
}

// message returns a message of the event.
func message(id string, headers ...string) inbox.Message {
	h := map[string]string{core.HeaderEventID: id}
	for i := 0; i < len(headers); i += 2 {
		h[headers[i]] = headers[i+1]
	}
	return inbox.Message{Topic: "orders", Headers: h, Payload: []byte("{}")}
}

func (w *world) wants(r inbox.Result, a inbox.Action, err error) {
	w.t.Helper()
	if r.Action != a || !errors.Is(r.Err, err) {
		w.t.Errorf("%s after %s, %v; want %s, %v", r.Action, r.After, r.Err, a, err)
	}
}

// A copy of a message is acknowledged without the handler. The handler gets the message unchanged.
func TestProcess(t *testing.T) {
	w := newWorld(t)
	type record struct{ offset int }
	msg := message("e")
	msg.Raw = &record{7}
	for range 3 {
		w.wants(w.in.Process(t.Context(), msg, func(ctx context.Context, tx core.Tx, m inbox.Message) error {
			if got, ok := core.TxFromContext(ctx); !ok || got != tx {
				t.Error("the context does not carry the transaction")
			}
			if r, ok := m.Raw.(*record); !ok || r.offset != 7 || string(m.Payload) != "{}" {
				t.Errorf("%+v", m)
			}
			return w.apply(ctx, tx, m)
		}), inbox.Ack, nil)
	}
	if w.effects["e"] != 1 {
		t.Errorf("%d effects", w.effects["e"])
	}
}

// A message in the compact form is the same event, and its handler gets the fields.
func TestProcessCompactForm(t *testing.T) {
	w := newWorld(t)
	e := core.Event{
		ID: core.NewEventID(), Type: "placed", TenantID: "acme", Key: "k", Headers: map[string]string{"trace": "1"},
	}
	d := core.Delivery{Event: e, KeySeq: 7}
	compact := inbox.Message{Topic: "orders", Headers: d.CompactMetadata(), Payload: []byte("{}")}
	if len(compact.Headers) != 2 {
		t.Errorf("headers %v", compact.Headers)
	}
	for _, msg := range []inbox.Message{compact, {Topic: "orders", Headers: d.Metadata(), Payload: []byte("{}")}} {
		w.wants(w.in.Process(t.Context(), msg, w.apply), inbox.Ack, nil)
	}
	batch := []inbox.Message{compact}
	for _, r := range w.in.ProcessBatch(t.Context(), batch, nil) {
		w.wants(r, inbox.Ack, nil)
	}
	if w.effects[e.ID] != 1 {
		t.Errorf("effects %v", w.effects)
	}
	if id, err := inbox.EventID(compact.Headers); err != nil || id != e.ID {
		t.Errorf("id %q, %v", id, err)
	}
	for _, headers := range []map[string]string{d.CompactMetadata(), d.Metadata()} {
		got, err := w.in.Event(inbox.Message{Topic: "orders", Headers: headers})
		if err != nil || got.Type != "placed" || got.Tenant != "acme" || got.PartitionKey != "k" || got.KeySeq != 7 {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

// A command under a key that was used for other work can never succeed, so its event is dead at
// once.
func TestACommandOfOtherWorkIsDeadAtOnce(t *testing.T) {
	w := newWorld(t)
	commands, err := command.New(once.Config{Store: w.repo.OnceStore()})
	if err != nil {
		t.Fatal(err)
	}
	capture := func(ctx context.Context, tx core.Tx, m inbox.Message) error {
		_, _, err := command.RunTx(ctx, commands, tx,
			command.Command{Type: "capture", Key: "quote 1", Input: m.Headers},
			func(context.Context) (string, error) { return "order 1", nil })
		return err
	}
	w.wants(w.in.Process(t.Context(), message("e"), capture), inbox.Ack, nil)
	w.wants(w.in.Process(t.Context(), message("f"), capture), inbox.Dead, once.ErrFingerprintMismatch)
}

// A failure leaves no changes, and is tried again after a growing pause. When the attempts are
// spent, the event is dead: each further delivery is Dead at once, until the event is redriven.
func TestProcessGivesUp(t *testing.T) {
	w := newWorld(t, func(c *inbox.Config) { c.MaxAttempts = 3 })
	fail := func(ctx context.Context, tx core.Tx, m inbox.Message) error {
		return errors.Join(w.apply(ctx, tx, m), errHandler)
	}
	for n := range 2 {
		r := w.in.Process(t.Context(), message("e"), fail)
		w.wants(r, inbox.Retry, errHandler)
		if first := (100 * time.Millisecond) << n; r.After < first/2 || r.After > first {
			t.Errorf("after failure %d the pause is %s", n+1, r.After)
		}
	}
	r := w.in.Process(t.Context(), message("e"), fail)
	w.wants(r, inbox.Dead, errHandler)
	w.wants(r, inbox.Dead, inbox.ErrDead)
	if r.After != 0 {
		t.Errorf("a pause of %s before the dead-letter queue", r.After)
	}
	r = w.in.Process(t.Context(), message("e"), w.apply)
	w.wants(r, inbox.Dead, inbox.ErrDead)
	if r.After == 0 {
		t.Error("a dead message that comes again and again is answered without a pause")
	}
	list, err := w.in.ListDead(t.Context(), inbox.DeadQuery{})
	if err != nil || len(list) != 1 || list[0].EventID != "e" || list[0].Attempts != 3 || list[0].Topic != "orders" {
		t.Fatalf("%+v, %v", list, err)
	}
	if n, err := w.in.Redrive(t.Context(), []inbox.Key{list[0].Key}, "ada", "fixed"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	w.wants(w.in.Process(t.Context(), message("e"), w.apply), inbox.Ack, nil)
	if w.effects["e"] != 1 {
		t.Errorf("%d effects", w.effects["e"])
	}
}

// An outage spends no attempt, however often it happens. A permanent error gives the event up at
// once.
func TestProcessJudgesFailures(t *testing.T) {
	w := newWorld(t, func(c *inbox.Config) { c.MaxAttempts = 2 })
	for range 10 {
		w.wants(w.in.Process(t.Context(), message("e"), func(context.Context, core.Tx, inbox.Message) error {
			return core.Unavailable(errHandler)
		}), inbox.Retry, errHandler)
	}
	w.wants(w.in.Process(t.Context(), message("e"), w.apply), inbox.Ack, nil)
	w.wants(w.in.Process(t.Context(), message("f"), func(context.Context, core.Tx, inbox.Message) error {
		return core.Permanent(errHandler)
	}), inbox.Dead, inbox.ErrDead)
}

// A client that cannot reject a single message holds it for the pauses, with Again in a loop.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		start, runs := time.Now(), 0
		handle := func(ctx context.Context, tx core.Tx, m inbox.Message) error {
			if runs++; runs < 4 {
				return errHandler
			}
			return w.apply(ctx, tx, m)
		}
		res := w.in.Process(t.Context(), message("e"), handle)
		for res.Again(t.Context()) {
			res = w.in.Process(t.Context(), message("e"), handle)
		}
		w.wants(res, inbox.Ack, nil)
		if took := time.Since(start); runs != 4 || took < 350*time.Millisecond || took > 700*time.Millisecond {
			t.Errorf("%d runs in %s", runs, took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		res = w.in.Process(ctx, message("f"), func(context.Context, core.Tx, inbox.Message) error { return errHandler })
		cancel()
		if res.Again(ctx) {
			t.Error("again, and the consumer stops")
		}
	})
}

// Fields of the message win over its headers, and headers are enough.
func TestMessageToEvent(t *testing.T) {
	w := newWorld(t)
	headers := []string{
		core.HeaderTenantID, "acme", core.HeaderPartitionKey, "k", core.HeaderKeySeq, "7", core.HeaderEventType,
		"placed",
	}
	got, err := w.in.Event(message("e", headers...))
	want := inbox.Event{
		Key:  inbox.Key{Consumer: "billing", Handler: "invoice", Tenant: "acme", EventID: "e"},
		Type: "placed", Topic: "orders", PartitionKey: "k", KeySeq: 7,
	}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	msg := message("e", headers...)
	msg.ID, msg.Handler, msg.Tenant, msg.PartitionKey, msg.KeySeq = "i", "h", "t", "p", 8
	msg.Partition, msg.Offset, msg.Located = 3, 9, true
	got, err = w.in.Event(msg)
	want.Key = inbox.Key{Consumer: "billing", Handler: "h", Tenant: "t", EventID: "i"}
	want.PartitionKey, want.KeySeq, want.Partition, want.Offset, want.Located = "p", 8, 3, 9, true
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for name, msg := range map[string]inbox.Message{
		"no id": {}, "an id that is no text": {ID: "\xff"},
		"a handler with a control character": {ID: "e", Handler: "\n"},
	} {
		r := w.in.Process(t.Context(), msg, nil)
		if w.wants(r, inbox.Dead, inbox.ErrInvalidMessage); r.After != 0 {
			t.Errorf("%s: a pause of %s", name, r.After)
		}
	}
	w.wants(w.in.Process(t.Context(), inbox.Message{}, nil), inbox.Dead, inbox.ErrInvalidMessage)
	nameless := newWorld(t, func(c *inbox.Config) { c.Handler = "" })
	w.wants(nameless.in.Process(t.Context(), message("e"), nil), inbox.Dead, inbox.ErrInvalidMessage)
}

// One bad message of a batch does not hold up the others, and each message has its own answer.
func TestProcessBatch(t *testing.T) {
	w := newWorld(t)
	w.wants(w.in.Process(t.Context(), message("old"), w.apply), inbox.Ack, nil)
	results := w.in.ProcessBatch(t.Context(),
		[]inbox.Message{message("old"), message("good"), message("bad"), {}, message("good")},
		func(ctx context.Context, tx core.Tx, fresh []inbox.Message) error {
			for _, m := range fresh {
				if m.Headers[core.HeaderEventID] == "bad" {
					return errHandler
				}
				if err := w.apply(ctx, tx, m); err != nil {
					return err
				}
			}
			return nil
		})
	for n, want := range []inbox.Action{inbox.Ack, inbox.Ack, inbox.Retry, inbox.Dead, inbox.Ack} {
		if results[n].Action != want {
			t.Errorf("message %d: %s, %v; want %s", n, results[n].Action, results[n].Err, want)
		}
	}
	if w.effects["old"] != 1 || w.effects["good"] != 1 || w.effects["bad"] != 0 || results[2].After == 0 {
		t.Errorf("%v, pause %s", w.effects, results[2].After)
	}
}

// newAtLeastOnce returns a mailer with these settings.
func newAtLeastOnce(t *testing.T, keys once.Config, cfg inbox.AtLeastOnceConfig) *inbox.AtLeastOnce {
	t.Helper()
	runner, err := once.New(keys)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Consumer, cfg.Handler, cfg.Runner, cfg.MinAge = "mailer", "mail", runner, -1
	cfg.Logger = slog.New(slog.DiscardHandler)
	a, err := inbox.NewAtLeastOnce(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// AtLeastOnce deduplicates with a lease instead of a transaction.
func TestAtLeastOnceProcess(t *testing.T) {
	a := newAtLeastOnce(t, once.Config{Store: outboxtest.NewOnceStore()}, inbox.AtLeastOnceConfig{MaxAttempts: 2})
	w, sent := &world{t: t}, 0
	send := func(context.Context, inbox.Message) error { sent++; return nil }
	fail := func(context.Context, inbox.Message) error { return errHandler }
	w.wants(a.Process(t.Context(), message("e"), fail), inbox.Retry, errHandler)
	for range 2 {
		w.wants(a.Process(t.Context(), message("e"), send), inbox.Ack, nil)
	}
	w.wants(a.Process(t.Context(), message("f"), fail), inbox.Retry, errHandler)
	w.wants(a.Process(t.Context(), message("f"), fail), inbox.Dead, inbox.ErrDead)
	if sent != 1 {
		t.Errorf("sent %d times", sent)
	}
}

// doneBefore is a store that says, once the work has ended, that another holder has done it.
type doneBefore struct{ once.Store }

func (doneBefore) Complete(context.Context, once.Claim, once.Result, time.Duration) error {
	return once.ErrAlreadyDone
}

func (doneBefore) Release(context.Context, once.Claim, int) error { return once.ErrAlreadyDone }

// Only the store of the AtLeastOnce says that another copy has processed the message. A handler may
// use another Runner, and an error of that one, or of the context, says nothing about the message.
func TestAtLeastOnceIsNotDoneByTheHandlersOwnKeys(t *testing.T) {
	done := fmt.Errorf("charge the card: %w", once.ErrAlreadyDone)
	fail := func(context.Context, inbox.Message) error { return done }
	newOne := func(s once.Store) *inbox.AtLeastOnce {
		return newAtLeastOnce(t, once.Config{Store: s}, inbox.AtLeastOnceConfig{MaxAttempts: 2})
	}
	w, a := &world{t: t}, newOne(outboxtest.NewOnceStore())
	w.wants(a.Process(t.Context(), message("e"), fail), inbox.Retry, once.ErrAlreadyDone)
	w.wants(a.Process(t.Context(), message("e"), fail), inbox.Dead, inbox.ErrDead)
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(done)
	w.wants(a.Process(ended, message("f"), fail), inbox.Retry, once.ErrAlreadyDone)
	ran := false
	w.wants(a.Process(t.Context(), message("f"), func(context.Context, inbox.Message) error {
		ran = true
		return nil
	}), inbox.Ack, nil)
	if !ran {
		t.Error("the message was taken for done")
	}

	b := newOne(doneBefore{outboxtest.NewOnceStore()})
	w.wants(b.Process(t.Context(), message("e"), func(context.Context, inbox.Message) error { return nil }),
		inbox.Ack, nil)
	w.wants(b.Process(t.Context(), message("f"), func(context.Context, inbox.Message) error { return errHandler }),
		inbox.Ack, nil)
}

// A broken archive keeps the events, and a panic in it does not end the program.
func TestCleanupArchives(t *testing.T) {
	var result error
	panics, archived := false, 0
	archive := func(_ context.Context, events []inbox.ArchivedEvent) error {
		if panics {
			panic("no archive")
		}
		if archived += len(events); len(events) > 100 {
			t.Errorf("%d events at once", len(events))
		}
		return result
	}
	w := newWorld(t, func(c *inbox.Config) {
		c.Retention, c.BrokerRetention, c.Archive = 2*time.Hour, time.Hour, archive
	})
	const events = 100 + 5
	for i := range events {
		r := w.in.Process(t.Context(), message(fmt.Sprint(i)), w.apply)
		w.wants(r, inbox.Ack, nil)
	}
	w.store.ShiftClock(3 * time.Hour)
	panics = true
	n, err := w.in.Cleanup(t.Context())
	if _, panicked := errors.AsType[*core.PanicError](err); n != 0 || !panicked || w.store.Processed() != events {
		t.Errorf("a panic: deleted %d, %d are left, %v", n, w.store.Processed(), err)
	}
	panics, result = false, errHandler
	if n, err := w.in.Cleanup(t.Context()); n != 0 || !errors.Is(err, errHandler) || w.store.Processed() != events {
		t.Errorf("an error: deleted %d, %d are left, %v", n, w.store.Processed(), err)
	}
	result, archived = nil, 0
	n, err = w.in.Cleanup(t.Context())
	if n != events || err != nil || archived != events || w.store.Processed() != 0 {
		t.Errorf("deleted %d, archived %d, %d are left, %v", n, archived, w.store.Processed(), err)
	}

	type noArchiver struct{ inbox.Store }
	_, err = inbox.New(inbox.Config{
		Consumer: "billing", Handler: "invoice", Transactor: w.repo.Transactor(), Store: noArchiver{w.store},
		Archive: archive,
	})
	if err == nil || !strings.Contains(err.Error(), "Archive needs a Store that is an Archiver") {
		t.Errorf("a store without archives: %v", err)
	}
}

// An archive that ignores the end of its context does not keep Run from ending. No second call
// begins beside it, and its events stay.
func TestRunEndsBesideAnArchiveThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, failed atomic.Int64
		hang := make(chan struct{})
		w := newWorld(t, func(c *inbox.Config) {
			c.Retention, c.BrokerRetention, c.CleanupInterval = 2*time.Hour, time.Hour, time.Minute
			c.Archive = func(context.Context, []inbox.ArchivedEvent) error {
				calls.Add(1)
				<-hang
				return nil
			}
			c.Observer = &inbox.Observer{Cleaned: func(_ int, err error) {
				if err != nil {
					failed.Add(1)
				}
			}}
		})
		w.wants(w.in.Process(t.Context(), message("e"), w.apply), inbox.Ack, nil)
		w.store.ShiftClock(3 * time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.in.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if calls.Load() != 1 || failed.Load() < 5 || w.store.Processed() != 1 {
			t.Errorf("%d calls, %d errors, %d events", calls.Load(), failed.Load(), w.store.Processed())
		}
		cancel()
		time.Sleep(2 * time.Second)
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("Run has not ended")
		}
		close(hang)
		synctest.Wait()
		if w.store.Processed() != 1 {
			t.Error("the event of a call that was left alone is deleted")
		}
	})
}

// A handler whose events the archive refuses stops the cleanup of no other handler.
func TestCleanupGoesPastABrokenArchive(t *testing.T) {
	w := newWorld(t, func(c *inbox.Config) {
		c.Retention, c.BrokerRetention = 2*time.Hour, time.Hour
		c.Archive = func(_ context.Context, events []inbox.ArchivedEvent) error {
			if events[0].Key.Handler == "a" {
				return errHandler
			}
			return nil
		}
	})
	const others = 2*100 + 5
	for i := range others + 1 {
		msg := message(fmt.Sprint(i))
		if msg.Handler = "b"; i == 0 {
			msg.Handler = "a"
		}
		w.wants(w.in.Process(t.Context(), msg, w.apply), inbox.Ack, nil)
	}
	w.store.ShiftClock(3 * time.Hour)
	n, err := w.in.Cleanup(t.Context())
	if n != others || !errors.Is(err, errHandler) || w.store.Processed() != 1 {
		t.Errorf("deleted %d, %d are left, %v", n, w.store.Processed(), err)
	}
}
