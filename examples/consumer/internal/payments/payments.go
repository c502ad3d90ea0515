// Package payments is the part of the example consumers that no service copies: a bank with one
// account, the sender of a payment, and an end.
package payments

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite" // the driver

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/examples/internal/demo"
)

// copies is how often the payment is sent.
const copies = 3

// NewTopic returns the name of a topic that only this run uses.
func NewTopic() string { return "payments-" + core.NewEventID() }

// OpenBank opens a database in memory, in which ada has no money yet.
func OpenBank() (*sql.DB, error) {
	db, err := sql.Open("sqlite",
		"file:bank?mode=memory&cache=shared&_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	_, err = db.Exec("CREATE TABLE accounts (id TEXT PRIMARY KEY, cents INTEGER NOT NULL); " +
		"INSERT INTO accounts VALUES ('ada', 0)")
	return db, err
}

// Send publishes one payment three times, as a relay does when the answers of the broker are lost.
// The three messages have one event id.
func Send(ctx context.Context, publisher core.Publisher, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	payment := core.Event{
		ID: core.NewEventID(), Type: "payment.received", Topic: topic, Payload: []byte(`{"cents":100}`),
	}
	for n := range copies {
		// Another row for each copy: NATS would recognise copies of one row itself.
		if err := publisher.Publish(ctx, core.Delivery{RowID: core.RowID{byte(n + 1)}, Event: payment}); err != nil {
			return err
		}
	}
	return nil
}

// Run runs router until it has acknowledged the three messages, and prints what ada has then. A
// service calls router.Run instead.
func Run(ctx context.Context, router *message.Router, bank *sql.DB) error {
	if err := demo.Run(ctx, router, copies); err != nil {
		return err
	}
	var cents int
	if err := bank.QueryRow("SELECT cents FROM accounts WHERE id = 'ada'").Scan(&cents); err != nil {
		return err
	}
	fmt.Printf("the payment was delivered %d times, ada has %d cents\n", copies, cents)
	return nil
}
