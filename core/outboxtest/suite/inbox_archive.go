package suite

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// inboxArchiveCases check a store that is an inbox.Archiver.
func inboxArchiveCases() []inboxCase {
	return []inboxCase{
		{"events are deleted after they were archived", inboxArchive},
		{"an archive that fails for a handler holds up no other", inboxArchiveFails},
		{"an event that is processed anew while it is archived stays", inboxArchiveAnew},
		{"an archive does not wait for the transaction of a copy", inboxArchiveLocked},
	}
}

// archive archives the processed and discarded events of a consumer, whatever their age, at most 2
// at once. It returns the deleted events, sorted by their keys.
func (f *inboxFixture) archive(consumer string) (all []inbox.ArchivedEvent) {
	f.Helper()
	for {
		given := 0
		n, err := f.Another().(inbox.Archiver).Archive(f.Context(), consumer, -time.Hour, 2,
			func(_ context.Context, events []inbox.ArchivedEvent) error {
				given += len(events)
				all = append(all, events...)
				return nil
			})
		if f.check(err); n != given || n > 2 {
			f.Fatalf("%d events were archived at once, and %d deleted", given, n)
		}
		if n == 0 {
			break
		}
	}
	slices.SortFunc(all, func(a, b inbox.ArchivedEvent) int {
		return cmp.Or(cmp.Compare(a.Key.Handler, b.Key.Handler), cmp.Compare(a.Key.EventID, b.Key.EventID))
	})
	return all
}

func inboxArchive(f *inboxFixture) {
	if _, ok := f.Store.(inbox.Archiver); !ok {
		f.Fatalf("a %T is no inbox.Archiver", f.Store)
	}
	read := inboxEvent("read")
	read.Tenant, read.Topic, read.Partition, read.Offset, read.Located = "t", "orders", 3, 42, true
	topic := inboxEvent("topic")
	topic.Topic = "orders"
	elsewhere := inboxEvent("elsewhere")
	elsewhere.Handler = "mail"
	other := inboxEvent("other")
	other.Consumer = "shipping"
	for _, e := range []inbox.Event{read, topic, elsewhere, other} {
		f.begin(nil, e)
	}
	for _, id := range []string{"discarded", "dead"} {
		f.fail(inboxEvent(id), true)
	}
	f.fail(inboxEvent("failed"), false)
	f.discard(f.Store, 1, inboxEvent("discarded").Key)

	n, err := f.Store.(inbox.Archiver).Archive(f.Context(), "billing", -time.Hour, 100,
		func(context.Context, []inbox.ArchivedEvent) error { return errArchive })
	if n != 0 || !errors.Is(err, errArchive) {
		f.Errorf("a broken archive: %d events were deleted, %v", n, err)
	}
	got := f.archive("billing")
	want := []inbox.ArchivedEvent{
		{Key: inboxEvent("discarded").Key, Attempts: 1, Discarded: true, Note: "ada: spam"},
		{Key: read.Key, Attempts: 1, Source: "orders/3/42"},
		{Key: topic.Key, Attempts: 1, Source: "orders"},
		{Key: elsewhere.Key, Attempts: 1},
	}
	for i := range got {
		if time.Since(got[i].EndedAt).Abs() > time.Hour {
			f.Errorf("%+v ended at a strange time", got[i])
		}
		got[i].EndedAt = time.Time{}
	}
	if !slices.Equal(got, want) {
		f.Errorf("archived %+v, want %+v", got, want)
	}
	f.wantDead("dead")
	if other := f.archive("shipping"); len(other) != 1 {
		f.Errorf("%+v of the other consumer", other)
	}
	for _, e := range []inbox.Event{read, inboxEvent("discarded")} {
		state, attempt := f.beginOne(f.Store, e, nil)
		if f.wantState("an event after its deletion", state, inbox.StateFresh); attempt != 1 {
			f.Errorf("attempt %d after the deletion, want 1", attempt)
		}
	}
}

// inboxArchiveFails has an event that the archive always refuses.
func inboxArchiveFails(f *inboxFixture) {
	for _, name := range []string{"a", "b", "c"} {
		e := inboxEvent("of " + name)
		e.Handler = name
		f.begin(nil, e)
	}
	for _, want := range []int{2, 0} { // the second call finds the event that is refused
		n, err := f.Store.(inbox.Archiver).Archive(f.Context(), "billing", -time.Hour, 100,
			func(_ context.Context, events []inbox.ArchivedEvent) error {
				if events[0].Key.Handler == "a" {
					return errArchive
				}
				return nil
			})
		if n != want || !errors.Is(err, errArchive) {
			f.Errorf("%d events were deleted, want %d, and the error is %v", n, want, err)
		}
	}
	if left := f.archive("billing"); len(left) != 1 || left[0].Key.Handler != "a" {
		f.Errorf("left are %+v", left)
	}
}

// inboxArchiveAnew has another process, which has no archive, clean up meanwhile.
func inboxArchiveAnew(f *inboxFixture) {
	f.begin(nil, inboxEvent("a"))
	n, err := f.Store.(inbox.Archiver).Archive(f.Context(), "billing", -time.Hour, 100,
		func(context.Context, []inbox.ArchivedEvent) error {
			f.clean(f.Another(), "billing", 1)
			<-time.After(5 * time.Millisecond) // SQLite counts milliseconds
			f.begin(nil, inboxEvent("a"))
			return nil
		})
	if n != 0 || err != nil {
		f.Errorf("%d events were deleted, %v", n, err)
	}
	state, _ := f.beginOne(f.Store, inboxEvent("a"), nil)
	f.wantState("the event that was processed anew", state, inbox.StateProcessed)
}

// inboxArchiveLocked has a transaction that got a copy of an old event while the archive has it.
// The archive does not wait for its end: the two could end in a deadlock.
func inboxArchiveLocked(f *inboxFixture) {
	copied, other := inboxEvent("copied"), inboxEvent("other")
	f.begin(nil, copied)
	f.begin(nil, other)
	err := f.Transactor.RunInTx(f.Context(), func(txCtx context.Context, tx core.Tx) error {
		if tx.Dialect() == core.SQLite { // a transaction that writes keeps everybody waiting there
			return nil
		}
		ctx, cancel := context.WithTimeout(f.Context(), 20*time.Second)
		defer cancel()
		n, err := f.Another().(inbox.Archiver).Archive(ctx, "billing", -time.Hour, 100,
			func(_ context.Context, events []inbox.ArchivedEvent) error {
				if len(events) != 2 {
					f.Errorf("the archive got %+v", events)
				}
				states, err := f.Store.BeginBatch(txCtx, tx, []inbox.Event{copied})
				if err == nil {
					f.wantState("the copy", states[0], inbox.StateProcessed)
				}
				return err
			})
		if err == nil && n == 0 {
			f.Errorf("the archive deleted nothing")
		}
		return err
	})
	f.check(err)
}
