package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// randomKey returns one of the keys of producers.
func (e *env) randomKey() string { return producerKey(rand.IntN(e.opts.Keys)) }

func producerKey(k int) string { return fmt.Sprintf("order/%07d", k) }

// finishLimit is how long a relay that keeps up may take to finish its events.
const finishLimit = time.Minute

// session is an ORM with the outbox. It lives for a whole section, because a relay that has just
// started does not know the keys yet, unlike a process that runs for days.
type session struct {
	ormClient

	e      *env
	table  string
	ledger *ledger
	next   atomic.Int64 // number of the next event

	marked, hot, cold atomic.Int64
	entered           atomic.Pointer[func(n int)] // called when Publish is entered; may be nil
	acked             atomic.Pointer[func(n int)] // called when Publish has succeeded; may be nil

	stop  context.CancelFunc // nil: no relay
	ended chan error
}

// openSession opens an ORM with its outbox in tables of the given prefix, with a relay or without,
// and uses every key once.
func (e *env) openSession(ctx context.Context, o orm, db *sql.DB, prefix string, relay bool) (*session, error) {
	s := &session{e: e, table: prefix + "event", ledger: newLedger()}
	return s, s.open(ctx, o, db, prefix, relay, nil)
}

// openSessionTo is openSession with a relay that publishes to a broker. A nil publisher does
// nothing.
func (e *env) openSessionTo(ctx context.Context, o orm, db *sql.DB, prefix string,
	to core.Publisher,
) (*session, error) {
	s := &session{e: e, table: prefix + "event", ledger: newLedger()}
	return s, s.open(ctx, o, db, prefix, true, to)
}

func (s *session) open(ctx context.Context, o orm, db *sql.DB, prefix string, relay bool,
	to core.Publisher,
) (err error) {
	s.e.progress.show("preparing %s", o.name)
	cfg := &outboxConfig{
		prefix:    prefix,
		publisher: s.publisher(to),
		observer: &core.Observer{
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
		},
	}
	if !relay {
		cfg.publisher = nil // as in a service whose events another process relays
	}
	s.ormClient, err = o.open(ctx, db, cfg)
	if err != nil {
		return err
	}
	if relay {
		runCtx, stop := context.WithCancel(ctx)
		s.stop, s.ended = stop, make(chan error, 1)
		go func() { s.ended <- s.Run(runCtx) }()
	}
	return s.warm(ctx)
}

// warm uses every key once, waits until the fast path works, and analyzes the tables.
func (s *session) warm(ctx context.Context) error {
	const batch = 500
	for first := 0; first < s.e.opts.Keys; first += batch {
		var events []core.Event
		for k := first; k < min(first+batch, s.e.opts.Keys); k++ {
			events = append(events, s.event(producerKey(k)))
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
			if err := s.Publish(ctx, s.event("")); err != nil {
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

// event returns the next event: ordered with a key, unordered without.
func (s *session) event(key string) core.Event {
	return core.Event{
		Type: benchType, Topic: benchTopic, Key: key, ContentType: "application/json",
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
	var missing error
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
	return 100 * float64(hot) / float64(hot+cold)
}

func (s *session) close() error {
	if s == nil || s.stop == nil {
		return nil
	}
	s.stop()
	return <-s.ended
}

// publisher counts the events that it passes to another publisher, or to none.
func (s *session) publisher(to core.Publisher) core.Publisher {
	p := sessionPublisher{s, to}
	if async, ok := to.(core.AsyncPublisher); ok {
		return asyncSessionPublisher{p, async}
	}
	return p
}

type sessionPublisher struct {
	s  *session
	to core.Publisher // nil: events go nowhere
}

func (p sessionPublisher) Publish(ctx context.Context, d core.Delivery) error {
	p.enter(d)
	if p.to != nil {
		if err := p.to.Publish(ctx, d); err != nil {
			return err
		}
	}
	p.accepted(d)
	return nil
}

func (p sessionPublisher) enter(d core.Delivery) {
	if f := p.s.entered.Load(); f != nil {
		(*f)(payloadNumber(d.Payload))
	}
}

func (p sessionPublisher) accepted(d core.Delivery) {
	n := payloadNumber(d.Payload)
	if f := p.s.acked.Load(); f != nil {
		(*f)(n)
	}
	p.s.ledger.see(n)
}

type asyncSessionPublisher struct {
	sessionPublisher
	async core.AsyncPublisher
}

func (p asyncSessionPublisher) PublishAsync(ctx context.Context, d core.Delivery, done func(string, error)) {
	p.enter(d)
	p.async.PublishAsync(ctx, d, func(receipt string, err error) {
		if err == nil {
			p.accepted(d)
		}
		done(receipt, err)
	})
}
