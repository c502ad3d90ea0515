package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	pausesEvery  = 2 * time.Second // between two looks at the pauses, with 20 % jitter
	pausesFailed = 3               // looks in a row that failed and are worth a warning

	maxPauseAhead = 10 * 366 * 24 * time.Hour
)

// PauseStore is implemented by a Repository that stores pauses. Run reads them before it relays and
// then every 2 s, and Drain when it begins. If the table is missing, the errors wrap ErrNoTables.
type PauseStore interface {
	// Pause stores a pause in place of an earlier one of the same topic, and writes an audit row
	// with the action AuditPause in the same transaction.
	Pause(ctx context.Context, req PauseRequest) error
	// Resume removes a pause that holds, and writes an audit row with the action AuditResume in the
	// same transaction. Without such a pause it changes nothing and returns false.
	Resume(ctx context.Context, req ResumeRequest) (resumed bool, err error)
	// Pauses returns up to 1000 pauses that hold by the database's clock: that of everything first,
	// then those of topics in ascending order.
	Pauses(ctx context.Context) ([]Pause, error)
}

// Actions of the audit rows that Pause and Resume write. The rows have the topic, which is empty
// for everything, and no event.
const (
	AuditPause  = "pause"
	AuditResume = "resume"
)

// PauseRequest says what to pause. Set All or Topic, and Actor and Reason.
type PauseRequest struct {
	All   bool   // every destination
	Topic string // one destination, at most 249 bytes
	// Until is when the pause ends by itself, by the database's clock, at most 10 years ahead.
	// Zero: it holds until Resume.
	Until  time.Time
	Actor  string // the person; required, at most 255 bytes
	Reason string // required, at most 1024 bytes
}

// ResumeRequest says what to resume. Set All or Topic, and Actor and Reason. All ends the pause of
// everything, and leaves those of single topics.
type ResumeRequest struct {
	All    bool
	Topic  string
	Actor  string // the person; required, at most 255 bytes
	Reason string // required, at most 1024 bytes
}

// Pause is a pause that holds. All times are those of the database's clock.
type Pause struct {
	All    bool   // every destination
	Topic  string // the destination; empty if All
	Since  time.Time
	Until  time.Time // zero: until Resume
	Actor  string
	Reason string
	Left   time.Duration // until Until; 0 without one
}

// Covers reports whether the pause holds back the events of the topic.
func (p Pause) Covers(topic string) bool { return p.All || p.Topic == topic }

// Pause stops the events of a topic, or of all topics, on every relay of the table, until a time or
// until Resume. It is stored, so it holds over restarts. Publish goes on: the events wait in the
// table, keep the order of their keys and spend no attempts. A relay follows within 3 s, that of
// this Outbox at once. It finishes the publishes that it has begun, and gives the other events that
// it holds back to the table. Another Pause of the same topic replaces the first.
//
// A bad request is refused with an error wrapping ErrInvalidRequest. The error wraps
// errors.ErrUnsupported if the Repository is no PauseStore, and ErrNoTables if the table is
// missing.
func (o *Outbox) Pause(ctx context.Context, req PauseRequest) error {
	if err := checkPause(req.All, req.Topic, req.Actor, req.Reason); err != nil {
		return err
	}
	if ahead := time.Until(req.Until); !req.Until.IsZero() && (ahead <= 0 || ahead > maxPauseAhead) {
		return fmt.Errorf("%w: Until is not in the future, or more than 10 years ahead", ErrInvalidRequest)
	}
	s, ok := o.cfg.Repository.(PauseStore)
	if !ok {
		return errors.ErrUnsupported
	}
	err := s.Pause(ctx, req)
	o.lookAtPauses()
	return err
}

// Resume ends a pause. It reports whether there was one that held. The relays go on within 3 s,
// that of this Outbox at once. The errors are those of Pause.
func (o *Outbox) Resume(ctx context.Context, req ResumeRequest) (resumed bool, err error) {
	if err := checkPause(req.All, req.Topic, req.Actor, req.Reason); err != nil {
		return false, err
	}
	s, ok := o.cfg.Repository.(PauseStore)
	if !ok {
		return false, errors.ErrUnsupported
	}
	resumed, err = s.Resume(ctx, req)
	o.lookAtPauses()
	return resumed, err
}

// Pauses returns what is paused now, as it is stored: that of everything first, then those of
// topics in ascending order, at most 1000. The errors are those of Pause.
func (o *Outbox) Pauses(ctx context.Context) ([]Pause, error) {
	s, ok := o.cfg.Repository.(PauseStore)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return s.Pauses(ctx)
}

