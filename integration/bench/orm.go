package main

import (
	"context"
	"database/sql"

	"github.com/ormoutbox/ormoutbox/core"
)

// orm is an ORM with an adapter of this project. Each has a file of its own.
type orm struct {
	name string
	// simpleProtocol is set for an ORM that writes values into the text of its statements. Its
	// documentation asks for a driver that does not prepare each of them.
	simpleProtocol bool
	// open returns a client on db. If cfg is nil, the client has no outbox.
	open func(ctx context.Context, db *sql.DB, cfg *outboxConfig) (ormClient, error)
}

// outboxConfig is the configuration of the outbox in a benchmark: the defaults, with few
// exceptions. The tables are created.
type outboxConfig struct {
	prefix    string
	publisher core.Publisher
	observer  *core.Observer
}

// ormClient runs one transaction in different ways, each as the documentation of its ORM shows it.
type ormClient interface {
	// Alone inserts an order.
	Alone(ctx context.Context) error
	// SecondRow inserts an order, and a row of the hand-written outbox table through a model.
	SecondRow(ctx context.Context, row secondRow) error
	// Publish inserts an order and publishes events through the outbox.
	Publish(ctx context.Context, events ...core.Event) error
	// Run runs the relay. A client without an outbox must not call it.
	Run(ctx context.Context) error
}

// orms are measured side by side.
var orms = []orm{
	{name: "GORM", open: openGORM},
	{name: "Ent", open: openEnt},
	{name: "Bun", open: openBun, simpleProtocol: true},
}
