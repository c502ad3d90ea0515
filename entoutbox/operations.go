package entoutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

func (o *Outbox) operations() adapter.Operations {
	if o == nil {
		return adapter.Operations{}
	}
	return o.own.Operations()
}

// Outbox returns the core.Outbox behind the adapter, nil before there is one.
func (o *Outbox) Outbox() *core.Outbox { return o.operations().Outbox() }

// Run relays events until ctx ends; see core.Outbox.Run. Call it in one goroutine of each process
// that relays.
func (o *Outbox) Run(ctx context.Context) error { return o.operations().Run(ctx) }

// Drain publishes everything that is due, then returns; see core.Outbox.Drain.
func (o *Outbox) Drain(ctx context.Context) error { return o.operations().Drain(ctx) }

// Backlog counts pending and dead events; see core.Outbox.Backlog.
func (o *Outbox) Backlog(ctx context.Context) (core.Backlog, error) {
	return o.operations().Backlog(ctx)
}

// ListDead lists dead events; see core.Outbox.ListDead.
func (o *Outbox) ListDead(ctx context.Context, q core.DeadQuery) ([]core.DeadEvent, error) {
	return o.operations().ListDead(ctx, q)
}

// Redrive lets dead events be tried again; see core.Outbox.Redrive.
func (o *Outbox) Redrive(ctx context.Context, req core.AdminRequest) (int, error) {
	return o.operations().Redrive(ctx, req)
}

// Discard ends events without publishing them; see core.Outbox.Discard.
func (o *Outbox) Discard(ctx context.Context, req core.AdminRequest) (int, error) {
	return o.operations().Discard(ctx, req)
}

// ResetKeys is for use after a failover that lost commits; see core.Outbox.ResetKeys.
func (o *Outbox) ResetKeys(ctx context.Context) (int, error) { return o.operations().ResetKeys(ctx) }
