package ops_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// The history comes in equal steps, also those of which nothing is known.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := outboxtest.NewRepository()
		ob, err := core.New(core.Config{Repository: repo})
		if err != nil {
			t.Fatal(err)
		}
		api, err := ops.New(ob, repo)
		if err != nil {
			t.Fatal(err)
		}
		write := func(published int64, b core.Backlog) {
			t.Helper()
			_, err := repo.AddHistory(
				t.Context(),
				[]core.HistoryCounts{{Topic: "orders", Published: published, Died: 1}},
			)
			if err = errors.Join(err, repo.SetHistory(t.Context(), b)); err != nil {
				t.Fatal(err)
			}
		}
		write(1, core.Backlog{Pending: 5, OldestAge: time.Minute})
		time.Sleep(5 * time.Minute)
		write(2, core.Backlog{Pending: 3, Dead: 1, OldestAge: time.Hour, More: true})
		time.Sleep(2 * time.Hour)
		write(4, core.Backlog{})
		h, err := api.History(t.Context(), ops.HistoryQuery{Step: 10 * time.Minute})
		if err != nil || len(h.Points) != 19 || h.Step != 10*time.Minute {
			t.Fatalf("history %+v: %v", h, err)
		}
		now := time.Now().UTC().Truncate(10 * time.Minute)
		want := map[time.Time]ops.HistoryPoint{
			now: {Kept: true, Published: 4, Died: 1, Counted: true},
			now.Add(-2 * time.Hour): {
				Kept: true, Published: 3, Died: 2, Counted: true, Waiting: 5, Dead: 1, Oldest: time.Hour, More: true,
			},
		}
		for i, p := range h.Points {
			if at := now.Add(time.Duration(i-18) * 10 * time.Minute); !p.At.Equal(at) {
				t.Errorf("point %d is of %s, want %s", i, p.At, at)
			}
			w := want[p.At]
			w.At = p.At
			if p != w {
				t.Errorf("point %+v, want %+v", p, w)
			}
		}
		h, err = api.History(t.Context(), ops.HistoryQuery{Since: core.HistoryKept, Topic: "orders"})
		if err != nil || len(h.Points) != ops.MaxHistoryPoints || h.Topic != "orders" ||
			h.Points[len(h.Points)-1].Published != 4 || h.Points[len(h.Points)-1].Counted {
			t.Errorf("history of a topic: %d points, %v", len(h.Points), err)
		}
		for _, q := range []ops.HistoryQuery{
			{Since: time.Second},
			{Since: core.HistoryKept + 1},
			{Step: time.Minute},
			{Step: 7 * time.Minute},
			{Since: -1},
		} {
			if _, err := api.History(t.Context(), q); !errors.Is(err, core.ErrInvalidRequest) {
				t.Errorf("history of %+v: %v", q, err)
			}
		}
	})
}
