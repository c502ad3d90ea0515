package suite

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
)

func inboxCacheCases() []inboxCase {
	return []inboxCase{
		{"copies of a dead event in a batch", inboxCacheDeadCopies},
		{"a batch that is rolled back", inboxCacheRolledBack},
		{"a redriven event that the cache still knows", inboxCacheRedriven},
	}
}

// inboxCache is a Cache whose entries do not expire.
type inboxCache struct {
	keys sync.Map
	err  error // error of Forget, which then forgets nothing
}

func (c *inboxCache) Seen(_ context.Context, key string) (bool, error) {
	_, ok := c.keys.Load(key)
	return ok, nil
}

func (c *inboxCache) Remember(_ context.Context, key string) error {
	c.keys.Store(key, true)
	return nil
}

func (c *inboxCache) Forget(_ context.Context, keys ...string) error {
	if c.err != nil {
		return c.err
	}
	for _, key := range keys {
		c.keys.Delete(key)
	}
	return nil
}

// cachedInbox is an Inbox with a Cache. It counts how often the handler ran in a transaction that
// committed.
type cachedInbox struct {
	f       *inboxFixture
	in      *inbox.Inbox
	handled int
	refuse  bool // the handler fails with an error that is not tried again
}

func (f *inboxFixture) cached(cache inbox.Cache) *cachedInbox {
	f.Helper()
	c := &cachedInbox{f: f}
	var err error
	c.in, err = inbox.New(inbox.Config{
		Consumer: "billing", Handler: "invoice", Transactor: f.Transactor, Store: f.Store, Cache: cache,
		Logger: slog.New(slog.DiscardHandler),
	})
	f.check(err)
	return c
}

func (c *cachedInbox) handle(tx core.Tx, messages int) error {
	tx.OnOutcome(func(o core.Outcome) {
		if o == core.Committed {
			c.handled += messages
		}
	})
	if c.refuse {
		return core.Permanent(errInbox)
	}
	return nil
}

// deliver delivers a single event.
func (c *cachedInbox) deliver(id string, want inbox.Action) {
	c.f.Helper()
	r := c.in.Process(c.f.Context(), inbox.Message{ID: id},
		func(_ context.Context, tx core.Tx, _ inbox.Message) error { return c.handle(tx, 1) })
	if r.Action != want {
		c.f.Errorf("%s: %s, %v; want %s", id, r.Action, r.Err, want)
	}
}

// deliverBatch delivers events as one batch.
func (c *cachedInbox) deliverBatch(want inbox.Action, ids ...string) {
	c.f.Helper()
	msgs := make([]inbox.Message, len(ids))
	for n, id := range ids {
		msgs[n].ID = id
	}
	for n, r := range c.in.ProcessBatch(c.f.Context(), msgs,
		func(_ context.Context, tx core.Tx, fresh []inbox.Message) error { return c.handle(tx, len(fresh)) }) {
		if r.Action != want {
			c.f.Errorf("message %d of the batch, %s: %s, %v; want %s", n, ids[n], r.Action, r.Err, want)
		}
	}
}

func (c *cachedInbox) wantHandled(want int) {
	c.f.Helper()
	if c.handled != want {
		c.f.Errorf("%d messages were handled, want %d", c.handled, want)
	}
}

// redriveDead redrives every dead event.
func (c *cachedInbox) redriveDead(want int, end error) {
	c.f.Helper()
	dead, err := c.in.ListDead(c.f.Context(), inbox.DeadQuery{})
	c.f.check(err)
	keys := make([]inbox.Key, len(dead))
	for n, d := range dead {
		keys[n] = d.Key
	}
	n, err := c.in.Redrive(c.f.Context(), keys, "ada", "mended")
	if n != want || !errors.Is(err, end) {
		c.f.Errorf("%d events redriven, %v; want %d, %v", n, err, want, end)
	}
}

// inboxCacheDeadCopies delivers copies of a dead event in one batch. Each copy is refused, and none
// adds the event to the cache: after Redrive it is handled.
func inboxCacheDeadCopies(f *inboxFixture) {
	c := f.cached(&inboxCache{})
	c.refuse = true
	c.deliver("e", inbox.Dead)
	c.refuse = false
	c.deliverBatch(inbox.Dead, "e", "e", "e")
	c.wantHandled(0)
	c.redriveDead(1, nil)
	c.deliverBatch(inbox.Ack, "e", "e")
	c.deliver("e", inbox.Ack)
	c.wantHandled(1)
}

// inboxCacheRolledBack rolls back a batch, and then its messages. The cache has none of them.
func inboxCacheRolledBack(f *inboxFixture) {
	c := f.cached(&inboxCache{})
	c.refuse = true
	c.deliverBatch(inbox.Dead, "a", "b", "a")
	c.refuse = false
	c.redriveDead(2, nil)
	c.deliverBatch(inbox.Ack, "b", "a", "b")
	c.wantHandled(2)
}

// inboxCacheRedriven redrives an event whose entry has outlived its row, as after a failover that
// lost commits. The cache forgets the event. If it cannot, the event stays dead, because the cache
// would have its message acknowledged.
func inboxCacheRedriven(f *inboxFixture) {
	cache := &inboxCache{err: errInbox}
	c := f.cached(cache)
	for _, id := range []string{"e", "dead too", "processed"} {
		key := once.Key{Scope: once.Scope("inbox", "billing", "invoice"), ID: id}
		f.check(cache.Remember(f.Context(), key.String()))
	}
	f.fail(inboxEvent("e"), true)
	f.fail(inboxEvent("dead too"), true)
	c.redriveDead(0, errInbox)
	cache.err = nil
	c.redriveDead(2, nil)
	c.deliver("e", inbox.Ack)
	c.deliverBatch(inbox.Ack, "processed", "dead too", "e")
	c.wantHandled(2)
}
