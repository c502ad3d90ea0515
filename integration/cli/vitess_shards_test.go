//go:build clusters

package cli_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Each shard of Vitess has an outbox. One process relays them all: a pattern names them. A business
// transaction has its rows and its events in its own shard.
func TestRelayOfVitessShards(t *testing.T) {
	shards := testdb.VitessShards(t)
	var in inbound
	to, topic := brokers["redis"](t, &in)
	database := address(t, shards[0])
	path := filepath.Join(t.TempDir(), "relay.json")
	fixture.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `{"outboxes": [{"name": "shop{each}", "to": %q,
		"each": ["-80", "80-"], "database_url": %q}]}`, to, strings.Replace(database, "-80", "{each}", 1)), 0o600))
	var want []string
	for i, db := range shards {
		if out, errs, code := outbox(t, db, "migrate", "up"); code != 0 {
			t.Fatal(out, errs)
		}
		pool := db.Open(t)
		fixture.MustExec(t, pool, "CREATE TABLE orders (id INT PRIMARY KEY)")
		ob := fixture.NewOutbox(t, db, core.Config{})
		for n := range 50 {
			err := sqltx.NewTransactor(pool, "").RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES (?)", n); err != nil {
					return err
				}
				ids, err := ob.Publish(ctx, tx, core.Event{Type: "order.placed", Topic: topic, Key: keyOf(n)})
				want = append(want, ids...)
				return err
			})
			fixture.NoError(t, err)
			if n >= 49-i { // the shards differ
				break
			}
		}
	}
	relay := startRelayWith(t, "OUTBOX_CONFIG="+path)
	fixture.Await(t, "the relays of both shards are ready", relay.ready)
	fixture.Await(t, "every event arrives", func() bool { return len(in.all()) >= len(want) })
	relay.terminate()
	got := in.all()
	slices.Sort(got)
	slices.Sort(want)
	fixture.Check(t, slices.Equal(got, want), "%d events arrived, want %d", len(got), len(want))
	for i, db := range shards {
		pool := db.Open(t)
		orders := fixture.Count(t, pool, "SELECT COUNT(*) FROM orders")
		done := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_event WHERE status = 1")
		fixture.Check(t, orders == int64(50-i) && done == orders, "%s: %d orders, %d done events", db.DSN, orders, done)
	}
	for _, name := range []string{"shop-80", "shop80-"} {
		fixture.Check(t, strings.Contains(relay.log.String(), name), "%s is not in the log:\n%s", name, relay.log)
	}
}
