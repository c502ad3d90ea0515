package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

func inboxHandlerCases() []inboxCase {
	return []inboxCase{
		{"each handler of each consumer by itself", inboxHandlersApart},
		{"a failure of one handler", inboxHandlerFailure},
		{"first met in a transaction that is rolled back", inboxHandlerRolledBack},
		{"first met in a transaction that fails", inboxHandlerFailsFirst},
		{"first met by many at once", inboxHandlerAtOnce},
		{"of two programs", inboxHandlerTwoPrograms},
	}
}

// inboxHandlers are names that must not be taken for one another.
var inboxHandlers = [][2]string{
	{"billing", "invoice"},
	{"billing", "Invoice"},
	{"billing", "invoice "},
	{"invoice", "billing"},
	{"billinginvoice", "h"},
	{"billing", "invoiceh"},
	{"b", "illinginvoice"},
	{"süd", "é"},
	{"süd", "e\u0301"},
}

func handled(names [2]string, id string) inbox.Event {
	return inbox.Event{Key: inbox.Key{Consumer: names[0], Handler: names[1], EventID: id}}
}

// beginOne begins one event in a store, and ends the transaction with the error end.
func (f *inboxFixture) beginOne(s inbox.Store, e inbox.Event, end error) (state inbox.State, attempt int) {
	f.Helper()
	f.register(s, e)
	err := f.Transactor.RunInTx(f.Context(), func(ctx context.Context, tx core.Tx) (err error) {
		if state, attempt, err = s.Begin(ctx, tx, e); err != nil {
			return err
		}
		return end
	})
	if !errors.Is(err, end) {
		f.Fatalf("the transaction of %s: %v, want %v", e.EventID, err, end)
	}
	return state, attempt
}

func (f *inboxFixture) wantState(what string, got, want inbox.State) {
	f.Helper()
	if got != want {
		f.Errorf("%s is %s, want %s", what, got, want)
	}
}

// clean deletes all processed events of a consumer.
func (f *inboxFixture) clean(s inbox.Store, consumer string, want int) {
	f.Helper()
	n, err := s.Cleanup(f.Context(), consumer, -time.Hour, 1000)
	f.check(err)
	if n != want {
		f.Errorf("%d events of %s were deleted, want %d", n, consumer, want)
	}
}

// inboxHandlersApart gives the same ids to several handlers, one by one and in batches, in two
// processes.
func inboxHandlersApart(f *inboxFixture) {
	other := f.Another()
	for _, names := range inboxHandlers {
		what := fmt.Sprintf("e of %q", names)
		got, _ := f.beginOne(f.Store, handled(names, "e"), nil)
		f.wantState(what, got, inbox.StateFresh)
		got, _ = f.beginOne(other, handled(names, "e"), nil)
		f.wantState(what+" in another process", got, inbox.StateProcessed)
		states := f.begin(nil, handled(names, "e"), handled(names, "f"))
		f.wantState(what+" in a batch", states[0], inbox.StateProcessed)
		f.wantState("f in a batch", states[1], inbox.StateFresh)
	}
	f.clean(other, "billing", 8)
	f.clean(other, "billing", 0)
	for _, names := range inboxHandlers {
		want := inbox.StateProcessed
		if names[0] == "billing" {
			want = inbox.StateFresh
		}
		got, _ := f.beginOne(f.Store, handled(names, "e"), errInbox)
		f.wantState(fmt.Sprintf("e of %q after the cleanup", names), got, want)
	}
}

// inboxHandlerFailure has one handler fail with an event that others process.
func inboxHandlerFailure(f *inboxFixture) {
	mine, others := inboxHandlers[0], inboxHandlers[1:]
	f.fail(handled(mine, "e"), true)
	f.fail(handled(mine, "f"), false)
	for _, names := range others {
		got, attempt := f.beginOne(f.Store, handled(names, "e"), nil)
		if f.wantState(fmt.Sprintf("e of %q", names), got, inbox.StateFresh); attempt != 1 {
			f.Errorf("e of %q: attempt %d, want 1", names, attempt)
		}
	}
	for _, s := range []inbox.Store{f.Store, f.Another()} {
		got, _ := f.beginOne(s, handled(mine, "e"), nil)
		f.wantState("the dead event", got, inbox.StateDead)
		got, attempt := f.beginOne(s, handled(mine, "f"), errInbox)
		if f.wantState("the failed event", got, inbox.StateFresh); attempt != 2 {
			f.Errorf("the failed event: attempt %d, want 2", attempt)
		}
	}
	f.clean(f.Store, mine[0], 3) // events of the other handlers of the consumer
	got, attempt := f.beginOne(f.Store, handled(mine, "f"), nil)
	if f.wantState("the failed event", got, inbox.StateFresh); attempt != 2 {
		f.Errorf("the failed event: attempt %d, want 2", attempt)
	}
	// A failure that is recorded late does not undo it.
	state, _, err := f.Store.Fail(f.Context(), inbox.Failure{Event: handled(mine, "f"), Dead: true})
	f.check(err)
	f.wantState("the event after a late failure", state, inbox.StateProcessed)
	// When its id is forgotten, so is its failure.
	f.clean(f.Store, mine[0], 1)
	got, attempt = f.beginOne(f.Store, handled(mine, "f"), errInbox)
	if f.wantState("the event after the cleanup", got, inbox.StateFresh); attempt != 1 {
		f.Errorf("the event after the cleanup: attempt %d, want 1", attempt)
	}
	_, attempt, err = f.Store.Fail(f.Context(), inbox.Failure{Event: handled(mine, "f")})
	if f.check(err); attempt != 1 {
		f.Errorf("the first failure after the cleanup counts as %d", attempt)
	}
	dead, err := f.Store.ListDead(f.Context(), inbox.DeadQuery{Consumer: mine[0]})
	f.check(err)
	if len(dead) != 1 || dead[0].Key != handled(mine, "e").Key {
		f.Errorf("dead events: %+v, want only e", dead)
	}
}

