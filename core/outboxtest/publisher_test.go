package outboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

func delivery(topic, key string, seq int64) core.Delivery {
	return core.Delivery{Event: core.Event{
		ID: core.NewEventID(), Type: "t", Topic: topic, Key: key,
		Payload: []byte("p"),
	}, KeySeq: seq, Attempt: 1}
}

func TestPublisherRecords(t *testing.T) {
	p := &outboxtest.Publisher{}
	d := delivery("a", "", 0)
	must(t, p.Publish(t.Context(), d))
	d.Payload[0] = 'x'
	got := p.Accepted()
	if len(got) != 1 || got[0].ID != d.ID || string(got[0].Payload) != "p" {
		t.Errorf("accepted %+v", got)
	}
	p.Receipts(func(d core.Delivery) string { return "at " + d.Topic })
	if receipt, err := p.PublishWithReceipt(t.Context(), delivery("b", "", 0)); err != nil || receipt != "at b" {
		t.Errorf("receipt %q, %v", receipt, err)
	}
}

func TestPublisherFails(t *testing.T) {
	p := &outboxtest.Publisher{}
	one, two := errors.New("one"), errors.New("two")
	p.FailNext(2, one)
	p.FailFor(func(d core.Delivery) error {
		if d.Topic == "bad" {
			return two
		}
		return nil
	})
	p.Outage("down", nil)
	for i, tt := range []struct {
		topic string
		want  error
	}{{"good", one}, {"bad", one}, {"good", nil}, {"bad", two}, {"good", nil}} {
		wantErr(t, p.Publish(t.Context(), delivery(tt.topic, "", 0)), tt.want, "publish %d", i)
	}
	class, _ := core.ClassOf(p.Publish(t.Context(), delivery("down", "", 0)))
	if class != core.ClassUnavailable {
		t.Errorf("an outage is %s", class)
	}
	p.Restore("down")
	p.LoseAcks(1, one)
	wantErr(t, p.Publish(t.Context(), delivery("down", "", 0)), one, "a lost acknowledgement")
	if n, m := len(p.Accepted()), len(p.Attempts()); n != 3 || m != 7 {
		t.Errorf("%d accepted of %d", n, m)
	}
	if last := p.Attempts()[6]; !last.Accepted || !errors.Is(last.Err, one) {
		t.Errorf("the last attempt is %+v", last)
	}
}

func TestPublisherBlocksAndHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &outboxtest.Publisher{}
		p.Block()
		p.HangFor(func(d core.Delivery) bool { return d.Topic == "hangs" })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		results := make(chan error, 3)
		for _, topic := range []string{"good", "hangs"} {
			go func() { results <- p.Publish(ctx, delivery(topic, "", 0)) }()
		}
		synctest.Wait()
		if p.InFlight() != 2 || len(results) != 0 {
			t.Fatalf("%d in flight, %d ended", p.InFlight(), len(results))
		}
		p.Unblock()
		p.Wait(t, 1)
		noError(t, <-results)
		wantErr(t, <-results, context.DeadlineExceeded, "a publish that hangs")
		p.Block()
		wantErr(t, p.Publish(ctx, delivery("good", "", 0)), context.DeadlineExceeded, "a blocked publish")
	})
}

func TestPublisherSeesOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &outboxtest.Publisher{}
		p.Block()
		for _, d := range []core.Delivery{
			delivery("a", "k", 1), delivery("b", "k", 1), delivery("a", "l", 1),
			delivery("a", "k", 0),
		} {
			go func() { _ = p.Publish(t.Context(), d) }()
		}
		synctest.Wait()
		equal(t, p.Overlaps(), 0, "overlaps of different keys")
		go func() { _ = p.Publish(t.Context(), delivery("a", "k", 2)) }()
		synctest.Wait()
		equal(t, p.Overlaps(), 1, "overlaps")
		p.Unblock()
		synctest.Wait()
		if p.InFlight() != 0 {
			t.Errorf("%d in flight", p.InFlight())
		}
	})
}

