package core

import (
	"context"
	"errors"
)

// Outbox records events in transactions and relays them. Create it with New. It is safe for use by several goroutines.
type Outbox struct {
	cfg Config
}

// New returns an Outbox. It reports every problem of cfg at once and touches no database.
func New(cfg Config) (*Outbox, error) { return nil, errors.ErrUnsupported }

// Publish records events in the transaction.
func (o *Outbox) Publish(ctx context.Context, tx Tx, events ...Event) (ids []string, err error) {
	return nil, errors.ErrUnsupported
}

// Run relays events until ctx ends.
func (o *Outbox) Run(ctx context.Context) error { return errors.ErrUnsupported }

// Drain publishes everything that is due, then returns.
func (o *Outbox) Drain(ctx context.Context) error { return errors.ErrUnsupported }

// Backlog says how the table stands.
func (o *Outbox) Backlog(ctx context.Context) (Backlog, error) {
	return Backlog{}, errors.ErrUnsupported
}

// ListDead lists events that were given up.
func (o *Outbox) ListDead(ctx context.Context, q DeadQuery) ([]DeadEvent, error) {
	return nil, errors.ErrUnsupported
}

// Redrive opens dead events again.
func (o *Outbox) Redrive(ctx context.Context, req AdminRequest) (int, error) {
	return 0, errors.ErrUnsupported
}

// Discard ends events for good.
func (o *Outbox) Discard(ctx context.Context, req AdminRequest) (int, error) {
	return 0, errors.ErrUnsupported
}

// ResetKeys is for use after a failover that lost commits.
func (o *Outbox) ResetKeys(ctx context.Context) (int, error) { return 0, errors.ErrUnsupported }
