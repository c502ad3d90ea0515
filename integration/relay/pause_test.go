package relay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Events of a paused topic do not arrive, from their commit or from the table, and not after
// a restart. After the end of the pause all of them arrive, in the order of the keys.
func TestPause(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		operator := fixture.NewProcess(t, db, core.Config{}).Outbox
		pub := &outboxtest.Publisher{}
		relay := fixture.JoinProcess(t, db, pub, core.Config{Relay: relay.Config{PollInterval: 20 * time.Millisecond}})
		var orders, mails []string
		some := func() {
			for i := range 6 {
				orders = append(orders, relay.Publish(core.Event{Type: "e", Topic: "orders", Key: fmt.Sprint(i % 2)},
					core.Event{Type: "e", Topic: "orders"})...)
				mails = append(mails, relay.Publish(core.Event{Type: "mail", Topic: "mails"})...)
			}
		}
		arrived := func(topic string) (n int) {
			for _, d := range pub.Accepted() {
				if d.Topic == topic {
					n++
				}
			}
			return n
		}
		who := func(all bool, topic string) {
			t.Helper()
			fixture.NoError(t, operator.Pause(t.Context(),
				core.PauseRequest{All: all, Topic: topic, Actor: "ann", Reason: "broker upgrade"}))
		}
		resume := func(all bool, topic string) {
			t.Helper()
			resumed, err := operator.Resume(t.Context(),
				core.ResumeRequest{All: all, Topic: topic, Actor: "ann", Reason: "upgraded"})
			if err != nil || !resumed {
				t.Fatal(resumed, err)
			}
		}

		who(false, "orders")
		stop := relay.RunHot()
		some()
		fixture.Await(t, "the other topic goes on", func() bool { return arrived("mails") == len(mails) })
		who(true, "")
		stop()
		stop = relay.Run()
		some()
		<-time.After(200 * time.Millisecond) // ten polls
		if o, m := arrived("orders"), arrived("mails"); o > 0 || m > len(mails)/2 {
			t.Fatalf("%d orders and %d mails arrived while they were paused", o, m)
		}
		for _, r := range relay.Rows() {
			fixture.Check(t, r.Done || r.Attempts <= 0 && r.Holder == "",
				"a process holds the row, or it has spent an attempt: %+v", r)
		}
		resume(true, "")
		fixture.Await(t, "the topic without a pause goes on", func() bool { return arrived("mails") == len(mails) })
		if n := arrived("orders"); n != 0 {
			t.Errorf("%d arrived, and their topic is still paused", n)
		}
		resume(false, "orders")
		relay.AwaitDone(len(orders) + len(mails))
		stop()
		relay.OnceEach(append(orders, mails...))
		inKeyOrder(t, pub.Accepted())
	})
}

// Events of a paused tenant do not arrive, from their commit or from the table, and not after a
// restart. Those of another tenant go on, in the same topic and under the same keys. After the end
// of the pause all of them arrive, in the order of the keys.
func TestPauseTenant(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		operator := fixture.NewProcess(t, db, core.Config{}).Outbox
		pub := &outboxtest.Publisher{}
		relay := fixture.JoinProcess(t, db, pub, core.Config{Relay: relay.Config{PollInterval: 20 * time.Millisecond}})
		var paused, others []string
		some := func() {
			for i := range 6 {
				for tenant, ids := range map[string]*[]string{"acme": &paused, "ACME": &others, "": &others} {
					*ids = append(*ids, relay.Publish(
						core.Event{Type: "e", Topic: "orders", TenantID: tenant, Key: fmt.Sprint(tenant, i%2)},
						core.Event{Type: "e", Topic: "orders", TenantID: tenant})...)
				}
			}
		}
		arrived := func() (ofPaused, ofOthers int) {
			for _, d := range pub.Accepted() {
				switch {
				case d.Type != "e": // events that only warmed the relay up
				case d.TenantID == "acme":
					ofPaused++
				default:
					ofOthers++
				}
			}
			return ofPaused, ofOthers
		}
		fixture.NoError(t, operator.Pause(t.Context(),
			core.PauseRequest{Tenant: "acme", Actor: "ann", Reason: "wrong prices"}))
		for _, run := range []func() func(){relay.RunHot, relay.Run} {
			stop := run()
			some()
			fixture.Await(t, "the others go on", func() bool {
				_, n := arrived()
				return n == len(others)
			})
			stop()
		}
		if n, _ := arrived(); n > 0 {
			t.Fatalf("%d events of a paused tenant arrived", n)
		}
		for _, r := range relay.Rows() {
			fixture.Check(t, r.Done || r.Attempts <= 0 && r.Holder == "",
				"a process holds the row, or it has spent an attempt: %+v", r)
		}
		stop := relay.Run()
		resumed, err := operator.Resume(t.Context(),
			core.ResumeRequest{Tenant: "acme", Actor: "ann", Reason: "right prices"})
		if err != nil || !resumed {
			t.Fatal(resumed, err)
		}
		relay.AwaitDone(len(paused) + len(others))
		stop()
		relay.OnceEach(append(paused, others...))
		inKeyOrder(t, pub.Accepted())
	})
}
