package relay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// A commit leaves a row with all fields of the event.
func TestCommitWritesRow(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		p := fixture.NewProcess(t, db, core.Config{})
		e := core.Event{
			ID: core.NewEventID(), Type: "order.captured", AggregateType: "order", AggregateID: "o-1",
			AggregateVersion: 3, TenantID: "acme", SchemaVersion: 2, Topic: "oms.order.events.v1",
			ContentType: "application/octet-stream", Payload: []byte{0, 1, 0xff, '\n'},
			Headers:    map[string]string{"traceparent": "00-1-2-01", "note": "größer als ⌘"},
			OccurredAt: time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC),
		}
		fixture.NoError(t, p.Tx.RunInTx(t.Context(),
			func(ctx context.Context, tx core.Tx) error { return p.Deposit(ctx, tx, 1, e) }))
		rows := p.Rows()
		if len(rows) != 1 || rows[0].EventID != e.ID || rows[0].Status != fixture.StatusNew || rows[0].Attempts != 0 ||
			rows[0].Holder != "" || rows[0].Done ||
			rows[0].Key != "order/o-1" || rows[0].KeySeq == 0 || string(rows[0].Payload) != string(e.Payload) {
			t.Fatalf("rows %+v", rows)
		}
		if got := p.Accounts(); !slices.Equal(got, []int{1}) {
			t.Errorf("accounts %v", got)
		}
		// Another process publishes the event with all fields.
		fixture.NoError(t, fixture.JoinProcess(t, db, p.Publisher, core.Config{}).Outbox.Drain(t.Context()))
		d := outboxtest.RequirePublished(t, p.Publisher, outboxtest.Match{ID: e.ID})
		want := e
		want.Key = "order/o-1"
		if got := fmt.Sprintf("%+v", d.Event); got != fmt.Sprintf("%+v", want) {
			t.Errorf("published %s\nwant      %+v", got, want)
		}
	})
}

// A rollback leaves no row.
func TestRollbackWritesNoRow(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		p := fixture.NewProcess(t, db, core.Config{})
		p.RunHot()
		before := len(p.Publisher.Accepted())
		for i := range 20 {
			err := p.Tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				return errors.Join(p.Deposit(ctx, tx, i, core.Event{Type: "a", Key: "k"}), fixture.ErrBusiness)
			})
			if !errors.Is(err, fixture.ErrBusiness) {
				t.Fatal(err)
			}
		}
		id := p.Publish(core.Event{Type: "a", Key: "k"})
		p.AwaitDone(1)
		if n := len(p.Publisher.Accepted()) - before; n != 1 || p.Rows()[0].EventID != id[0] || len(p.Accounts()) != 0 {
			t.Errorf("%d published, rows %+v, accounts %v", n, p.Rows(), p.Accounts())
		}
	})
}

// Published rows are marked.
func TestPublishMarksDone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		p := fixture.NewProcess(t, db, core.Config{})
		p.Publisher.Receipts(func(d core.Delivery) string { return "orders/3@" + d.ID })
		id := p.Publish(core.Event{Type: "a", Key: "k"})[0]
		if r := p.Row(id); r.Status != fixture.StatusNew || r.Done {
			t.Fatalf("before: %+v", r)
		}
		fixture.NoError(t, p.Outbox.Drain(t.Context()))
		if r := p.Row(id); r.Status != fixture.StatusDone || !r.Done || r.Attempts != 0 ||
			r.Holder != p.Outbox.Node() ||
			r.ErrorCode != "" {
			t.Errorf("after: %+v", r)
		}
		receipts := fixture.Query(t, p.Pool, "SELECT receipt FROM outbox_event",
			func(r *sql.Rows) (s string, err error) { return s, r.Scan(&s) })
		fixture.Check(t, slices.Equal(receipts, []string{"orders/3@" + id}), "receipts %v", receipts)
		// The row stays in the table, and is not published again.
		fixture.NoError(t, p.Outbox.Drain(t.Context()))
		p.OnceEach([]string{id})
	})
}

