package ops

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

// Forever is Window.Keep of a consumer that never forgets an event, as an inbox without Retention.
const Forever time.Duration = math.MaxInt64

const maxWindows = 1000 // for all topics together

// Actions of the audit rows about windows. Such a row has the topic of the window and no event. Its
// reason ends with the consumer.
const (
	AuditDeclareWindow  = "declare-window"
	AuditWithdrawWindow = "withdraw-window"
)

// Window is the deduplication window of a consumer: how long it recognises the copies of an event
// of a topic. A replay after that would be processed a second time, so PlanReplay refuses it.
type Window struct {
	Topic    string `json:"topic"`
	Consumer string `json:"consumer"` // Config.Consumer of its inbox, or another name
	// Keep counts from when the event was published. It is the Retention of the consumer's inbox,
	// less the time that a message can be on its way. Forever: it recognises every copy.
	Keep   time.Duration `json:"keep"`
	Since  time.Time     `json:"since"` // by the database's clock
	Actor  string        `json:"actor"` // the person or program that declared it
	Reason string        `json:"reason"`
}

// String describes the window, as "consumer search remembers events of orders for 168h0m0s".
func (w Window) String() string {
	if w.Keep == Forever {
		return fmt.Sprintf("consumer %s remembers events of %s for ever", w.Consumer, w.Topic)
	}
	return fmt.Sprintf("consumer %s remembers events of %s for %s", w.Consumer, w.Topic, w.Keep)
}

// WindowRequest selects a Window to change. All fields but DryRun are required, except that
// WithdrawWindow has no use for Keep.
type WindowRequest struct {
	Topic    string        // at most 249 bytes
	Consumer string        // at most 128 bytes
	Keep     time.Duration // see Window.Keep; more than 0
	Actor    string        // at most 255 bytes
	Reason   string        // at most 1024 bytes
	DryRun   bool          // checks and answers the request, and changes nothing
}

// AuditReason is the reason of the audit row about the request.
func (r *WindowRequest) AuditReason() string {
	if r.Keep == 0 {
		return fmt.Sprintf("%s (consumer %s)", r.Reason, r.Consumer)
	}
	if r.Keep == Forever {
		return fmt.Sprintf("%s (consumer %s, for ever)", r.Reason, r.Consumer)
	}
	return fmt.Sprintf("%s (consumer %s, %s)", r.Reason, r.Consumer, r.Keep)
}

// DeclareWindow stores how long a consumer of a topic recognises copies. It replaces the consumer's
// earlier declaration, and writes an audit row in the same transaction. PlanReplay refuses events
// that a consumer of their topic has forgotten. If the same window is declared already, nothing
// changes. So a program that has the database of the outbox can declare its own window whenever it
// starts:
//
//	err := api.DeclareWindow(ctx, ops.WindowRequest{
//		Topic: "orders", Consumer: cfg.Consumer, Keep: cfg.Retention, Actor: "search", Reason: "start",
//	})
//
// An inbox whose Retention is 0 declares Forever. A request with a wrong field is refused with an
// error wrapping core.ErrInvalidRequest, and so is a window if there are 1000 others.
func (a *API) DeclareWindow(ctx context.Context, req WindowRequest) error {
	if req.Keep <= 0 {
		return invalid("{Keep} is missing: how long does the consumer remember an event? One that never forgets has "+
			"Forever, not %s", req.Keep)
	}
	if err := req.check(); err != nil {
		return err
	}
	all, err := a.store.Windows(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, req.of)
	switch {
	case i >= 0 && all[i].Keep == req.Keep:
		return nil
	case i < 0 && len(all) >= maxWindows:
		return invalid("%d windows are declared, and no more are read: withdraw the windows of consumers that are gone",
			len(all))
	}
	if req.DryRun {
		return nil
	}
	return a.store.DeclareWindow(ctx, req)
}

// WithdrawWindow forgets the window of a consumer that reads the topic no longer, with an audit row
// in the same transaction. It reports whether there was one. The errors are the same as for
// DeclareWindow.
func (a *API) WithdrawWindow(ctx context.Context, req WindowRequest) (withdrawn bool, err error) {
	if req.Keep != 0 {
		return false, invalid("leave out {Keep}: a window is withdrawn whatever it is")
	}
	if err := req.check(); err != nil {
		return false, err
	}
	if req.DryRun {
		all, err := a.store.Windows(ctx)
		return slices.ContainsFunc(all, req.of), err
	}
	return a.store.WithdrawWindow(ctx, req)
}

// Windows returns the declared windows, by topic and then by consumer, at most 1000.
func (a *API) Windows(ctx context.Context) ([]Window, error) {
	return a.store.Windows(ctx)
}

// of reports whether the request is about the window.
func (r *WindowRequest) of(w Window) bool { return w.Topic == r.Topic && w.Consumer == r.Consumer }

func (r *WindowRequest) check() error {
	if p := textcheck.Problem(r.Topic, 249, true); p != "" {
		return invalid("{Topic} %s", p)
	}
	if p := textcheck.Problem(r.Consumer, 128, true); p != "" {
		return invalid("{Consumer} %s", p)
	}
	return checkWho(r.Actor, r.Reason)
}

// shortest returns the shortest window of each topic.
func (a *API) shortest(ctx context.Context) (map[string]Window, error) {
	all, err := a.Windows(ctx)
	if err != nil {
		return nil, err
	}
	byTopic := map[string]Window{}
	for _, w := range all {
		if first, ok := byTopic[w.Topic]; !ok || w.Keep < first.Keep {
			byTopic[w.Topic] = w
		}
	}
	return byTopic, nil
}

// forgets returns when a consumer with that window forgets an event.
func forgets(done time.Time, keep time.Duration) time.Time {
	return done.Add(min(keep, 100*366*24*time.Hour)) // a year has four digits in JSON
}
