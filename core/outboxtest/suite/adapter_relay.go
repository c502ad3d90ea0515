package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
)

func adapterRelayCases() []adapterCase {
	return []adapterCase{
		{"publishes what committed, once, and nothing else", adapterRelayOnce},
		{"keeps the order of a key", adapterRelayOrder},
		{"keeps the order of an aggregate by default, whatever the types", adapterRelayAggregate},
		{"finds what was committed while it did not run", adapterRelayLater},
		{"publishes the event of a closure that is run again once", adapterRelayRetried},
		{"publishes nothing of a transaction that is open", adapterRelayOpen},
		{"publishes nothing of a refused COMMIT", adapterRelayRefused},
		{"publishes what was recorded, whatever becomes of the data", adapterRelayChanged},
		{"leaves to a reader of the log what is its own", adapterRelayByLog},
	}
}

func adapterRelayOnce(a *adapterFixture) {
	a.relay()
	var want []string
	for i := range 12 {
		fail := i%3 == 0
		var kept []string
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
			kept = append(kept, a.publish(ctx))
			err := a.nestings()[0](ctx, func(ctx context.Context) error {
				a.publish(ctx)
				return errNested
			})
			a.must(errors.Is(err, errNested), "the nested transaction returned %v", err)
			kept = append(kept, a.publish(ctx))
			if fail {
				return errNested
			}
			return nil
		})
		a.must((err != nil) == fail, "RunInTx: %v", err)
		if !fail {
			want = append(want, kept...)
		}
	}
	a.published.Wait(a, len(want))
	a.wantPublished(want)
	a.wantStored(want...)
}

// wantPublished requires that exactly these events were accepted, each once.
func (a *adapterFixture) wantPublished(want []string) {
	a.Helper()
	got := a.publishedIDs()
	slices.Sort(want)
	a.must(slices.Equal(got, want), "published were %d events %q, want %d %q", len(got), got, len(want), want)
}

// wantPublishedAtLeastOnce requires that exactly these events were accepted. With shortLeases a
// busy machine may publish an event again.
func (a *adapterFixture) wantPublishedAtLeastOnce(want []string) {
	a.Helper()
	got := slices.Compact(a.publishedIDs())
	slices.Sort(want)
	a.must(slices.Equal(got, want), "published were %d events %q, want %d %q", len(got), got, len(want), want)
}

// publishedIDs returns the sorted ids of the accepted events.
func (a *adapterFixture) publishedIDs() (ids []string) {
	for _, d := range a.published.Accepted() {
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	return ids
}

func adapterRelayOrder(a *adapterFixture) {
	a.relay()
	const workers, each = 4, 10
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for i := range each {
				e := newEvent()
				e.Key = fmt.Sprint("key", (worker+i)%3)
				err := a.Transactor.RunInTx(a.Context(),
					func(ctx context.Context, _ core.Tx) error { return a.Publish(ctx, e) })
				if err != nil {
					a.Errorf("RunInTx: %v", err)
				}
			}
		})
	}
	all.Wait()
	last := map[string]int64{}
	for _, d := range a.published.Wait(a, workers*each) {
		a.must(d.KeySeq > last[d.Key], "key %s: event %d was published after %d", d.Key, d.KeySeq, last[d.Key])
		last[d.Key] = d.KeySeq
	}
	a.must(a.published.Overlaps() == 0, "two events of one key were published at once")
	a.must(len(a.published.Accepted()) == workers*each, "%d events were published, want %d",
		len(a.published.Accepted()), workers*each)
}

// adapterRelayAggregate has events of three types that name an aggregate and no topic. The first
// one is refused once.
func adapterRelayAggregate(a *adapterFixture) {
	a.relay()
	a.published.FailFor(func(d core.Delivery) error {
		if d.Type == "order.placed" && d.Attempt == 1 {
			return errNested
		}
		return nil
	})
	var want, got []string
	for _, typ := range []string{"order.placed", "order.paid", "order.shipped"} {
		a.inTx(func(ctx context.Context) {
			a.check(a.Publish(ctx, core.Event{Type: typ, AggregateType: "order", AggregateID: "7"}))
		})
		want = append(want, typ+" to order")
	}
	for _, d := range a.published.Wait(a, len(want)) {
		got = append(got, d.Type+" to "+d.Topic)
	}
	a.must(slices.Equal(got, want), "published were %q, want %q", got, want)
}

