package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

func TestByLogRefuses(t *testing.T) {
	effects, mixed := core.NewRouter(), core.NewRouter()
	effects.Handle("effect.mail", &outboxtest.Publisher{})
	mixed.Handle("effect.mail", &outboxtest.Publisher{})
	mixed.Handle("orders", &outboxtest.Publisher{})
	all := core.NewRouter()
	all.Handle("effect.mail", &outboxtest.Publisher{})
	all.HandleOther(&outboxtest.Publisher{})
	for name, c := range map[string]struct {
		cfg  core.Config
		want string // empty if the Config is accepted
	}{
		"nothing else":       {core.Config{}, ""},
		"effects":            {core.Config{Publisher: effects}, ""},
		"a publisher of all": {core.Config{Publisher: &outboxtest.Publisher{}}, "Publisher and RelayedByLog"},
		"a router of all":    {core.Config{Publisher: all}, "Publisher and RelayedByLog"},
		"a router of more":   {core.Config{Publisher: mixed}, `Publisher takes topic "orders"`},
		"DeleteOnSuccess":    {core.Config{Retention: core.Retention{DeleteOnSuccess: true}}, "DeleteOnSuccess"},
		"BacklogLimit":       {core.Config{BacklogLimit: core.BacklogLimit{Rows: 1}}, "BacklogLimit"},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Repository, c.cfg.RelayedByLog = outboxtest.NewRepository(), true
			_, err := core.New(c.cfg)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("New: %v, want %q", err, c.want)
			}
		})
	}
}

// The table is cleaned by age, and nothing else happens to its rows.
func TestByLogRunCleansUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := outboxtest.NewRepository()
		var cleaned int
		ob, err := core.New(core.Config{
			Repository: repo, RelayedByLog: true, Retention: core.Retention{Keep: time.Hour},
			Observer: &core.Observer{
				Claimed: func(core.ClaimInfo) { t.Error("it claims") },
				Cleaned: func(what string, n int) {
					if what == "event" {
						cleaned += n
					}
				},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- ob.Run(ctx) }()
		publish := func(e core.Event) error {
			return repo.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				_, err := ob.Publish(ctx, tx, e)
				return err
			})
		}
		if err := publish(core.Event{Type: "order.placed", Key: "7"}); err != nil {
			t.Fatal(err)
		}
		if err := publish(core.Event{Type: "order.placed", Delay: time.Second}); !errors.Is(err, core.ErrInvalidEvent) {
			t.Errorf("a delayed event: %v", err)
		}
		large := core.Event{Type: "order.placed", Payload: make([]byte, 1<<20)}
		if err := publish(large); !errors.Is(err, core.ErrInvalidEvent) {
			t.Errorf("an event that Kafka refuses: %v", err)
		}
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		rows := repo.Rows()
		if len(rows) != 1 || rows[0].Status != outboxtest.StatusDone || rows[0].ClaimedBy != core.LogReader {
			t.Fatalf("rows %+v", rows)
		}
		if b, err := ob.Backlog(t.Context()); err != nil || b.Pending != 0 || !b.ByLog {
			t.Errorf("backlog %+v %v", b, err)
		}
		h := ob.Health(t.Context())
		if !h.Live || !h.Ready || h.Relaying || !h.RelayedByLog || len(h.Problems) > 0 {
			t.Errorf("health %+v", h)
		}
		if err := ob.Run(ctx); !errors.Is(err, core.ErrRunning) {
			t.Errorf("a second Run: %v", err)
		}
		if err := ob.Drain(ctx); !errors.Is(err, core.ErrNoPublisher) {
			t.Errorf("Drain: %v", err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(repo.Rows()); n != 0 || cleaned != 1 {
			t.Errorf("%d rows are left, %d were cleaned", n, cleaned)
		}
		stop()
		if err := <-ran; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// Effects are executed, also later, while events are left to the reader of the log.
func TestByLogLeavesEffects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, done := outboxtest.NewRepository(), &outboxtest.Publisher{}
		effects := core.NewRouter()
		effects.Handle("effect.mail", done)
		ob, err := core.New(core.Config{Repository: repo, RelayedByLog: true, Publisher: effects})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- ob.Run(ctx) }()
		synctest.Wait()
		err = repo.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			_, err := ob.Publish(ctx, tx, core.Event{Type: "order.placed", Topic: "orders", Key: "7"},
				core.Event{Type: "mail", Topic: "effect.mail", Unordered: true, Delay: time.Minute})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := done.Accepted(); len(got) != 1 || got[0].Topic != "effect.mail" {
			t.Errorf("executed %+v", got)
		}
		stop()
		if err := <-ran; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
