package ops_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Events that failed alike are one group, whatever the ids, numbers and keys in their errors.
func TestGroups(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db, core.Config{})
		for i := range 6 {
			w.Publish(
				core.Event{Type: "dead.paid", Topic: "orders", Key: fmt.Sprint("k", i%4), Payload: make([]byte, i)},
				core.Event{Type: "dead.paid", Topic: "orders"},
				core.Event{Type: "retry.paid", Topic: "orders"},
				core.Event{Type: "dead.sent", Topic: "orders"},
			)
		}
		w.Publish(
			core.Event{Type: "paid", Topic: "orders"},
			core.Event{Type: "paid", Topic: "orders", Delay: time.Hour},
		)
		w.drain()
		got, err := w.api.Groups(t.Context(), ops.Filter{})
		fixture.NoError(t, err)
		if len(got.Groups) != 3 || got.Truncated {
			t.Fatalf("%+v", got)
		}
		byType := map[string]ops.Group{}
		for _, g := range got.Groups {
			byType[g.Type] = g
		}
		paid := byType["dead.paid"]
		// of each of the four keys the first event is dead, the second one waits behind it
		if got.Groups[0].Type != "dead.paid" || paid.Dead != 10 || paid.Retrying != 0 || paid.BlockedKeys != 4 ||
			paid.ErrorCode != "permanent" || paid.Topic != "orders" ||
			paid.Pattern != "field <text> of event <id> is missing in version <n>" {
			t.Errorf("%+v", paid)
		}
		all := walk(w, ops.ListQuery{Filter: ops.Filter{Fingerprint: paid.Fingerprint}, Limit: 1000})
		if len(all) != 10 {
			t.Errorf("the fingerprint selects %d events", len(all))
		}
		first, last := all[0], all[0]
		for _, e := range all {
			if e.Type != "dead.paid" || e.Status != ops.StatusDead {
				t.Errorf("in the group is %+v", e)
			}
			if e.CreatedAt.Before(first.CreatedAt) {
				first = e
			}
			if e.CreatedAt.After(last.CreatedAt) {
				last = e
			}
		}
		if !paid.First.Equal(first.CreatedAt) || !paid.Last.Equal(last.CreatedAt) ||
			!paid.Sample.CreatedAt.Equal(last.CreatedAt) || paid.Sample.EventID == "" {
			t.Errorf("from %s to %s, sample %+v", paid.First, paid.Last, paid.Sample)
		}
		if g := byType["retry.paid"]; g.Retrying != 6 || g.Dead != 0 || g.BlockedKeys != 0 ||
			g.ErrorCode != "transient" {
			t.Errorf("%+v", g)
		}
		got, err = w.api.Groups(t.Context(), ops.Filter{Statuses: []ops.Status{ops.StatusRetry}})
		if err != nil || len(got.Groups) != 1 || got.Groups[0].Type != "retry.paid" {
			t.Errorf("%+v %v", got, err)
		}
		_, err = w.api.Groups(t.Context(), ops.Filter{Statuses: []ops.Status{ops.StatusDone}})
		if !errors.Is(err, core.ErrInvalidRequest) {
			t.Errorf("done events have groups: %v", err)
		}
	})
}