// failing records the failures that a helper reports. Fatalf ends the goroutine.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	panic(f)
}

// fails returns the message with which fn fails its test, or "".
func fails(t *testing.T, fn func(t testing.TB)) (message string) {
	t.Helper()
	f := &failing{TB: t}
	defer func() {
		if r := recover(); r != nil && r != f {
			panic(r)
		}
		message = f.message
	}()
	fn(f)
	return ""
}

func TestRequire(t *testing.T) {
	p := &outboxtest.Publisher{}
	a, b := delivery("orders", "k", 1), delivery("orders", "k", 2)
	a.Type, b.Type, b.TenantID, b.AggregateID = "order.placed", "order.paid", "acme", "7"
	for _, d := range []core.Delivery{a, b} {
		must(t, p.Publish(t.Context(), d))
	}
	if got := outboxtest.RequirePublished(t, p, outboxtest.Match{
		Type: "order.paid", TenantID: "acme", AggregateID: "7",
		Topic: "orders", Key: "k",
	}); got.ID != b.ID {
		t.Errorf("found %s, want %s", got.ID, b.ID)
	}
	second := outboxtest.Match{Where: func(d core.Delivery) bool { return d.KeySeq == 2 }}
	if got := outboxtest.RequirePublished(t, p, second); got.ID != b.ID {
		t.Errorf("found %s, want %s", got.ID, b.ID)
	}
	outboxtest.RequireNotPublished(t, p, outboxtest.Match{Type: "order.paid", TenantID: "other"})

	for want, fn := range map[string]func(testing.TB){
		`no event with type="order.lost" was published; published were:` + "\n\tid=" + a.ID: func(tb testing.TB) {
			tb.Helper()
			outboxtest.RequirePublished(tb, p, outboxtest.Match{Type: "order.lost"})
		},
		`2 events with key="k" were published, want one:`: func(tb testing.TB) {
			tb.Helper()
			outboxtest.RequirePublished(tb, p, outboxtest.Match{Key: "k"})
		},
		`an event with any content was published`: func(tb testing.TB) {
			tb.Helper()
			outboxtest.RequireNotPublished(tb, p, outboxtest.Match{})
		},
		`2 events of this *outboxtest_test.model still wait (["placed" "paid"])`: func(tb testing.TB) {
			tb.Helper()
			m := &model{}
			m.Record(core.Event{Type: "placed"}, core.Event{Type: "paid"})
			outboxtest.RequireNothingRecorded(tb, &model{}, m)
		},
		`outboxtest_test.model embeds no core.Recorder: give a pointer`: func(tb testing.TB) {
			tb.Helper()
			outboxtest.RequireNothingRecorded(tb, model{})
		},
		`published were: none`: func(tb testing.TB) {
			tb.Helper()
			outboxtest.RequirePublished(tb, &outboxtest.Publisher{}, second)
		},
	} {
		if got := fails(t, fn); !strings.Contains(got, want) {
			t.Errorf("failed with %q, want %q", got, want)
		}
	}
}

func TestWaitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &outboxtest.Publisher{}
		must(t, p.Publish(t.Context(), delivery("a", "", 0)))
		got := fails(t, func(tb testing.TB) { tb.Helper(); p.Wait(tb, 2) })
		if !strings.Contains(got, "1 events were published within 30s, want 2:") {
			t.Errorf("failed with %q", got)
		}
	})
}

type model struct{ core.Recorder }

// Events that were handed over and committed are no longer recorded.
func TestRequireNothingRecorded(t *testing.T) {
	m := &model{}
	m.Record(core.Event{Type: "placed"})
	_, ended, err := m.HandOver()
	must(t, err)
	ended(core.Committed)
	outboxtest.RequireNothingRecorded(t, m)
	outboxtest.RequireNothingRecorded(t)
}
