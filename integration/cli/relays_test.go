package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// One process relays two databases to two brokers. SIGTERM ends both relays. Then every event has
// arrived once at its broker, or is still open in its table.
func TestRelayOfTwoOutboxes(t *testing.T) {
	t.Parallel()
	type outboxOf struct {
		db      testdb.DB
		in      inbound
		topic   string
		publish func(topic string, n int) []string
		want    []string
	}
	shop, mail := &outboxOf{db: testdb.Postgres(t)}, &outboxOf{db: testdb.SQLite(t)}
	var to [2]string
	for i, o := range []*outboxOf{shop, mail} {
		to[i], o.topic = brokers[[]string{"rabbitmq", "redis"}[i]](t, &o.in)
		if out, errs, code := outbox(t, o.db, "migrate", "up"); code != 0 {
			t.Fatal(out, errs)
		}
		o.publish = serviceOf(t, o.db)
	}
	path := filepath.Join(t.TempDir(), "relay.json")
	config := fmt.Sprintf(`{"outboxes": [
		{"name": "shop", "database_url": "${SHOP_URL}", "to": "${SHOP_TO}", "workers": 4},
		{"name": "mail", "database_url": %q, "to": %q}]}`, address(t, mail.db), to[1])
	fixture.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	relay := startRelayWith(t, "OUTBOX_CONFIG="+path, "SHOP_URL="+address(t, shop.db), "SHOP_TO="+to[0])
	fixture.Await(t, "both relays are ready", relay.ready)

	for _, o := range []*outboxOf{shop, mail} {
		o.want = o.publish(o.topic, 1)
		fixture.Await(t, "the event arrives", func() bool { return slices.Equal(o.in.all(), o.want) })
	}
	for _, name := range []string{"shop", "mail"} {
		fixture.Await(t, "the event is counted", func() bool {
			metrics := relay.get("/metrics")
			return strings.Contains(metrics, `outbox="`+name+`"`)
		})
	}
	for _, o := range []*outboxOf{shop, mail} {
		o.want = append(o.want, o.publish(o.topic, 100)...)
	}
	for _, o := range []*outboxOf{shop, mail} {
		fixture.Await(t, "some of the many arrive", func() bool { return len(o.in.all()) > 1 })
	}
	relay.terminate()
	for _, o := range []*outboxOf{shop, mail} {
		pool := o.db.Open(t)
		open := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_event WHERE status IN (0, 2)")
		done := len(o.want) - int(open)
		fixture.Await(t, "the published events arrive", func() bool { return len(o.in.all()) >= done })
		got := o.in.all()
		slices.Sort(got)
		if u := slices.Compact(slices.Clone(got)); len(u) != len(got) || len(got) != done {
			t.Errorf("%d events arrived, %d of them different; want %d", len(got), len(u), done)
		}
		for _, id := range got {
			fixture.Check(t, slices.Contains(o.want, id), "event %s arrived at the wrong destination", id)
		}
	}
}
