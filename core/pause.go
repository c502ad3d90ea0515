package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

const maxPauseAhead = 10 * 366 * 24 * time.Hour

// maxSettings is how many pauses hold at most, and how many rates: relays read no more.
const maxSettings = 1000

// PauseStore is implemented by a Repository that stores pauses. Run reads them before it relays and
// then every 2 s, and Drain when it begins. If the table is missing, the errors wrap ErrNoTables.
type PauseStore interface {
	// Pause stores a pause in place of an earlier one of the same topic or tenant, and writes an
	// audit row with the action AuditPause in the same transaction. A pause whose Until is over by
	// the database's clock is refused with ErrInvalidRequest.
	Pause(ctx context.Context, req PauseRequest) error
	// Resume removes a pause that holds, and writes an audit row with the action AuditResume in the
	// same transaction. Without such a pause it changes nothing and returns false.
	Resume(ctx context.Context, req ResumeRequest) (resumed bool, err error)
	// Pauses returns up to 1000 pauses that hold by the database's clock: that of everything first,
	// then those of topics and then those of tenants, each in ascending order.
	Pauses(ctx context.Context) ([]Pause, error)
}

// Actions of the audit rows that Pause and Resume write. The rows name no event. Their topic is
// that of the request, AuditTenant and the tenant, or empty for everything.
const (
	AuditPause  = "pause"
	AuditResume = "resume"
	// AuditTenant comes before the tenant, in place of a topic.
	AuditTenant = "tenant:"
)

// PauseRequest says what to pause. Set one of All, Topic and Tenant, and Actor and Reason.
type PauseRequest struct {
	All    bool   // every destination
	Topic  string // one destination, at most 249 bytes
	Tenant string // the events of one tenant (Event.TenantID), at most 64 bytes
	// Until is when the pause ends by itself, by the database's clock, at most 10 years ahead.
	// Zero: it holds until Resume.
	Until  time.Time
	Actor  string // the person; required, at most 255 bytes
	Reason string // required, at most 1024 bytes
	// DryRun: the request is checked as ever, and nothing is changed. A PauseStore gets no such
	// request.
	DryRun bool
}

// ResumeRequest says what to resume. Set one of All, Topic and Tenant, and Actor and Reason. All
// ends the pause of everything, and leaves those of single topics and tenants.
type ResumeRequest struct {
	All    bool
	Topic  string
	Tenant string
	Actor  string // the person; required, at most 255 bytes
	Reason string // required, at most 1024 bytes
	// DryRun: the request is checked and answered as ever, and nothing is changed. A PauseStore
	// gets no such request.
	DryRun bool
}

// Pause is a pause that holds. All times are those of the database's clock.
type Pause struct {
	All    bool   // every destination
	Topic  string // the destination, or empty
	Tenant string // the tenant, or empty
	Since  time.Time
	Until  time.Time // zero: until Resume
	Actor  string
	Reason string
	Left   time.Duration // until Until; 0 without one
}

// Covers reports whether the pause holds back the events of the topic and the tenant. The tenant is
// empty for events that have none: only a pause of their topic or of everything covers those.
func (p Pause) Covers(topic, tenant string) bool {
	switch {
	case p.All:
		return true
	case p.Tenant != "":
		return p.Tenant == tenant
	}
	return p.Topic == topic
}

// Pause stops the events of a topic, of a tenant or all events, on every relay of the table, until
// a time or until Resume. It is stored, so it holds over restarts. Publish goes on: the events wait
// in the table, keep the order of their keys and spend no attempts. A relay follows within 3 s,
// that of this Outbox at once. It finishes the publishes that it has begun, and gives the other
// events that it holds back to the table. Another Pause of the same topic or tenant replaces the
// first.
//
// A bad request, and a pause beside 1000 others, is refused with an error wrapping
// ErrInvalidRequest. The error wraps errors.ErrUnsupported if the Repository is no PauseStore, and
// ErrNoTables if the table is missing.
func (o *Outbox) Pause(ctx context.Context, req PauseRequest) error {
	if err := checkPause(ResumeRequest{
		All: req.All, Topic: req.Topic, Tenant: req.Tenant, Actor: req.Actor, Reason: req.Reason,
	}); err != nil {
		return err
	}
	if ahead := time.Until(req.Until); !req.Until.IsZero() && (ahead <= 0 || ahead > maxPauseAhead) {
		return fmt.Errorf("%w: Until is not in the future, or more than 10 years ahead", ErrInvalidRequest)
	}
	s, ok := o.cfg.Repository.(PauseStore)
	if !ok {
		return errors.ErrUnsupported
	}
	held, err := s.Pauses(ctx)
	if err != nil {
		return err
	}
	if len(held) >= maxSettings && !slices.ContainsFunc(held, func(p Pause) bool {
		return p.All == req.All && p.Topic == req.Topic && p.Tenant == req.Tenant
	}) {
		return fmt.Errorf("%w: %d pauses hold, and relays read no more: resume some of them first",
			ErrInvalidRequest, len(held))
	}
	if req.DryRun {
		return nil
	}
	err = s.Pause(ctx, req)
	o.lookNow()
	return err
}

