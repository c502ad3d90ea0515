package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// ormClient runs one transaction in different ways, each as the documentation of its ORM shows it.
type ormClient interface {
	// Alone inserts an order.
	Alone(ctx context.Context) error
	// SecondRow inserts an order, and a row of the hand-written outbox table through a model.
	SecondRow(ctx context.Context, row secondRow) error
	// Publish inserts an order and publishes events through the outbox.
	Publish(ctx context.Context, events ...core.Event) error
	// Run runs the relay. A client without an outbox must not call it.
	Run(ctx context.Context) error
}

// outboxConfig is the configuration of the outbox: the defaults, with few exceptions.
type outboxConfig struct {
	prefix    string
	publisher core.Publisher
	observer  *core.Observer
}

// opener opens a client. Without a configuration the client has no outbox.
type opener func(ctx context.Context, cfg *outboxConfig) (ormClient, error)

// randomKey returns one of the keys of producers.
func (e *env) randomKey() string { return producerKey(rand.IntN(e.opts.keys)) }

func producerKey(k int) string { return fmt.Sprintf("order/%07d", k) }

// finishLimit is how long a relay that keeps up may take to finish its events.
const finishLimit = time.Minute

// session is a client with the outbox. It lives for a whole section, because a relay that has just
// started does not know the keys yet, unlike a process that runs for days.
type session struct {
	ormClient

	e      *env
	table  string
	ledger *ledger
	next   atomic.Int64 // number of the next event

	marked, hot, cold atomic.Int64
	entered           atomic.Pointer[func(n int)] // called when Publish is entered; may be nil

	stop  context.CancelFunc // nil: no relay
	ended chan error
}

// openSession opens a client with its outbox in tables of the given prefix, with a relay or
// without, and uses every key once. The caller closes it, also after an error.
func (e *env) openSession(ctx context.Context, open opener, prefix string, relay bool) (s *session, err error) {
	s = &session{e: e, table: prefix + "event", ledger: &ledger{}}
	cfg := &outboxConfig{prefix: prefix, observer: &core.Observer{
		Marked: func(rows int, _ time.Duration, err error) {
			if err == nil {
				s.marked.Add(int64(rows))
			}
		},
		Published: func(info core.PublishInfo) {
			if info.Path == core.PathHot {
				s.hot.Add(1)
			} else {
				s.cold.Add(1)
			}
		},
	}}
	if relay {
		cfg.publisher = core.PublisherFunc(s.publish)
	}
	if s.ormClient, err = open(ctx, cfg); err != nil {
		return s, err
	}
	if relay {
		runCtx, stop := context.WithCancel(ctx)
		s.stop, s.ended = stop, make(chan error, 1)
		go func() { s.ended <- s.Run(runCtx) }()
	}
	return s, s.warm(ctx)
}

func (s *session) publish(_ context.Context, d core.Delivery) error {
	n := payloadNumber(d.Payload)
	if f := s.entered.Load(); f != nil {
		(*f)(n)
	}
	s.ledger.see(n)
	return nil
}

// warm uses every key once, waits until the fast path works, and analyzes the tables.
func (s *session) warm(ctx context.Context) error {
	const batch = 500
	for first := 0; first < s.e.opts.keys; first += batch {
		var events []core.Event
		for k := first; k < min(first+batch, s.e.opts.keys); k++ {
			events = append(events, s.event(producerKey(k), true))
		}
		if err := s.Publish(ctx, events...); err != nil {
			return err
		}
	}
	if err := s.finished(ctx); err != nil {
		return err
	}
	if s.stop != nil {
		ok, err := await(ctx, finishLimit, 0, func() (bool, error) {
			before := s.hot.Load()
			if err := s.Publish(ctx, s.event("", false)); err != nil {
				return false, err
			}
			err := s.finished(ctx)
			return s.hot.Load() > before, err
		})
		if err != nil || !ok {
			return errors.Join(err, errors.New("the fast path does not begin"))
		}
	}
	return s.e.exec(ctx, "ANALYZE "+s.table)
}

// event returns the next event. Without order it has a key too, as the second model row has.
func (s *session) event(key string, ordered bool) core.Event {
	return core.Event{
		Type: benchType, Topic: benchTopic, Key: key, Unordered: !ordered, ContentType: "application/json",
		Payload: newPayload(int(s.next.Add(1) - 1)),
	}
}

// finished waits until the relay has published and marked every event, and checks the events.
// Without a relay it only counts them.
func (s *session) finished(ctx context.Context) error {
	n := s.next.Load()
	if s.stop == nil {
		stored, err := s.e.count(ctx, "SELECT count(*) FROM "+s.table)
		if err == nil && stored != n {
			err = fmt.Errorf("%d events are stored, %d were published", stored, n)
		}
		return err
	}
	missing := errors.New("nothing was looked at")
	ok, err := await(ctx, finishLimit, time.Millisecond, func() (bool, error) {
		select {
		case err := <-s.ended:
			return false, errors.Join(errors.New("the relay ended"), err)
		default:
		}
		if s.marked.Load() < n { // released rows count too: the tables are checked as well
			return false, nil
		}
		missing = s.complete(ctx, n)
		return missing == nil, nil
	})
	if err == nil && !ok {
		err = errors.Join(fmt.Errorf("%d of %d events are finished after %s", s.marked.Load(), n, finishLimit), missing)
	}
	return err
}

// complete returns nil when n events were published and none is open.
func (s *session) complete(ctx context.Context, n int64) error {
	if err := s.ledger.check(int(n)); err != nil {
		return err
	}
	open, err := s.e.count(ctx, "SELECT count(*) FROM "+s.table+" WHERE status IN (0, 2)")
	if err == nil && open > 0 {
		err = fmt.Errorf("%d events are not DONE", open)
	}
	return err
}

// share returns the percentage of events since the given counts that took the fast path.
func (s *session) share(hot, cold int64) float64 {
	hot, cold = s.hot.Load()-hot, s.cold.Load()-cold
	return 100 * float64(hot) / float64(max(1, hot+cold))
}

func (s *session) close() error {
	if s == nil || s.stop == nil {
		return nil
	}
	s.stop()
	return <-s.ended
}
