package core

import (
	"fmt"
	"sync"
	"time"
)

// This file hands events over to an AsyncPublisher. An item stays itemPublishing from the pick
// until its event is answered, as with any publisher, and only its worker leaves earlier. So its
// key has no other event under way, its lease is renewed, and it counts as stuck after the same
// time.

// handovers count the publishes that an AsyncPublisher has. The zero value is for a relay without
// such a publisher. Guarded by relay.mu.
type handovers struct {
	most      int   // Config.InFlight; 0: no topic has an AsyncPublisher
	mostBytes int64 // Config.InFlightBytes
	all       bool  // every topic has one

	events    int // events under way
	bytes     int64
	left      int // abandoned, and not under way any more
	leftBytes int64
	blocked   bool // a worker found no room
}

// places is how many events may be under way. Abandoned ones are replaced, but only as many as
// there are places, as crew does it with workers.
func (h *handovers) places() int { return min(h.most, 2*h.most-h.left) }

// full reports whether no event may be handed over. The last one may exceed mostBytes.
func (h *handovers) full() bool {
	return h.most > 0 && (h.events >= h.places() || h.bytes >= min(h.mostBytes, 2*h.mostBytes-h.leftBytes))
}

// noneLeft reports whether every place is taken by an abandoned publish.
func (h *handovers) noneLeft() bool {
	return h.most > 0 && (h.places() <= 0 || h.leftBytes >= 2*h.mostBytes)
}

// unblock reports whether the workers that found no room are to look again. It waits until some
// places are free, because a worker that is woken for each of them costs more than the publish.
func (h *handovers) unblock() bool {
	if !h.blocked || h.full() || h.places()-h.events < h.places()/8 {
		return false
	}
	h.blocked = false
	return true
}

// handover is one call of an AsyncPublisher. The publish ends when the event is answered and the
// call has returned, whichever comes last.
type handover struct {
	r   *relay
	to  AsyncPublisher
	it  *item
	end func(receipt string, err error) // ends the sending of the Tracer; may be nil

	mu       sync.Mutex
	answered bool // the answer is in p
	late     bool // it was an error, and the event was accepted after all; further answers are ignored
	returned bool // the worker is out of the call
	lost     bool // the publish was abandoned while the worker was in the call
	p        published
}

// takePlace notes that an item is about to be handed over, if its topic has an AsyncPublisher.
// Called under the lock.
func (r *relay) takePlace(it *item) {
	if r.crew.handovers.most == 0 {
		return
	}
	to := asyncOf(r.cfg.Publisher, it.delivery.Topic)
	if to == nil {
		return
	}
	it.handover = &handover{r: r, to: to, it: it}
	r.life.workers.Add(1) // until finish has returned
	r.crew.handovers.events++
	r.crew.handovers.bytes += it.size
}

// handOver calls the publisher once. It reports whether the worker goes on.
func (r *relay) handOver(h *handover) (goOn bool) {
	h.p.started = time.Now()
	returned := false
	defer func() {
		if v := recover(); v != nil {
			panicked := NewPanicError(v)
			err := fmt.Errorf("%w: %v", errPanic, panicked.Value)
			d := &h.it.delivery
			r.cfg.Logger.Error("outbox: publisher panicked", "component", "outbox", "destination", d.Topic,
				"event_id", d.ID, "err", errorText(err), "stack", string(panicked.Stack))
			h.answer("", err)
		} else if !returned { // runtime.Goexit: another goroutine takes over
			h.answer("", errGoexit)
			if h.leave() {
				r.life.workers.Go(r.worker)
			}
			return
		}
		goOn = h.leave()
	}()
	ctx, d := r.life.deadlines.context(r.life.publishes, h.p.started, r.cfg.PublishTimeout), h.it.delivery
	if t := r.cfg.Tracer; t != nil && t.Send != nil {
		var headers map[string]string
		ctx, headers, h.end = t.Send(ctx, d, h.it.path)
		d = r.o.carrying(d, headers)
	}
	h.to.PublishAsync(ctx, d, h.answer)
	returned = true
	return goOn
}

// answer is the function that the publisher calls. The first call counts, and the first success
// after an error.
func (h *handover) answer(receipt string, err error) {
	now := time.Now()
	h.mu.Lock()
	if h.answered {
		late := err == nil && h.p.err != nil && !h.late
		h.late = h.late || late
		h.mu.Unlock()
		if late {
			h.r.answeredLate(h.it, receipt)
		}
		return
	}
	h.answered = true
	h.p.receipt, h.p.err, h.p.ended = receipt, err, now
	h.p.stopped = err != nil && h.r.life.publishes.Err() != nil
	returned := h.returned
	h.mu.Unlock()
	if returned {
		h.finish()
	}
}

// leave notes that the call has returned, and reports whether its worker goes on.
func (h *handover) leave() (goOn bool) {
	h.mu.Lock()
	h.returned = true
	answered, lost := h.answered, h.lost
	h.mu.Unlock()
	goOn = !lost || h.r.workerBack()
	if answered {
		h.finish()
	}
	return goOn
}

// lose notes that the publish is abandoned, and reports whether its worker is lost with it.
func (h *handover) lose() (worker bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = !h.returned
	return h.lost
}

// finish is called once, when the publish has ended.
func (h *handover) finish() {
	defer h.r.life.workers.Done()
	if h.end != nil {
		h.end(h.p.receipt, h.p.err)
	}
	h.r.end(h.it, h.p)
}

// asyncOf returns the AsyncPublisher of a topic, or nil if its publisher is none.
func asyncOf(p Publisher, topic string) AsyncPublisher {
	async, _ := publisherOf(p, topic).(AsyncPublisher)
	return async
}

// newHandovers returns the count for a relay with this configuration.
func newHandovers(cfg *Config) handovers {
	sync, async := publisherKinds(cfg.Publisher)
	if !async {
		return handovers{}
	}
	return handovers{most: cfg.InFlight, mostBytes: cfg.InFlightBytes, all: !sync}
}

// publisherKinds reports whether p publishes some topics one call an event, and others
// asynchronously.
func publisherKinds(p Publisher) (sync, async bool) {
	router, ok := p.(*Router)
	if !ok {
		_, async = p.(AsyncPublisher)
		return p != nil && !async, async
	}
	if router == nil { // Validate refuses it
		return false, false
	}
	sync, async = publisherKinds(router.fallback)
	for _, p := range router.topics {
		s, a := publisherKinds(p)
		sync, async = sync || s, async || a
	}
	return sync, async
}
