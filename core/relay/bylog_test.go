package relay_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
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
		"effects":            {core.Config{Publisher: effects, Relay: relay.Config{}}, ""},
		"a publisher of all": {core.Config{Publisher: &outboxtest.Publisher{}}, "Publisher and RelayedByLog"},
		"a router of all":    {core.Config{Publisher: all}, "Publisher and RelayedByLog"},
		"a router of more":   {core.Config{Publisher: mixed}, `Publisher takes topic "orders"`},
		"DeleteOnSuccess": {
			core.Config{Relay: relay.Config{Retention: relay.Retention{DeleteOnSuccess: true}}}, "DeleteOnSuccess",
		},
		"BacklogLimit": {core.Config{BacklogLimit: core.BacklogLimit{Rows: 1}}, "BacklogLimit"},
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
		ob, _ := runOutbox(t, core.Config{
			Repository: repo, RelayedByLog: true, Relay: relay.Config{Retention: relay.Retention{Keep: time.Hour}},
			Observer: &core.Observer{
				Claimed: func(core.ClaimInfo) { t.Error("it claims") },
				Cleaned: func(what string, n int) {
					if what == "event" {
						cleaned += n
					}
				},
			},
		})
		publish := func(e core.Event) error {
			return publishTx(t.Context(), repo, ob, e)
		}
		must(t, publish(core.Event{Type: "order.placed", Key: "7"}))
		if err := publish(core.Event{Type: "order.placed", Delay: time.Second}); !errors.Is(err, core.ErrInvalidEvent) {
			t.Errorf("a delayed event: %v", err)
		}
		large := core.Event{Type: "order.placed", Payload: make([]byte, 1<<20)}
		wantErr(t, publish(large), core.ErrInvalidEvent, "an event that Kafka refuses")
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
		wantErr(t, ob.Run(t.Context()), core.ErrRunning, "a second Run")
		wantErr(t, ob.Drain(t.Context()), core.ErrNoPublisher, "Drain")
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(repo.Rows()); n != 0 || cleaned != 1 {
			t.Errorf("%d rows are left, %d were cleaned", n, cleaned)
		}
	})
}

// Effects are executed, also later, while events are left to the reader of the log.
func TestByLogLeavesEffects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, done := outboxtest.NewRepository(), &outboxtest.Publisher{}
		effects := core.NewRouter()
		effects.Handle("effect.mail", done)
		ob, _ := runOutbox(t, core.Config{Repository: repo, RelayedByLog: true, Publisher: effects})
		must(t, publishTx(t.Context(), repo, ob, core.Event{Type: "order.placed", Topic: "orders", Key: "7"},
			core.Event{Type: "mail", Topic: "effect.mail", Unordered: true, Delay: time.Minute}))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := done.Accepted(); len(got) != 1 || got[0].Topic != "effect.mail" {
			t.Errorf("executed %+v", got)
		}
	})
}
