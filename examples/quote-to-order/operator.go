package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
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
	api, err := sqlops.New(outbox)
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

// release asks the order service to release what it has parked. It returns how many messages were
// sent to their topics again.
func (s *story) release(ctx context.Context) (sent int, err error) {
	a, err := post(ctx, s.orders.url+"/release", "", map[string]string{
		"actor": "ada", "reason": "the release reads version 2, INC-8",
	})
	if err != nil {
		return 0, err
	}
	if a.status != http.StatusOK {
		return 0, fmt.Errorf("release: %s %s", a, a.body)
	}
	var done inbox.Released
	err = json.Unmarshal([]byte(a.body), &done)
	return done.Sent, err
}