// Rows that a process claimed before it died are published by another one.
func TestClaimOfADeadProcessIsRecovered(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		p := fixture.NewProcess(t, db, core.Config{})
		var want []string
		for i := range 10 {
			want = append(want, p.Publish(core.Event{Type: "a", Key: fmt.Sprint(i % 3)}, core.Event{Type: "a"})...)
		}
		// A process claims every row and then dies.
		const lease = 2 * time.Second
		gone := core.ClaimRequest{
			Node: "gone", ClaimNo: 1, Lease: lease, MaxLease: time.Minute, Limit: 100, MaxBytes: 1 << 20,
			Run: 100, Keys: 100,
		}
		began := time.Now()
		unordered, err := p.Repository.ClaimUnordered(t.Context(), gone)
		fixture.NoError(t, err)
		ordered, _, err := p.Repository.ClaimHeads(t.Context(), gone, core.KeyID{})
		fixture.NoError(t, err)
		fixture.Must(t, len(unordered)+len(ordered) == len(want),
			"claimed %d and %d rows of %d", len(unordered), len(ordered), len(want))
		var first time.Time
		p.Run()
		fixture.Await(t, "an event is published", func() bool {
			first = time.Now()
			return len(p.Accepted()) > 0
		})
		if d := first.Sub(began); d < lease {
			t.Errorf("published %s after the claim, within its lease of %s", d, lease)
		}
		p.AwaitDone(len(want))
		p.OnceEach(want)
		inKeyOrder(t, p.Publisher.Accepted())
		for _, r := range p.Rows() {
			if r.Attempts != 0 || r.Lost != 1 || r.Holder != p.Outbox.Node() {
				t.Fatalf("row %+v, want no attempt spent, one claim lost, claimed by %s", r, p.Outbox.Node())
			}
		}
		// The dead process comes back with its marks. Marks of refusals change nothing, and the
		// acknowledgements are recorded already.
		refs := []core.ClaimRef{{ID: unordered[0].ID, ClaimNo: unordered[0].ClaimNo}}
		if held, err := p.Repository.Renew(t.Context(), "gone", lease, refs); err != nil || held[0] {
			t.Errorf("Renew by the dead process: %v, %v", held, err)
		}
		changed, err := p.Repository.MarkFailed(t.Context(), "gone",
			[]core.Failure{{ClaimRef: refs[0], Kind: core.FailDead, Code: "late"}})
		fixture.Check(t, err == nil && !changed[0], "MarkFailed by the dead process: %v, %v", changed, err)
		if n, err := p.Repository.MarkDone(t.Context(), []core.Done{{ID: unordered[0].ID}}, false); err != nil ||
			n != 0 {
			t.Errorf("MarkDone by the dead process: %d, %v", n, err)
		}
	})
}

// After a transient error the event is tried again later.
func TestTransientErrorIsRescheduled(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		p := fixture.NewProcess(t, db, core.Config{Relay: relay.Config{Retry: relay.RetryPolicy{
			BaseDelay: 10 * time.Hour,
			MaxDelay:  10 * time.Hour,
		}}})
		id := p.Publish(core.Event{Type: "a", Key: "k"})[0]
		p.Publisher.FailNext(1, core.Transient(errors.New("try again")))
		for range 2 { // the second time no event is due
			fixture.NoError(t, p.Outbox.Drain(t.Context()))
			if r := p.Row(id); r.Status != fixture.StatusRetry || r.Attempts != 1 || r.ErrorCode != "transient" ||
				r.Error != "try again" {
				t.Fatalf("row %+v", r)
			}
		}
		if n := len(p.Publisher.Attempts()); n != 1 {
			t.Fatalf("%d attempts, want 1 until it is due", n)
		}
		due, ok, err := p.Repository.NextDue(t.Context(),
			core.ClaimRequest{
				Node: "x", ClaimNo: 1, Lease: time.Second, MaxLease: time.Minute, Limit: 10, MaxBytes: 1, Run: 1,
				Keys: 10,
			})
		fixture.Check(t, err == nil && ok && due > 0 && due <= 10*time.Hour, "NextDue: %s, %v, %v", due, ok, err)
		// This lets time pass.
		if _, err := p.Pool.ExecContext(t.Context(), "UPDATE outbox_event SET available_at = created_at"); err != nil {
			t.Fatal(err)
		}
		fixture.NoError(t, p.Outbox.Drain(t.Context()))
		// A success clears the error.
		if r := p.Row(id); r.Status != fixture.StatusDone || r.Attempts != 1 || r.ErrorCode != "" || r.Error != "" {
			t.Errorf("row %+v", r)
		}
		p.OnceEach([]string{id})
	})
}

// An event that can never be published is dead at once.
func TestEventThatCannotBeSerializedIsParked(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		channel := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 10}, watermill.NopLogger{})
		messages, err := channel.Subscribe(t.Context(), "orders")
		fixture.NoError(t, err)
		calls := 0
		bridge, err := watermillbridge.NewPublisher(channel, watermillbridge.Config{
			Marshal: func(ctx context.Context, d core.Delivery) (*message.Message, error) {
				if d.Key == "bug" {
					calls++
					return nil, errors.New("no schema for it")
				}
				return watermillbridge.NewMessage(ctx, d), nil
			},
		})
		fixture.NoError(t, err)
		p := fixture.NewProcess(t, db, core.Config{Publisher: bridge, Relay: relay.Config{}})
		bug := p.Publish(core.Event{Type: "a", Topic: "orders", Key: "bug"})[0]
		sound := p.Publish(core.Event{Type: "a", Topic: "orders", Key: "sound"})[0]
		for range 2 {
			fixture.NoError(t, p.Outbox.Drain(t.Context()))
		}
		if r := p.Row(bug); r.Status != fixture.StatusDead || r.Attempts != 1 || r.ErrorCode != "permanent" ||
			calls != 1 {
			t.Errorf("after %d calls: %+v, want it parked at the first", calls, r)
		}
		if r := p.Row(sound); r.Status != fixture.StatusDone {
			t.Errorf("another key: %+v", r)
		}
		select {
		case m := <-messages:
			m.Ack()
			if got := m.Metadata[core.HeaderEventID]; got != sound {
				t.Errorf("received %s", got)
			}
		case <-time.After(time.Minute):
			t.Error("the sound event did not arrive")
		}
		b, err := p.Outbox.Backlog(t.Context())
		fixture.Check(t, err == nil && b.Dead == 1 && b.BlockedKeys == 1 && b.Pending == 0, "Backlog: %+v, %v", b, err)
	})
}

