package ops_test

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// world is a process with an outbox whose destination refuses events by their type: "dead..."
// permanently, and "retry..." for now.
type world struct {
	*fixture.Process
	api *ops.API
}

func newWorld(t *testing.T, db testdb.DB, cfg core.Config) *world {
	t.Helper()
	fixture.ChangeRelay(&cfg, func(c *relay.Config) {
		c.Retry = relay.RetryPolicy{BaseDelay: time.Hour, MaxDelay: time.Hour, MaxAttempts: 5}
		// many events that are refused in a row are no outage here
		c.Breaker.Failures = cmp.Or(c.Breaker.Failures, 1000)
	})
	cfg.Logger = slog.New(slog.DiscardHandler)
	w := &world{Process: fixture.NewProcess(t, db, cfg)}
	w.Publisher.FailFor(func(d core.Delivery) error {
		switch {
		case strings.HasPrefix(d.Type, "dead"):
			return core.Permanent(
				fmt.Errorf("field %q of event %s is missing in version %d", d.Key, d.ID, len(d.Payload)),
			)
		case strings.HasPrefix(d.Type, "retry"):
			return core.Transient(errors.New("try again in 250 ms"))
		}
		return nil
	})
	w.Publisher.Receipts(func(d core.Delivery) string { return d.Topic + "/3@1042" })
	var err error
	if w.api, err = sqlops.New(w.Outbox); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) drain() {
	w.T.Helper()
	fixture.NoError(w.T, w.Outbox.Drain(w.T.Context()))
}

// one returns the only row of an event.
func (w *world) one(eventID string) ops.Event {
	w.T.Helper()
	page, err := w.api.List(w.T.Context(), ops.ListQuery{Filter: ops.Filter{EventID: eventID}})
	fixture.Must(w.T, err == nil && len(page.Events) == 1, "event %s: %+v %v", eventID, page, err)
	return page.Events[0]
}

func (w *world) explain(id string) ops.Explanation {
	w.T.Helper()
	all, err := w.api.Explain(w.T.Context(), id)
	fixture.Must(w.T, err == nil && len(all) == 1, "%s has %d explanations: %v", id, len(all), err)
	return all[0]
}
