package outboxtest

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Publisher is a core.Publisher that accepts and records all events, and that fails, blocks or
// hangs on demand. The zero value accepts everything. It is safe for use by several goroutines. It
// must not be copied.
type Publisher struct {
	mu       sync.Mutex
	attempts []Attempt
	accepted []core.Delivery
	changed  chan struct{} // closed and replaced when an event is accepted
	gate     chan struct{} // not nil: publishes wait until it is closed

	failNext []error
	lostAcks []error
	failFor  func(core.Delivery) error
	hangFor  func(core.Delivery) bool
	outages  map[string]error
	receipt  func(core.Delivery) string
	size     func(core.Event) error

	inFlight int
	lanes    map[core.KeyID]int
	overlaps int
}

var (
	_ core.ReceiptPublisher = (*Publisher)(nil)
	_ core.SizeChecker      = (*Publisher)(nil)
)

// Attempt is one call of Publish that has ended.
type Attempt struct {
	Delivery core.Delivery
	Accepted bool  // the destination has accepted the event, even if the caller got an error
	Err      error // the error that the caller got
}

// Publish implements core.Publisher.
func (p *Publisher) Publish(ctx context.Context, d core.Delivery) error {
	_, err := p.PublishWithReceipt(ctx, d)
	return err
}

// PublishWithReceipt implements core.ReceiptPublisher. See Receipts.
func (p *Publisher) PublishWithReceipt(ctx context.Context, d core.Delivery) (string, error) {
	d.Headers, d.Payload = maps.Clone(d.Headers), bytes.Clone(d.Payload)
	leave := p.enter(d)
	defer leave()
	if err := p.wait(ctx); err != nil {
		return "", p.refuse(d, err)
	}
	hang, err := p.verdict(d)
	if hang {
		<-ctx.Done()
		err = ctx.Err()
	}
	if err != nil {
		return "", p.refuse(d, err)
	}
	return p.accept(d)
}

// enter counts d as in flight until the returned function is called.
func (p *Publisher) enter(d core.Delivery) (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight++
	if d.KeySeq == 0 {
		return func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.inFlight--
		}
	}
	lane := core.NewKeyID(d.TenantID, d.Topic, d.Key)
	if !d.ReplayOf.IsZero() {
		lane = core.ReplayKeyID(lane)
	}
	if p.lanes == nil {
		p.lanes = map[core.KeyID]int{}
	}
	if p.lanes[lane] > 0 {
		p.overlaps++
	}
	p.lanes[lane]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.inFlight--
		p.lanes[lane]--
	}
}

// wait blocks until the publisher is not blocked.
func (p *Publisher) wait(ctx context.Context) error {
	for {
		p.mu.Lock()
		gate := p.gate
		p.mu.Unlock()
		if gate == nil {
			return nil
		}
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// verdict decides whether d hangs, fails, or, without an error, is accepted.
func (p *Publisher) verdict(d core.Delivery) (hang bool, err error) {
	p.mu.Lock()
	hangFor, failFor := p.hangFor, p.failFor
	outage := p.outages[d.Topic]
	if outage == nil && len(p.failNext) > 0 {
		outage, p.failNext = p.failNext[0], p.failNext[1:]
	}
	p.mu.Unlock()
	switch {
	case outage != nil:
		return false, outage
	case hangFor != nil && hangFor(d):
		return true, nil
	case failFor != nil:
		return false, failFor(d)
	}
	return false, nil
}

func (p *Publisher) refuse(d core.Delivery, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempts = append(p.attempts, Attempt{Delivery: d, Err: err})
	return err
}

func (p *Publisher) accept(d core.Delivery) (receipt string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lostAcks) > 0 {
		err, p.lostAcks = p.lostAcks[0], p.lostAcks[1:]
	}
	p.attempts = append(p.attempts, Attempt{Delivery: d, Accepted: true, Err: err})
	p.accepted = append(p.accepted, d)
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	if err == nil && p.receipt != nil {
		receipt = p.receipt(d)
	}
	return receipt, err
}

// FailNext makes the next n publishes fail with err.
func (p *Publisher) FailNext(n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range n {
		p.failNext = append(p.failNext, err)
	}
}

// FailFor makes publishes fail for which fn returns an error. Only the latest fn is used; nil
// removes it. Several goroutines may call fn at once.
func (p *Publisher) FailFor(fn func(core.Delivery) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failFor = fn
}

// HangFor makes publishes hang for which fn returns true: they wait for the end of their context
// and fail with its error, as if the destination did not answer. Only the latest fn is used; nil
// removes it. Several goroutines may call fn at once.
func (p *Publisher) HangFor(fn func(core.Delivery) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangFor = fn
}

// LoseAcks makes the next n accepted publishes return err, as if the destination had accepted the
// event and the answer was lost.
func (p *Publisher) LoseAcks(n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range n {
		p.lostAcks = append(p.lostAcks, err)
	}
}

// Outage makes every publish to the topic fail with err, until Restore. A nil err means
// core.Unavailable.
func (p *Publisher) Outage(topic string, err error) {
	if err == nil {
		err = core.Unavailable(errConnectionLost)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.outages == nil {
		p.outages = map[string]error{}
	}
	p.outages[topic] = err
}

// Restore ends the Outage of the topic.
func (p *Publisher) Restore(topic string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.outages, topic)
}

// Block makes publishes wait until Unblock or the end of their context.
func (p *Publisher) Block() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate == nil {
		p.gate = make(chan struct{})
	}
}

// Unblock ends Block.
func (p *Publisher) Unblock() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate != nil {
		close(p.gate)
		p.gate = nil
	}
}

// Receipts makes PublishWithReceipt return the result of fn. Default: no receipt. fn is called with
// a lock held and must not use p.
func (p *Publisher) Receipts(fn func(core.Delivery) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.receipt = fn
}

// Accepted returns the events that were accepted so far, in this order.
func (p *Publisher) Accepted() []core.Delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.accepted)
}

// Attempts returns the publishes that ended so far, in this order.
func (p *Publisher) Attempts() []Attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.attempts)
}

// InFlight returns how many publishes are under way.
func (p *Publisher) InFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inFlight
}

// Overlaps returns how many publishes began while another publish of the same key was under way.
// With a relay it stays 0.
func (p *Publisher) Overlaps() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.overlaps
}

// waitLimit is how long Wait waits.
const waitLimit = 30 * time.Second

// Wait waits until at least n events are accepted and returns all accepted events. It fails the
// test after 30 seconds. Call it from the goroutine of the test.
func (p *Publisher) Wait(t testing.TB, n int) []core.Delivery {
	t.Helper()
	limit := time.NewTimer(waitLimit)
	defer limit.Stop()
	for {
		p.mu.Lock()
		accepted := slices.Clone(p.accepted)
		if len(accepted) < n && p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		if len(accepted) >= n {
			return accepted
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("outboxtest: %d events were published within %s, want %d:%s", len(accepted), waitLimit, n,
				describe(accepted))
		}
	}
}

// CheckSize implements core.SizeChecker. See Sizes.
func (p *Publisher) CheckSize(e core.Event) error {
	p.mu.Lock()
	fn := p.size
	p.mu.Unlock()
	if fn == nil {
		return nil
	}
	return fn(e)
}

// Sizes makes CheckSize return the result of fn. Default: every size is accepted.
func (p *Publisher) Sizes(fn func(core.Event) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size = fn
}