// Two relays share the rows. No row is claimed by both.
func TestTwoRelaysClaimNothingTwice(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pub := &outboxtest.Publisher{}
		cfg := core.Config{
			Relay: relay.Config{
				ClaimBatch: 20, ColdEvents: 40, KeyRun: 5, PollInterval: 20 * time.Millisecond,
				MaxPollInterval: 20 * time.Millisecond,
				PublishTimeout:  2 * time.Minute, ClaimLease: 3 * time.Minute, HotLease: 3 * time.Minute,
			},
		}
		p := fixture.NewProcess(t, db, core.Config{})
		var want []string
		for i := range 30 {
			var batch []core.Event
			for range 5 {
				batch = append(batch, core.Event{Type: "a", Key: fmt.Sprint(i % 10)}, core.Event{Type: "a"})
			}
			want = append(want, p.Publish(batch...)...)
		}
		relays := []*fixture.Process{fixture.JoinProcess(t, db, pub, cfg), fixture.JoinProcess(t, db, pub, cfg)}
		pub.Block() // until both claim: one of them could publish all before the other one has begun
		for _, r := range relays {
			r.Run()
		}
		fixture.Await(t, "both relays claim", func() bool {
			return relays[0].Claimed.Load() > 0 && relays[1].Claimed.Load() > 0
		})
		pub.Unblock()
		p.AwaitDone(len(want))
		relays[0].OnceEach(want)
		inKeyOrder(t, pub.Accepted())
		if pub.Overlaps() != 0 {
			t.Errorf("%d times two events of one key were out at once", pub.Overlaps())
		}
		for _, r := range p.Rows() {
			fixture.Must(t, r.Lost == 0 && r.Attempts == 0, "row %+v was lost or refused", r)
		}
		if a, b := relays[0].Claimed.Load(), relays[1].Claimed.Load(); a+b < int64(len(want)) {
			t.Errorf("the relays claimed %d and %d rows of %d", a, b, len(want))
		}
	})
}

// The events of one aggregate are published in order.
func TestEventsOfAnAggregateStayInOrder(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		const aggregates, producers, each = 4, 6, 20
		pub := &outboxtest.Publisher{}
		cfg := core.Config{Relay: relay.Config{HotEvents: 8, Retry: relay.RetryPolicy{
			BaseDelay: time.Millisecond,
			MaxDelay:  10 * time.Millisecond, MaxAttempts: 100,
		}, Breaker: relay.BreakerPolicy{
			ProbeInterval: 10 * time.Millisecond, MaxProbeInterval: 50 * time.Millisecond,
		}}}
		p := fixture.NewProcess(t, db, core.Config{})
		for a := range aggregates {
			if _, err := p.Pool.ExecContext(t.Context(),
				fmt.Sprintf("INSERT INTO accounts (id, balance) VALUES (%d, 0)", a)); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(1, 2))
		pub.FailFor(func(core.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			if random.IntN(10) == 0 {
				return errors.New("refused this time")
			}
			return nil
		})
		processes := []*fixture.Process{fixture.JoinProcess(t, db, pub, cfg), fixture.JoinProcess(t, db, pub, cfg)}
		for _, q := range processes {
			q.Run()
		}
		var wg sync.WaitGroup
		for n := range producers {
			wg.Go(func() {
				q := processes[n%2]
				for i := range each {
					if err := q.Grow(t.Context(), (n+i)%aggregates); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		p.AwaitDone(producers * each)

		inKeyOrder(t, pub.Accepted())
		// The order of the numbers is the order of the business, so the versions arrive in sequence
		// too.
		next, seen := map[string]int64{}, map[string]bool{}
		for _, d := range pub.Accepted() {
			if seen[d.ID] {
				continue
			}
			seen[d.ID] = true
			if next[d.Key]++; d.AggregateVersion != next[d.Key] {
				t.Errorf("aggregate %s: version %d arrived where %d was due", d.Key, d.AggregateVersion, next[d.Key])
			}
		}
		fixture.Check(t, len(seen) == producers*each && len(next) == aggregates,
			"%d events of %d aggregates arrived", len(seen), len(next))
	})
}
