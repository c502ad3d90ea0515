package adapter

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

// Operations are the methods of an adapter's outbox that do not depend on its ORM. Before the
// outbox has a database they return an error wrapping core.ErrNotInstalled. If an On function was
// registered with a mistake, Run and Drain return the mistake. The outbox of an adapter embeds
// Operations. The zero value belongs to an outbox without a database.
type Operations struct{ of *Outbox }

// Operations returns the Operations of o.
func (o *Outbox) Operations() Operations { return Operations{o} }

// relaying returns the outbox for Run and Drain.
func (p Operations) relaying() (*core.Outbox, error) {
	if p.of == nil {
		return nil, core.ErrNotInstalled
	}
	return p.of.Core()
}

// opened returns the outbox for what concerns stored events alone, whatever the On functions.
func (p Operations) opened() (*core.Outbox, error) {
	if ob := p.Outbox(); ob != nil {
		return ob, nil
	}
	return p.relaying()
}

// Outbox returns the core.Outbox behind the adapter, nil before there is one.
func (p Operations) Outbox() *core.Outbox {
	if p.of == nil {
		return nil
	}
	return p.of.core.Load()
}

// Run relays events until ctx ends; see core.Outbox.Run. Call it in one goroutine of each process
// that relays.
func (p Operations) Run(ctx context.Context) error {
	ob, err := p.relaying()
	if err != nil {
		return err
	}
	return ob.Run(ctx)
}

// Drain publishes everything that is due, then returns; see core.Outbox.Drain.
func (p Operations) Drain(ctx context.Context) error {
	ob, err := p.relaying()
	if err != nil {
		return err
	}
	return ob.Drain(ctx)
}

// Backlog counts pending and dead events; see core.Outbox.Backlog.
func (p Operations) Backlog(ctx context.Context) (core.Backlog, error) {
	ob, err := p.opened()
	if err != nil {
		return core.Backlog{}, err
	}
	return ob.Backlog(ctx)
}

// ListDead lists dead events; see core.Outbox.ListDead.
func (p Operations) ListDead(ctx context.Context, q core.DeadQuery) ([]core.DeadEvent, error) {
	ob, err := p.opened()
	if err != nil {
		return nil, err
	}
	return ob.ListDead(ctx, q)
}

// Redrive lets dead events be tried again; see core.Outbox.Redrive.
func (p Operations) Redrive(ctx context.Context, req core.AdminRequest) (int, error) {
	ob, err := p.opened()
	if err != nil {
		return 0, err
	}
	return ob.Redrive(ctx, req)
}

// Discard ends events without publishing them; see core.Outbox.Discard.
func (p Operations) Discard(ctx context.Context, req core.AdminRequest) (int, error) {
	ob, err := p.opened()
	if err != nil {
		return 0, err
	}
	return ob.Discard(ctx, req)
}

// ResetKeys is for use after a failover that lost commits; see core.Outbox.ResetKeys.
func (p Operations) ResetKeys(ctx context.Context) (int, error) {
	ob, err := p.opened()
	if err != nil {
		return 0, err
	}
	return ob.ResetKeys(ctx)
}