func adapterRelayLater(a *adapterFixture) {
	var ids []string
	a.inTx(func(ctx context.Context) {
		for range 3 {
			ids = append(ids, a.publish(ctx))
		}
	})
	a.relay()
	a.published.Wait(a, len(ids))
	a.wantPublished(ids)
}

// adapterRelayRetried runs a closure again until its third attempt commits.
func adapterRelayRetried(a *adapterFixture) {
	a.relay()
	e := newEvent()
	for attempt := range 3 {
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
			a.check(a.Publish(ctx, e))
			if attempt < 2 {
				return errNested
			}
			return nil
		})
		a.must((err == nil) == (attempt == 2), "attempt %d: %v", attempt, err)
	}
	a.waitIdle()
	a.wantPublished([]string{e.ID})
	a.wantStored(e.ID)
}

// adapterRelayOpen keeps a transaction open until the relay has published an event that was
// recorded later.
func adapterRelayOpen(a *adapterFixture) {
	a.relay()
	var early, inner, late string
	a.inTx(func(ctx context.Context) {
		early = a.publish(ctx)
		a.check(a.nestings()[len(a.nestings())-1](ctx, func(ctx context.Context) error {
			inner = a.publish(ctx)
			return nil
		}))
		if a.SingleWriter { // no other transaction can commit meanwhile
			return
		}
		a.inTx(func(ctx context.Context) { late = a.publish(ctx) })
		a.published.Wait(a, 1)
		a.wantPublished([]string{late})
	})
	want := []string{early, inner}
	if late != "" {
		want = append(want, late)
	}
	a.published.Wait(a, len(want))
	a.wantPublished(want)
}

func adapterRelayRefused(a *adapterFixture) {
	if !a.has(a.RefuseCommit != nil, nil) {
		return
	}
	a.relay()
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		a.publish(ctx)
		return a.RefuseCommit(ctx)
	})
	a.must(err != nil, "a refused COMMIT is no error")
	var id string
	a.inTx(func(ctx context.Context) { id = a.publish(ctx) })
	a.published.Wait(a, 1)
	a.waitIdle()
	a.wantPublished([]string{id})
}

// adapterRelayChanged changes the data of events after they were recorded. The fast path and the
// poller must publish the same data.
func adapterRelayChanged(a *adapterFixture) {
	a.relay()
	data, payload := map[string]int{"n": 1}, []byte(`{"n":1}`)
	encoded, given := newEvent(), newEvent()
	encoded.Data = data
	given.Data, given.Payload = nil, payload
	a.inTx(func(ctx context.Context) {
		a.check(a.Publish(ctx, encoded, given))
		data["n"] = 2
		copy(payload, `{"n":2}`)
	})
	for _, d := range a.published.Wait(a, 2) {
		a.must(string(d.Payload) == `{"n":1}`, "published was %s, recorded was {\"n\":1}", d.Payload)
	}
}

const logEffect = core.ServedTopicPrefix + "mail"

// adapterRelayByLog has events that a reader of the log publishes, and effects that the relay
// executes.
func adapterRelayByLog(a *adapterFixture) {
	a = configuredFixture(a.T, a.AdapterHarness, func(a *adapterFixture, cfg *core.Config) {
		effects := core.NewRouter()
		effects.Handle(logEffect, a.published)
		cfg.Publisher, cfg.RelayedByLog = effects, true
	})
	a.runRelay()
	effect := newEvent()
	effect.Topic = logEffect
	keyed := newEvent()
	keyed.Key = "key"
	var want []string
	a.inTx(func(ctx context.Context) {
		want = append(want, a.publish(ctx), effect.ID, keyed.ID)
		a.check(a.Publish(ctx, keyed, effect))
		err := a.nestings()[0](ctx, func(ctx context.Context) error {
			a.publish(ctx)
			return errNested
		})
		a.must(errors.Is(err, errNested), "the nested transaction returned %v", err)
	})
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		a.publish(ctx)
		return errNested
	})
	a.must(errors.Is(err, errNested), "RunInTx: %v", err)
	a.published.Wait(a, 1)
	a.waitIdle()
	a.wantPublished([]string{effect.ID})
	a.wantStored(want...)

	late := newEvent()
	late.Delay = 1
	err = a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error { return a.Publish(ctx, late) })
	a.must(errors.Is(err, core.ErrInvalidEvent), "a delayed event: %v", err)
	a.wantStored(want...)
	b, err := a.Outbox.Backlog(a.Context())
	a.must(err == nil && b.ByLog && b.Pending == 0 && b.Dead == 0, "backlog %+v, %v", b, err)
}
