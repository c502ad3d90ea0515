package relay_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/integration/internal/wireproxy"
)

// A relay that does not reach its database for a while heeds what operators have set meanwhile from
// its first event on: those of the table, and those of transactions that commit as soon as the
// database is there again.
func TestSettingsDuringACut(t *testing.T) {
	t.Parallel()
	testdb.EveryServer(t, func(t *testing.T, db testdb.DB) {
		operator := fixture.NewProcess(t, db, core.Config{})
		proxy, err := wireproxy.New(fixture.ServerOf(t, db))
		fixture.NoError(t, err)
		t.Cleanup(proxy.Close)
		var log logText
		pub := &outboxtest.Publisher{}
		relay := fixture.JoinProcess(t, fixture.Through(t, db, proxy, time.Minute), pub, core.Config{
			Relay: relay.Config{
				PollInterval:    20 * time.Millisecond,
				MaxPollInterval: 20 * time.Millisecond,
			},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		stop := relay.RunHot()
		arrived := func(topic string) (n int) {
			for _, d := range pub.Accepted() {
				if d.Topic == topic {
					n++
				}
			}
			return n
		}
		for round := 1; round <= 3; round++ {
			before := log.count("cannot poll")
			proxy.Away(true)
			fixture.Await(t, "the relay notices it", func() bool { return log.count("cannot poll") > before })
			fixture.NoError(t, operator.Outbox.Pause(t.Context(),
				core.PauseRequest{Topic: "orders", Actor: "ann", Reason: "broker upgrade"}))
			fixture.NoError(t, operator.Outbox.SetRate(t.Context(),
				core.RateRequest{Topic: "hooks", PerSecond: 0.001, Actor: "ann", Reason: "contract"}))
			for i := range 50 {
				operator.Publish(core.Event{Type: "e", Topic: "orders", Key: fmt.Sprint(i)},
					core.Event{Type: "e", Topic: "orders"}, core.Event{Type: "e", Topic: "hooks"},
					core.Event{Type: "e", Topic: "mails"})
			}
			proxy.Away(false)
			relay.Publish(core.Event{Type: "e", Topic: "orders"}, core.Event{Type: "e", Topic: "mails"})
			fixture.Await(t, "others go on", func() bool { return arrived("mails") == 51*round })
			if o, h := arrived("orders"), arrived("hooks")-(round-1)*50; o > (round-1)*101 || h > 1 {
				t.Fatalf("%d of a paused topic arrived, and %d of one that gets 1 in 1000 s", o-(round-1)*101, h)
			}
			resumed, err := operator.Outbox.Resume(t.Context(),
				core.ResumeRequest{Topic: "orders", Actor: "ann", Reason: "upgraded"})
			fixture.Must(t, err == nil && resumed, "%t, %v", resumed, err)
			fixture.NoError(t, operator.Outbox.SetRate(t.Context(),
				core.RateRequest{Topic: "hooks", Actor: "ann", Reason: "contract"}))
			relay.AwaitDone(len(relay.Rows()))
		}
		stop()
	})
}
