package suite

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// publisherFlow is a relay on a table in memory that publishes to a broker, and counts its
// failures.
type publisherFlow struct {
	*publisherFixture
	repo     *outboxtest.Repository
	ob       *core.Outbox
	failures chan core.PublishInfo

	noReceipts bool // the publisher returns no receipts, even if the broker has some
}

// eager spends its attempts at once. So a test notices a refusal that wrongly spends an attempt.
var eager = relay.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond, MaxAttempts: 3}

// quickProbes makes the relay notice early that an outage is over.
var quickProbes = relay.BreakerPolicy{ProbeInterval: 200 * time.Millisecond, MaxProbeInterval: time.Second}

// patient never gives a publish up.
var patient = relay.Config{PublishTimeout: unhurried, HotLease: 2 * unhurried, ClaimLease: 2 * unhurried}

func (f *publisherFixture) flow(cfg core.Config) *publisherFlow {
	f.Helper()
	o := &publisherFlow{
		publisherFixture: f, repo: outboxtest.NewRepository(), failures: make(chan core.PublishInfo, 10_000),
	}
	cfg.Repository = o.repo
	test := cfg.Observer // may be nil
	cfg.Observer = &core.Observer{Published: func(i core.PublishInfo) {
		if test != nil {
			test.Published(i)
		}
		if i.Result != core.PublishDone {
			select {
			case o.failures <- i:
			default:
			}
		}
	}}
	ob, err := core.New(cfg)
	f.check(err)
	o.ob = ob
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ob.Run(ctx) }()
	f.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			f.Errorf("Run: %v", err)
		}
	})
	return o
}

func (o *publisherFlow) record(events ...core.Event) {
	o.Helper()
	o.recordBy(o.ob, events...)
}

// recordElsewhere records by a process that has no publisher.
func (o *publisherFlow) recordElsewhere(events ...core.Event) {
	o.Helper()
	ob, err := core.New(core.Config{Repository: o.repo})
	o.check(err)
	o.recordBy(ob, events...)
}

func (o *publisherFlow) recordBy(ob *core.Outbox, events ...core.Event) {
	o.Helper()
	o.check(o.repo.Transactor().RunInTx(o.Context(), func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, events...)
		return err
	}))
}

// awaitFailures waits until n publishes to the topic have failed; empty: to any topic.
func (o *publisherFlow) awaitFailures(topic string, n int) {
	o.Helper()
	limit := time.After(2 * awaitLimit)
	for n > 0 {
		select {
		case i := <-o.failures:
			if topic == "" || i.Topic == topic {
				n--
			}
		case <-limit:
			o.Fatalf("fewer than %d publishes failed", n)
		}
	}
}

// forgetFailures makes awaitFailures count from now on.
func (o *publisherFlow) forgetFailures() {
	for len(o.failures) > 0 {
		<-o.failures
	}
}

// awaitDone waits until every event is done. None may become dead.
func (o *publisherFlow) awaitDone(what string) {
	o.Helper()
	o.await(what, func() bool {
		for _, r := range o.repo.Rows() {
			if r.Status == outboxtest.StatusDead {
				o.Fatalf("%s: dead after %d attempts: %s %s", what, r.Attempts, r.ErrorCode, r.Error)
			}
			if r.Status != outboxtest.StatusDone {
				return false
			}
		}
		return true
	})
}

// statuses counts the rows of a key by their status.
func (o *publisherFlow) statuses(key string) map[outboxtest.Status]int {
	n := map[outboxtest.Status]int{}
	for _, row := range o.repo.Rows() {
		if row.Event.Key == key {
			n[row.Status]++
		}
	}
	return n
}

// compare compares the rows with the broker's messages of the topics. The broker must have each
// event that is done, as it was recorded and at the place that its receipt names, and nothing else.
// The first copies of each key must be in order. compare returns the largest number of copies of an
// event.
func (o *publisherFlow) compare(topics ...string) (most int) {
	o.Helper()
	slices.Sort(topics)
	for _, topic := range slices.Compact(topics) {
		done := map[core.RowID]outboxtest.Row{}
		for _, r := range o.repo.Rows() {
			if r.Event.Topic == topic && r.Status == outboxtest.StatusDone {
				done[r.ID] = r
			}
		}
		var held []Held
		if !within(heldLimit, func() bool {
			held = o.Held(o.T, topic)
			return len(missing(held, done)) == 0
		}) {
			o.Fatalf("topic %s: done and not at the broker: %v", topic, missing(held, done))
		}
		most = max(most, o.compareTopic(topic, held, done))
	}
	return most
}

// missing returns the ids of events that are done and not held.
func missing(held []Held, done map[core.RowID]outboxtest.Row) (ids []string) {
	left := maps.Clone(done)
	for _, h := range held {
		delete(left, h.Delivery.RowID)
	}
	for _, r := range left {
		ids = append(ids, r.Event.ID)
	}
	return ids
}

func (o *publisherFlow) compareTopic(topic string, held []Held, done map[core.RowID]outboxtest.Row) (most int) {
	o.Helper()
	copies, placed := map[core.RowID]int{}, map[core.RowID]bool{}
	before := map[string]int64{} // the KeySeq of the first copy before, by key
	for _, r := range o.repo.Rows() {
		if first, ok := before[r.Event.Key]; r.Event.Topic == topic && (!ok || r.KeySeq <= first) {
			before[r.Event.Key] = r.KeySeq - 1
		}
	}
	for _, h := range held {
		got := h.Delivery
		row, ok := done[got.RowID]
		if !ok {
			o.Errorf("the broker has a message of row %s, which is not done: %+v", got.RowID, got.Event)
			continue
		}
		copies[row.ID]++
		most = max(most, copies[row.ID])
		placed[row.ID] = placed[row.ID] || h.Receipt == row.Receipt || o.noReceipts
		if copies[row.ID] > 1 {
			continue
		}
		o.same(got, core.Delivery{
			Event: row.Event, RowID: row.ID, KeySeq: row.KeySeq, Attempt: got.Attempt, ReplayOf: row.ReplayOf,
		})
		if key := row.Event.Key; key != "" && !o.Unordered {
			if row.KeySeq != before[key]+1 {
				o.Errorf("key %s: %d follows %d", key, row.KeySeq, before[key])
			}
			before[key] = row.KeySeq
		}
	}
	for id, r := range done {
		if !placed[id] {
			o.Errorf("event %s is not where its receipt says: %q", r.Event.ID, r.Receipt)
		}
	}
	return most
}
