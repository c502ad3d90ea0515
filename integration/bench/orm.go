package main

import (
	"context"
	"database/sql"

	"github.com/ormoutbox/ormoutbox/core"
)

// orm is an ORM with an adapter of ours. Each is one file.
type orm struct {
	name string
	// simpleProtocol: the ORM writes values into the text of its statements, and its documentation
	// asks for a driver that does not prepare each of them.
	simpleProtocol bool
	// open returns a client on db: a plain one without cfg, else one with the outbox.
	open func(ctx context.Context, db *sql.DB, cfg *outboxConfig) (ormClient, error)
}

// outboxConfig is what a benchmark sets of the outbox; all else is left to its defaults. Tables are
// created.
type outboxConfig struct {
	prefix    string
	publisher core.Publisher
	observer  *core.Observer
}

// ormClient does one transaction in different ways, as the documentation of its ORM does it.
type ormClient interface {
	// Alone inserts an order.
	Alone(ctx context.Context) error
	// SecondRow inserts an order, and a row of the hand-written outbox table through a model.
	SecondRow(ctx context.Context, row secondRow) error
	// Publish inserts an order and publishes events through the outbox.
	Publish(ctx context.Context, events ...core.Event) error
	// Run relays; only with an outbox.
	Run(ctx context.Context) error
}

// orms are measured side by side.
var orms = []orm{
	{name: "GORM", open: openGORM},
	{name: "Ent", open: openEnt},
	{name: "Bun", open: openBun, simpleProtocol: true},
}
