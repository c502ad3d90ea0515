package relay

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

const operatorsEvery = 2 * time.Second // between two looks at what operators have set, with 20 % jitter

// operators tracks whether the relay's copy of the operators' settings is current: the pauses, and
// this process's shares of the rates. The copy is in doubt at the start, after a request of this
// process, and after a failure of the database, because an operator may have reached the database
// meanwhile. Until the relay has looked again it claims nothing, and publishes nothing of what it
// holds.
type operators struct {
	doubts   uint64        // reasons so far to look again
	answered uint64        // how many of them the last look has answered
	err      error         // how that look ended
	looked   chan struct{} // closed at the end of the next look
	wanted   signal        // a look is asked for
	putOff   bool          // the poller has put off a claim
}

func newOperators(wanted signal) operators {
	s := operators{looked: make(chan struct{}), wanted: wanted}
	s.doubt()
	return s
}

// known reports whether the copy of the settings is current.
func (s *operators) known() bool { return s.answered == s.doubts && s.err == nil }

// doubt asks for a look.
func (s *operators) doubt() {
	s.doubts++
	s.wanted.give()
}

// ended notes the end of a look that answers the first doubts.
func (s *operators) ended(doubts uint64, err error) {
	s.answered, s.err = doubts, err
	close(s.looked)
	s.looked = make(chan struct{})
}

// doubt makes the relay look again at what operators have set, before it publishes anything more.
func (r *engine) doubt() { r.do(func(s *state) { s.operators.doubt() }) }

// operated makes the relay look at what operators have set, and at the table.
func (r *engine) operated() {
	r.do(func(s *state) {
		s.operators.doubt()
		s.wakes.poll(time.Now())
	})
}

// current waits until the settings of operators were read after the database's last failure, and
// returns the error of that read.
func (r *engine) current(ctx context.Context) (err error) {
	doubts := ask(r, func(s *state) uint64 { return s.operators.doubts })
	for {
		looked := ask(r, func(s *state) (looked chan struct{}) {
			if s.operators.answered < doubts {
				return s.operators.looked
			}
			err = s.operators.err
			return nil
		})
		if looked == nil {
			break
		}
		select {
		case <-looked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return fmt.Errorf("what operators have set cannot be read: %w", err)
	}
	return nil
}

// followOperators looks at what operators have set until no publish may begin any more.
func (r *engine) followOperators() {
	ctx := r.life.publishes
	// One random number for all pauses: a goroutine that fails at the same moment draws its own.
	share := r.random()
	for failures := 0; ; {
		news := r.db.news()
		select {
		case <-r.signals.settings:
		default:
		}
		wait, err := r.look(ctx, pace.Spread(operatorsEvery, share))
		if err != nil {
			failures++
			switch pause(errorPause(failures, share), news, ctx.Done()) {
			case pauseStopped:
				return
			case pauseCut:
				failures = 1
			case pauseOver:
			}
			continue
		}
		if failures > 0 {
			failures = 0
			r.db.succeeded()
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.signals.settings:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// look reads the operators' settings. It returns how long to wait until the next look, at most the
// given time: a pause with an end goes on until the database has ended it.
func (r *engine) look(ctx context.Context, wait time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	doubts := ask(r, func(s *state) uint64 { return s.operators.doubts })
	at := time.Now()
	set, err := r.repo().Settings(ctx)
	var shares []core.Rate
	if err == nil {
		r.do(func(s *state) { s.setPauses(set.Pauses) }) // before the next read, which may hang
		shares, err = r.shares(ctx, set.Rates)
	}
	r.do(func(s *state) { s.looked(doubts, shares, err) })
	if err != nil {
		return 0, err
	}
	for _, p := range set.Pauses {
		if !p.Until.IsZero() {
			wait = min(wait, max(p.Left-time.Since(at), minPoll))
		}
	}
	return wait, nil
}

// looked notes the end of a look that answers the first doubts.
func (s *state) looked(doubts uint64, shares []core.Rate, err error) {
	was := s.operators.known()
	s.operators.ended(doubts, err)
	if err != nil {
		return
	}
	s.setRates(shares)
	if !was && s.operators.known() {
		s.crew.wakeAll()
		if s.operators.putOff {
			s.operators.putOff = false
			s.wakes.poll(time.Now())
		}
	}
}

// pauses are the pauses that a relay follows. The zero value has none.
type pauses struct {
	all             bool
	topics, tenants map[string]bool
	list            []core.Pause // the source of the sets above
}

// hold reports whether all events of a topic are held back.
func (p *pauses) hold(topic string) bool { return p.all || p.topics[topic] }

// holdEvent reports whether the events of a topic and a tenant are held back.
func (p *pauses) holdEvent(topic, tenant string) bool { return p.hold(topic) || p.tenants[tenant] }

// has reports whether the same is paused as by p2.
func (p *pauses) has(p2 core.Pause) bool {
	switch {
	case p2.All:
		return p.all
	case p2.Tenant != "":
		return p.tenants[p2.Tenant]
	}
	return p.topics[p2.Topic]
}

func pausesOf(list []core.Pause) pauses {
	p := pauses{topics: map[string]bool{}, tenants: map[string]bool{}, list: list}
	for _, one := range list {
		switch {
		case one.All:
			p.all = true
		case one.Tenant != "":
			p.tenants[one.Tenant] = true
		default:
			p.topics[one.Topic] = true
		}
	}
	return p
}

// setPauses makes the relay follow the pauses. After the end of one it polls at once.
func (s *state) setPauses(list []core.Pause) {
	was, is := s.dests.paused, pausesOf(list)
	s.dests.paused = is
	for _, p := range list {
		if !was.has(p) {
			s.effects.Call(func() {
				args := []any{pauseName(p), "actor", p.Actor, "reason", p.Reason}
				if !p.Until.IsZero() { // otherwise until it is resumed
					args = append(args, "until", p.Until)
				}
				s.ob.Logger.Info("outbox: paused: the events wait and spend no attempts", args...)
			})
		}
	}
	ended := slices.DeleteFunc(slices.Clone(was.list), is.has)
	for _, p := range ended {
		s.effects.Call(func() {
			s.ob.Logger.Info("outbox: resumed", pauseName(p))
		})
	}
	if len(ended) > 0 {
		now := time.Now()
		s.poller.wakeKeys() // its keys were passed over
		for _, d := range s.dests.limited {
			d.limit.look.ask(now)
		}
		s.wakes.poll(now)
	}
}

// pauseName is the log attribute for the target of a pause.
func pauseName(p core.Pause) slog.Attr {
	switch {
	case p.All:
		return slog.String("destination", "all")
	case p.Tenant != "":
		return slog.String("tenant", p.Tenant)
	}
	return slog.String("destination", p.Topic)
}
