package relay

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// This file hands events over to an AsyncPublisher. An item stays itemPublishing from the pick
// until its event is answered, as with any publisher, and only its worker leaves earlier. So its
// key has no other event under way, its lease is renewed, and it counts as stuck after the same
// time.

// handovers count the publishes that an AsyncPublisher has. The zero value is for a relay without
// such a publisher.
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
	r        *engine
	to       core.AsyncPublisher
	it       *item          // guarded by the state of r
	delivery *core.Delivery // of the item, which does not change any more
	path     core.Path
	end      func(receipt string, err error) // ends the sending of the Tracer; may be nil

	mu       sync.Mutex
	answered bool // the answer is in p
	late     bool // it was an error, and the event was accepted after all; further answers are ignored
	returned bool // the worker is out of the call
	p        published

	worker atomic.Uint32 // workerInCall, workerReturned or workerLost
}

// Where the worker of a handover is.
const (
	workerInCall   uint32 = iota
	workerReturned        // from the call
	workerLost            // the publish was abandoned while the worker was in the call
)

// takePlace notes that an item is about to be handed over, if its topic has an AsyncPublisher.
func (s *state) takePlace(it *item) {
	if s.crew.handovers.most == 0 {
		return
	}
	to := asyncOf(s.ob.Publisher, it.delivery.Topic)
	if to == nil {
		return
	}
	it.handover = &handover{to: to, it: it, delivery: &it.delivery, path: it.path}
	s.crew.handovers.events++
	s.crew.handovers.bytes += it.size
}

// handOver calls the publisher once. It reports whether the worker goes on.
func (r *engine) handOver(h *handover) (goOn bool) {
	h.p.started = time.Now()
	returned := false
	defer func() {
		if v := recover(); v != nil {
			panicked := core.NewPanicError(v)
			err := fmt.Errorf("%w: %v", errPanic, panicked.Value)
			d := h.delivery
			r.ob.Logger.Error("outbox: publisher panicked", "destination", d.Topic,
				"event_id", d.ID, "error", errtext.Of(err), "stack", string(panicked.Stack))
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
	ctx, d := r.life.deadlines.context(r.life.publishes, h.p.started, r.cfg.PublishTimeout), *h.delivery
	if t := r.ob.Tracer; t != nil && t.Send != nil {
		var headers map[string]string
		ctx, headers, h.end = t.Send(ctx, d, h.path)
		d = r.carrying(d, headers)
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
			h.r.answeredLate(h.it, h.delivery, receipt)
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
	if goOn = h.worker.CompareAndSwap(workerInCall, workerReturned); !goOn {
		h.r.workerBack()
	}
	h.mu.Lock()
	h.returned = true
	answered := h.answered
	h.mu.Unlock()
	if answered {
		h.finish()
	}
	return goOn
}

// lose notes that the publish is abandoned, and reports whether its worker is lost with it.
func (h *handover) lose() (worker bool) { return h.worker.CompareAndSwap(workerInCall, workerLost) }

// finish is called once, when the publish has ended.
func (h *handover) finish() {
	defer h.r.life.workers.Done()
	if h.end != nil {
		h.end(h.p.receipt, h.p.err)
	}
	h.r.finish(h.it, h.p)
}

// publisherOf returns the publisher of a topic behind all routers. Nil: a router has no route for it.
func publisherOf(p core.Publisher, topic string) core.Publisher {
	for {
		router, ok := p.(*core.Router)
		if !ok {
			return p
		}
		p = router.For(topic)
	}
}

// asyncOf returns a topic's publisher if it is an AsyncPublisher, else nil.
func asyncOf(p core.Publisher, topic string) core.AsyncPublisher {
	async, _ := publisherOf(p, topic).(core.AsyncPublisher)
	return async
}

// newHandovers returns the count for a relay with this configuration.
func newHandovers(cfg *Config, p core.Publisher) handovers {
	sync, async := publisherKinds(p)
	if !async {
		return handovers{}
	}
	return handovers{most: cfg.InFlight, mostBytes: cfg.InFlightBytes, all: !sync}
}

// publisherKinds reports whether p publishes some topics one call an event, and others
// asynchronously.
func publisherKinds(p core.Publisher) (sync, async bool) {
	router, ok := p.(*core.Router)
	if !ok {
		_, async = p.(core.AsyncPublisher)
		return p != nil && !async, async
	}
	if router == nil { // Validate refuses it
		return false, false
	}
	for _, p := range router.Publishers() {
		s, a := publisherKinds(p)
		sync, async = sync || s, async || a
	}
	return sync, async
}
