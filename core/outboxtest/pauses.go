package outboxtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Pause implements core.Repository.
func (r *Repository) Pause(ctx context.Context, req core.PauseRequest) error {
	if err := checkWho(req.Actor, req.Reason); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	if !req.Until.IsZero() && !req.Until.After(r.now()) {
		return fmt.Errorf("%w: Until is over", core.ErrInvalidRequest)
	}
	if r.pauses == nil {
		r.pauses = map[string]core.Pause{}
	}
	p := core.Pause{
		All: req.All, Topic: req.Topic, Tenant: req.Tenant, Since: r.now(), Actor: req.Actor, Reason: req.Reason,
	}
	if !req.Until.IsZero() {
		p.Until = req.Until.Round(0).UTC().Truncate(time.Microsecond)
	}
	r.pauses[pauseTarget(req.Topic, req.Tenant)] = p
	r.auditNoRow(core.AuditPause, auditTopic(req.Topic, req.Tenant), req.Actor, req.Reason)
	return nil
}

// Resume implements core.Repository.
func (r *Repository) Resume(ctx context.Context, req core.ResumeRequest) (resumed bool, err error) {
	if err := checkWho(req.Actor, req.Reason); err != nil {
		return false, err
	}
	if err := r.begin(ctx); err != nil {
		return false, err
	}
	defer r.mu.Unlock()
	target := pauseTarget(req.Topic, req.Tenant)
	p, ok := r.pauses[target]
	if !ok || !r.holds(p) {
		return false, nil
	}
	delete(r.pauses, target)
	r.auditNoRow(core.AuditResume, auditTopic(req.Topic, req.Tenant), req.Actor, req.Reason)
	return true, nil
}

// Settings implements core.Repository.
func (r *Repository) Settings(ctx context.Context) (set core.Settings, err error) {
	if err := r.begin(ctx); err != nil {
		return set, err
	}
	defer r.mu.Unlock()
	for _, target := range slices.Sorted(maps.Keys(r.pauses)) {
		p := r.pauses[target]
		if !r.holds(p) {
			continue
		}
		if !p.Until.IsZero() {
			p.Left = p.Until.Sub(r.now())
		}
		set.Pauses = append(set.Pauses, p)
	}
	for _, topic := range slices.Sorted(maps.Keys(r.rates)) {
		set.Rates = append(set.Rates, r.rates[topic])
	}
	return set, nil
}

// pauseTarget returns a text for the target of a pause; texts sort in the order of the list.
func pauseTarget(topic, tenant string) string {
	switch {
	case tenant != "":
		return "2 " + tenant
	case topic != "":
		return "1 " + topic
	}
	return "0"
}

// auditTopic is the topic of the audit row of a pause.
func auditTopic(topic, tenant string) string {
	if tenant != "" {
		return core.AuditTenant + tenant
	}
	return topic
}

// holds reports whether a pause holds. The caller holds r.mu.
func (r *Repository) holds(p core.Pause) bool { return p.Until.IsZero() || p.Until.After(r.now()) }

// auditNoRow writes an audit row that names no event. The caller holds r.mu.
func (r *Repository) auditNoRow(action, topic, actor, reason string) {
	r.audits = append(r.audits, Audit{Action: action, Topic: topic, Actor: actor, Reason: reason, At: r.now()})
}