// inboxHandlerTwoPrograms has two programs register one name. Each gets the other, and no program
// gets itself, other names, or a program without a path.
func inboxHandlerTwoPrograms(f *inboxFixture) {
	register := func(s inbox.Store, names [2]string, program, topic string, want ...inbox.Registration) {
		f.Helper()
		got, err := s.Register(f.Context(), inbox.Registration{
			Consumer: names[0], Handler: names[1], Program: program, Topic: topic,
		})
		f.check(err)
		if !slices.Equal(got, want) {
			f.Errorf("%s registers %q: it hears of %+v, want %+v", program, names, got, want)
		}
	}
	mine, other := inboxHandlers[0], f.Another()
	in := func(program, topic string) inbox.Registration {
		return inbox.Registration{Consumer: mine[0], Handler: mine[1], Program: program, Topic: topic}
	}
	long := "example.com/" + strings.Repeat("x", 300)
	register(f.Store, mine, "example.com/a", "orders")
	register(f.Store, mine, "example.com/a", "orders")
	register(other, mine, "example.com/b", "payments", in("example.com/a", "orders"))
	register(f.Store, mine, "example.com/a", "orders.v2", in("example.com/b", "payments"))
	register(other, mine, "example.com/B", "payments",
		in("example.com/a", "orders.v2"), in("example.com/b", "payments"))
	register(other, mine, "", "")
	for _, names := range inboxHandlers[1:] {
		register(other, names, "example.com/c", "")
	}
	register(other, inboxHandlers[1], long, "", inbox.Registration{
		Consumer: inboxHandlers[1][0], Handler: inboxHandlers[1][1], Program: "example.com/c",
	})
}

// inboxHandlerRolledBack rolls the first transactions of a handler back. The process must not
// remember anything of them that other processes cannot see.
func inboxHandlerRolledBack(f *inboxFixture) {
	mine, their := handled(inboxHandlers[0], "e"), handled(inboxHandlers[3], "e")
	other := f.Another()
	for range 2 {
		got, _ := f.beginOne(f.Store, mine, errInbox)
		f.wantState("e, rolled back", got, inbox.StateFresh)
	}
	got, _ := f.beginOne(other, their, nil)
	f.wantState("e of another handler", got, inbox.StateFresh)
	got, _ = f.beginOne(other, mine, nil)
	f.wantState("e in another process", got, inbox.StateFresh)
	got, _ = f.beginOne(f.Store, mine, nil)
	f.wantState("e again", got, inbox.StateProcessed)
	got, _ = f.beginOne(f.Store, handled(inboxHandlers[1], "e"), errInbox)
	f.wantState("e of a third handler, rolled back", got, inbox.StateFresh)
	got, _ = f.beginOne(f.Store, handled(inboxHandlers[1], "e"), nil)
	f.wantState("e of the third handler", got, inbox.StateFresh)
	f.clean(f.Another(), inboxHandlers[0][0], 2)
	f.clean(f.Another(), inboxHandlers[3][0], 1)
}

// inboxHandlerFailsFirst records a failure before any transaction of the handler has committed.
func inboxHandlerFailsFirst(f *inboxFixture) {
	e := handled(inboxHandlers[0], "e")
	f.beginOne(f.Store, e, errInbox)
	f.fail(e, false)
	got, attempt := f.beginOne(f.Store, e, nil)
	if f.wantState("e", got, inbox.StateFresh); attempt != 2 {
		f.Errorf("attempt %d, want 2", attempt)
	}
	got, _ = f.beginOne(f.Another(), e, nil)
	f.wantState("e in another process", got, inbox.StateProcessed)
	f.clean(f.Another(), e.Consumer, 1)
}

// inboxHandlerAtOnce has eight processes begin events of a new handler at the same time. Half of
// them first roll back. Each event is fresh in one transaction that commits.
func inboxHandlerAtOnce(f *inboxFixture) {
	const processes, events = 8, 4
	var mu sync.Mutex
	committed := map[string]int{}
	var wg sync.WaitGroup
	for p := range processes {
		s := f.Another()
		wg.Go(func() {
			for n := range events {
				for _, end := range []error{errInbox, nil} {
					if end != nil && p%2 == 0 {
						continue
					}
					id := fmt.Sprintf("e%d", (n+p)%events)
					if _, err := s.Register(f.Context(), inbox.Registration{
						Consumer: inboxHandlers[0][0], Handler: inboxHandlers[0][1], Program: "a", Topic: id,
					}); err != nil {
						f.Errorf("register: %v", err)
						return
					}
					var state inbox.State
					err := sqltx.RetryTx(f.Context(), f.Transactor, func(ctx context.Context, tx core.Tx) (err error) {
						if state, _, err = s.Begin(ctx, tx, handled(inboxHandlers[0], id)); err != nil {
							return err
						}
						return end
					})
					if !errors.Is(err, end) {
						f.Errorf("%s: %v, want %v", id, err, end)
						return
					}
					if end == nil && state == inbox.StateFresh {
						mu.Lock()
						committed[id]++
						mu.Unlock()
					}
				}
			}
		})
	}
	wg.Wait()
	for n := range events {
		if id := fmt.Sprintf("e%d", n); committed[id] != 1 {
			f.Errorf("%s was fresh in %d transactions, want 1", id, committed[id])
		}
	}
	f.clean(f.Another(), inboxHandlers[0][0], events)
}