func checkPause(all bool, topic, actor, reason string) (err error) {
	bad := func(format string, args ...any) {
		if err == nil {
			err = fmt.Errorf("%w: "+format, append([]any{ErrInvalidRequest}, args...)...)
		}
	}
	switch {
	case all && topic != "":
		bad("All and Topic are both set")
	case !all:
		checkText(bad, "Topic", topic, maxTopic, true)
	}
	if err != nil {
		return err
	}
	return checkWho(actor, reason)
}

// lookAtPauses makes the relay of this process read the pauses now.
func (o *Outbox) lookAtPauses() {
	if r := o.relay.Load(); r != nil {
		select {
		case r.pauseKick <- struct{}{}:
		default:
		}
	}
}

// pauses are the pauses that a relay follows. The zero value has none; guarded by relay.mu.
type pauses struct {
	all    bool
	topics map[string]bool
}

// hold reports whether the events of a topic are held back.
func (p *pauses) hold(topic string) bool { return p.all || p.topics[topic] }

func pausesOf(list []Pause) pauses {
	p := pauses{topics: map[string]bool{}}
	for _, one := range list {
		if one.All {
			p.all = true
		} else {
			p.topics[one.Topic] = true
		}
	}
	return p
}

// followPauses makes the relay follow the pauses. After the end of one it polls at once.
func (r *relay) followPauses(list []Pause) {
	r.mu.Lock()
	defer r.unlock()
	r.setPauses(list)
}

// setPauses is followPauses under the lock.
func (r *relay) setPauses(list []Pause) {
	was, is := r.dests.paused, pausesOf(list)
	if was.all == is.all && maps.Equal(was.topics, is.topics) {
		return
	}
	r.dests.paused = is
	for _, p := range list {
		if p.All && !was.all || !p.All && !was.topics[p.Topic] {
			r.notices.add(func() {
				r.cfg.Logger.Info("outbox: paused: the events wait and spend no attempts", "component", "outbox",
					"destination", pauseName(p.Topic), "actor", p.Actor, "reason", p.Reason, "until", p.Until)
			})
		}
	}
	ended := slices.DeleteFunc(slices.Sorted(maps.Keys(was.topics)), func(t string) bool { return is.topics[t] })
	if was.all && !is.all {
		ended = append(ended, "")
	}
	for _, topic := range ended {
		r.notices.add(func() {
			r.cfg.Logger.Info("outbox: resumed", "component", "outbox", "destination", pauseName(topic))
		})
	}
	if len(ended) > 0 {
		r.poller.sweep.restUntil = time.Time{} // its keys were passed over
		r.wakes.poll(time.Now())
	}
}

// pauseName is how the log names what is paused.
func pauseName(topic string) string {
	if topic == "" {
		return "all"
	}
	return topic
}

// readPauses asks the table. Without a table, nothing is paused.
func (o *Outbox) readPauses(ctx context.Context) (list []Pause, missing bool, err error) {
	callCtx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	list, err = o.Pauses(callCtx)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, ErrNoTables) {
		return nil, true, nil
	}
	return list, false, err
}

// firstPauses reads the pauses before the relay begins, so that a restart publishes nothing that is
// paused. If the table cannot be read, the relay begins all the same.
func (o *Outbox) firstPauses(ctx context.Context) []Pause {
	for failures := 1; ; failures++ {
		list, _, err := o.readPauses(ctx)
		if err == nil || ctx.Err() != nil {
			return list
		}
		if failures == pausesFailed {
			o.pausesUnknown(ctx, err)
			return nil
		}
		if !sleep(ctx, errorPause(failures, o.random())) {
			return nil
		}
	}
}

func (o *Outbox) pausesUnknown(ctx context.Context, err error) {
	o.cfg.Logger.WarnContext(ctx, "outbox: cannot read what is paused: this relay follows no new pause until it can",
		"component", "outbox", "err", errorText(err))
}

// watchPauses follows the pauses until ctx ends. When they cannot be read, those that were read
// last hold until their time.
func (r *relay) watchPauses(ctx context.Context, list []Pause) {
	if _, ok := r.repo().(PauseStore); !ok {
		return
	}
	read := time.Now()
	for failures, wait := 0, pausesEvery; ; {
		next := spread(wait, r.random())
		for _, p := range list {
			if !p.Until.IsZero() { // a pause goes on until the database says that it is over
				next = min(next, max(p.Left-time.Since(read), minPoll))
			}
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-r.pauseKick:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
		got, missing, err := r.o.readPauses(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures, wait = 0, pausesEvery
			if missing { // Run has logged it when it checked the tables
				wait = heartbeatAgain
			}
			list, read = got, time.Now()
		default:
			if failures++; failures == pausesFailed {
				r.o.pausesUnknown(ctx, err)
			}
			list = slices.DeleteFunc(slices.Clone(list), func(p Pause) bool {
				return !p.Until.IsZero() && time.Since(read) > p.Left
			})
		}
		r.followPauses(list)
	}
}
