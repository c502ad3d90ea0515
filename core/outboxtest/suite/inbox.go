package suite

import (
	"context"
	"errors"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// InboxHarness gives TestInboxStore access to an implementation of inbox.Store.
type InboxHarness struct {
	// New returns an empty store. It is called once for each case; cases run in parallel.
	New func(t *testing.T) InboxBackend
}

// InboxBackend is one empty store with its transactions. A field is required unless its comment
// makes it optional.
type InboxBackend struct {
	Store inbox.Store
	// Another returns the store of another process on the same tables.
	Another    func() inbox.Store
	Transactor core.Transactor
	// TakeElsewhere changes the row of a failed event as if another program had begun to work on it
	// now (inbox.StateInProgress). Nil: no other program can write into the store.
	TakeElsewhere func(ctx context.Context, key inbox.Key) error
}

type inboxCase struct {
	name string
	run  func(f *inboxFixture)
}

// TestInboxStore is the conformance suite of inbox.Store. It checks these promises:
//
//   - The store distinguishes the copies of an event in one batch.
//   - It deletes no event that is not archived.
//   - It keeps handlers apart, also when several processes meet one for the first time.
//   - A discarded event is never processed.
//   - Asking for a state changes nothing.
//   - An Inbox with a Cache in front of the store handles each event that it acknowledges.
func TestInboxStore(t *testing.T, h InboxHarness) {
	for _, group := range []struct {
		name  string
		cases []inboxCase
	}{
		{"Archive", inboxArchiveCases()},
		{"Batch", inboxBatchCases()},
		{"Cache", inboxCacheCases()},
		{"Discard", inboxDiscardCases()},
		{"Handler", inboxHandlerCases()},
		{"State", inboxStateCases()},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(&inboxFixture{T: t, InboxBackend: h.New(t)})
				})
			}
		})
	}
}

// inboxFixture has the state of a case.
type inboxFixture struct {
	*testing.T
	InboxBackend
}

func inboxEvent(id string) inbox.Event {
	return inbox.Event{Key: inbox.Key{Consumer: "billing", Handler: "invoice", EventID: id}}
}

func (f *inboxFixture) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

var errInbox = errors.New("suite: the handler fails")

// begin begins the events as one batch, and ends the transaction with the error end.
func (f *inboxFixture) begin(end error, events ...inbox.Event) (states []inbox.State) {
	f.Helper()
	for _, e := range events {
		f.register(f.Store, e)
	}
	err := f.Transactor.RunInTx(f.Context(), func(ctx context.Context, tx core.Tx) (err error) {
		if states, err = f.Store.BeginBatch(ctx, tx, events); err != nil {
			return err
		}
		return end
	})
	if !errors.Is(err, end) {
		f.Fatalf("the transaction of a batch: %v, want %v", err, end)
	}
	return states
}

// register registers the handler of an event in a store, as an Inbox does before it begins.
func (f *inboxFixture) register(s inbox.Store, e inbox.Event) {
	f.Helper()
	_, err := s.Register(f.Context(), inbox.Registration{Consumer: e.Consumer, Handler: e.Handler})
	f.check(err)
}

// fail records a failure of an event.
func (f *inboxFixture) fail(e inbox.Event, dead bool) {
	f.Helper()
	f.register(f.Store, e)
	_, _, err := f.Store.Fail(f.Context(), inbox.Failure{Event: e, Code: "suite", Text: errInbox.Error(), Dead: dead})
	f.check(err)
}

func (f *inboxFixture) redrive(keys ...inbox.Key) {
	f.Helper()
	n, err := f.Store.Redrive(f.Context(), keys, "ada", "mended")
	f.check(err)
	if n != len(keys) {
		f.Fatalf("%d events redriven, want %d", n, len(keys))
	}
}
