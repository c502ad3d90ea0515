package outboxui

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// look is all that the overview reads of an outbox.
type look struct {
	now          time.Time
	backlog      core.Backlog
	destinations []ops.Destination
	more         bool // there may be more destinations
	groups       ops.Groups
	relays       []core.RelayStatus
	pauses       []core.Pause
	rates        []core.Rate
	plans        []ops.StoredPlan
	last         []core.AuditRecord
	consumers    ops.Consumers
	effects      ops.Effects
	keys         ops.IdempotencyKeys
	unknown      []string // what could not be read
}

// look reads an outbox. What a right is missing for is left out, and named.
func (v *visit) look() (l look, err error) {
	ctx, api := v.ctx(), v.api()
	if l.backlog, err = api.Outbox().Backlog(ctx); err != nil {
		return l, err
	}
	if l.destinations, l.more, err = api.Destinations(ctx); err != nil {
		return l, err
	}
	optional := func(what string, err error) {
		if err == nil {
			return
		}
		l.unknown = append(l.unknown, what)
		if !errors.Is(err, context.Canceled) {
			v.ui.cfg.Logger.WarnContext(ctx, "outboxui: a part of the overview cannot be read", "part", what, "error",
				err)
		}
	}
	var e error
	l.groups, e = api.Groups(ctx, ops.Filter{})
	optional("groups of failures", e)
	l.relays, e = api.Outbox().Relays(ctx)
	optional("relays", e)
	l.pauses, e = api.Pauses(ctx)
	optional("pauses", e)
	l.rates, e = api.Outbox().Rates(ctx)
	optional("rates", e)
	l.plans, e = api.StoredPlans(ctx, ops.DefaultLimit)
	optional("plans", e)
	page, e := api.Audit(ctx, ops.AuditQuery{Limit: 1})
	optional("audit", e)
	l.last = page.Records
	l.consumers, e = api.Consumers(ctx)
	optional("consumers", e)
	l.effects, e = api.Effects(ctx)
	optional("effects", e)
	l.keys, e = api.IdempotencyKeys(ctx)
	optional("HTTP keys", e)
	l.now = l.clock(v.now())
	return l, nil
}

// clock is the time of the database's clock, from the first row that has it.
func (l *look) clock(otherwise time.Time) time.Time {
	switch {
	case len(l.relays) > 0:
		return l.relays[0].SeenAt.Add(l.relays[0].Age)
	case len(l.groups.Groups) > 0:
		return l.groups.Groups[0].Sample.ReadAt
	case len(l.plans) > 0:
		return l.plans[0].ReadAt
	}
	return otherwise
}

// stopped are the destinations that relays have stopped, by topic: the first of each.
func (l *look) stopped() map[string]core.StoppedDestination {
	all := map[string]core.StoppedDestination{}
	for _, r := range l.relays {
		if !r.Alive() {
			continue
		}
		for _, s := range r.Stopped {
			if first, known := all[s.Topic]; !known || s.Since.Before(first.Since) {
				all[s.Topic] = s
			}
		}
	}
	return all
}

// taken reports whether a relay that is alive takes events of the topic.
func (l *look) taken(topic string) bool {
	return slices.ContainsFunc(l.relays, func(r core.RelayStatus) bool { return r.Alive() && r.Relays(topic) })
}

func (l *look) alive() (n int) {
	for _, r := range l.relays {
		if r.Alive() {
			n++
		}
	}
	return n
}

// waiting counts the events that wait.
func (l *look) waiting() ops.Count {
	n := ops.Count{More: l.more || l.backlog.More}
	for _, d := range l.destinations {
		n.N += int(d.Pending)
	}
	return n
}

func (l *look) oldest() (d time.Duration) {
	for _, one := range l.destinations {
		d = max(d, one.Oldest)
	}
	return d
}
