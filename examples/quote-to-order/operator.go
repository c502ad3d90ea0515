package main

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/orders"
)

// replayAll publishes all done events of the quote service again. The command line does the same:
// outbox replay plan, outbox replay apply.
func (s *story) replayAll(ctx context.Context) (ops.StoredPlan, error) {
	repository, err := sqloutbox.New(s.quotesDB, sqloutbox.Config{})
	if err != nil {
		return ops.StoredPlan{}, err
	}
	outbox, err := core.New(core.Config{Repository: repository}) // this process does not relay
	if err != nil {
		return ops.StoredPlan{}, err
	}
	api, err := ops.New(outbox)
	if err != nil {
		return ops.StoredPlan{}, err
	}
	plan, err := api.PlanReplay(ctx, ops.Filter{Topic: s.kafka.Topic(contract.QuoteEvents)},
		ops.ReplayOptions{DedupWindow: 24 * time.Hour}) // the inboxes of the story remember everything
	if err != nil {
		return ops.StoredPlan{}, err
	}
	stored, err := api.StorePlan(ctx, plan, "ada", "the order service was restored, INC-7")
	if err != nil {
		return stored, err
	}
	return api.RunPlan(ctx, stored.ID, ops.RunOptions{Actor: "ada"})
}

// release lets the dead events of the order service be processed, and sends their messages from the
// poison topic to their own topics again. It returns how many messages it sent.
func (s *story) release(ctx context.Context) (sent int, err error) {
	store, err := sqlinbox.New(s.ordersDB, sqlinbox.Config{})
	if err != nil {
		return 0, err
	}
	in, err := inbox.New(inbox.Config{
		Consumer: orders.Consumer, Transactor: sqltx.NewTransactor(s.ordersDB, ""), Store: store,
	})
	if err != nil {
		return 0, err
	}
	dead, err := in.ListDead(ctx, inbox.DeadQuery{})
	if err != nil {
		return 0, err
	}
	keys, parked := []inbox.Key{}, map[string]bool{}
	for _, d := range dead {
		keys = append(keys, d.Key)
		parked[d.EventID] = true
	}
	if _, err := in.Redrive(ctx, inbox.RedriveRequest{
		Keys: keys, Actor: "ada", Reason: "the release reads version 2, INC-8",
	}); err != nil {
		return 0, err
	}
	messages, err := s.cluster.read(ctx, orders.Poison)
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		if !parked[m.headers[core.HeaderEventID]] {
			continue // released before
		}
		if err := s.cluster.send(contract.QuoteEvents, m.key, m.value, m.headers); err != nil {
			return sent, err
		}
		sent++
	}
	return sent, nil
}
