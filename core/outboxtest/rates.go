package outboxtest

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

// SetRate implements core.Repository.
func (r *Repository) SetRate(ctx context.Context, req core.RateRequest) error {
	if err := checkWho(req.Actor, req.Reason); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	if r.rates == nil {
		r.rates = map[string]core.Rate{}
	}
	delete(r.rates, req.Topic)
	if req.PerSecond > 0 || req.InFlight > 0 {
		r.rates[req.Topic] = core.Rate{
			Topic: req.Topic, PerSecond: req.PerSecond, InFlight: req.InFlight, Since: r.now(), Actor: req.Actor,
			Reason: req.Reason,
		}
	}
	r.auditNoRow(core.AuditRate, req.Topic, req.Actor, req.Reason)
	return nil
}