// Resume ends a pause. It reports whether there was one that held. The relays go on within 3 s,
// that of this Outbox at once. The errors are those of Pause.
func (o *Outbox) Resume(ctx context.Context, req ResumeRequest) (resumed bool, err error) {
	if err := checkPause(req); err != nil {
		return false, err
	}
	s, ok := o.cfg.Repository.(PauseStore)
	if !ok {
		return false, errors.ErrUnsupported
	}
	if req.DryRun {
		held, err := s.Pauses(ctx)
		return slices.ContainsFunc(held, func(p Pause) bool {
			return p.All == req.All && p.Topic == req.Topic && p.Tenant == req.Tenant
		}), err
	}
	resumed, err = s.Resume(ctx, req)
	o.lookNow()
	return resumed, err
}

// Pauses returns what is paused now, as it is stored: that of everything first, then those of
// topics and then those of tenants, each in ascending order, at most 1000. The errors are those of
// Pause.
func (o *Outbox) Pauses(ctx context.Context) ([]Pause, error) {
	s, ok := o.cfg.Repository.(PauseStore)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return s.Pauses(ctx)
}

// checkPause checks what a pause, or the end of one, is for.
func checkPause(req ResumeRequest) (err error) {
	bad := func(format string, args ...any) {
		if err == nil {
			err = fmt.Errorf("%w: "+format, append([]any{ErrInvalidRequest}, args...)...)
		}
	}
	switch {
	case req.Topic != "" && req.Tenant != "", req.All && req.Topic+req.Tenant != "":
		bad("set only one of All, Topic and Tenant")
	case !req.All && req.Topic+req.Tenant == "":
		bad("set All, Topic or Tenant")
	}
	checkText(bad, "Topic", req.Topic, maxTopic, false)
	checkText(bad, "Tenant", req.Tenant, maxTenant, false)
	if err != nil {
		return err
	}
	return checkWho(req.Actor, req.Reason)
}

// pauses are the pauses that a relay follows. The zero value has none; guarded by relay.mu.
type pauses struct {
	all             bool
	topics, tenants map[string]bool
	list            []Pause // what they were made of
}

// hold reports whether all events of a topic are held back.
func (p *pauses) hold(topic string) bool { return p.all || p.topics[topic] }

// holdEvent reports whether the events of a topic and a tenant are held back.
func (p *pauses) holdEvent(topic, tenant string) bool { return p.hold(topic) || p.tenants[tenant] }

// has reports whether the same is paused as by p2.
func (p *pauses) has(p2 Pause) bool {
	switch {
	case p2.All:
		return p.all
	case p2.Tenant != "":
		return p.tenants[p2.Tenant]
	}
	return p.topics[p2.Topic]
}

func pausesOf(list []Pause) pauses {
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

// setPauses makes the relay follow the pauses. After the end of one it polls at once. Called under
// the lock.
func (r *relay) setPauses(list []Pause) {
	was, is := r.dests.paused, pausesOf(list)
	r.dests.paused = is
	for _, p := range list {
		if !was.has(p) {
			r.notices.add(func() {
				args := []any{"component", "outbox", pauseName(p), "actor", p.Actor, "reason", p.Reason}
				if !p.Until.IsZero() { // otherwise until it is resumed
					args = append(args, "until", p.Until)
				}
				r.cfg.Logger.Info("outbox: paused: the events wait and spend no attempts", args...)
			})
		}
	}
	ended := slices.DeleteFunc(slices.Clone(was.list), is.has)
	for _, p := range ended {
		r.notices.add(func() {
			r.cfg.Logger.Info("outbox: resumed", "component", "outbox", pauseName(p))
		})
	}
	if len(ended) > 0 {
		now := time.Now()
		r.poller.wakeKeys() // its keys were passed over
		for _, d := range r.dests.limited {
			d.limit.look.ask(now)
		}
		r.wakes.poll(now)
	}
}

// pauseName is how the log names what is paused.
func pauseName(p Pause) slog.Attr {
	switch {
	case p.All:
		return slog.String("destination", "all")
	case p.Tenant != "":
		return slog.String("tenant", p.Tenant)
	}
	return slog.String("destination", p.Topic)
}

// readPauses asks the Repository. In one that stores no pauses, nothing is paused.
func (o *Outbox) readPauses(ctx context.Context) ([]Pause, error) {
	callCtx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	list, err := o.Pauses(callCtx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	return list, err
}

func (o *Outbox) pausesUnknown(ctx context.Context, err error) {
	o.cfg.Logger.WarnContext(ctx, "outbox: cannot read what is paused: this relay follows no new pause until it can",
		"component", "outbox", "err", errorText(err))
}
