package cli

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
)

// Doctor finds sessions that a pooler shares.
func TestDoctorPooler(t *testing.T) {
	t.Parallel()
	address, dialect := newPostgres(t)
	w := &world{T: t, name: "postgres", address: address, dialect: dialect, env: map[string]string{}}
	w.ok("migrate", "up")
	w.requireFinding(levelOK, "pooler", "none is between")
	direct, err := url.Parse(address)
	must(t, err)
	through, err := url.Parse(server(t, "OUTBOX_TEST_PGBOUNCER"))
	must(t, err)
	through.Path, through.RawQuery = direct.Path, "default_query_exec_mode=exec"
	w.address = through.String()
	w.requireFinding(levelWarning, "pooler", "transaction mode")
}

// Doctor finds migrations that are missing or unknown, also those of other prefixes.
func TestDoctorVersions(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up")
		w.ok("migrate", "up", "--tables", "inbox")
		w.requireFinding(levelOK, "versions", "all tables are of this version")
		w.ok("migrate", "up", "--prefix", "shop_")
		w.requireFinding(levelOK, "versions", `another outbox has the prefix "shop_"`)
		w.exec("DELETE FROM shop_migration WHERE version = 3")
		w.requireFinding(levelWarning, "versions", `prefix "shop_" lack migration 0003_`)
		w.exec("DELETE FROM inbox_migration WHERE version = 2")
		w.requireFinding(levelWarning, "versions", `tables inbox of the prefix "" lack migration 0002_`)
		w.exec("UPDATE outbox_migration SET version = 99 WHERE version = 3")
		w.requireFinding(levelWarning, "versions", "are of version 99")
	})
}

// Doctor finds dead effects, and due effects whose event is gone.
func TestDoctorEffects(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up")
		w.ok("migrate", "up", "--tables", "effects")
		w.requireFinding(levelOK, "effects", "none is dead")
		id := w.deadEffect("1")
		w.requireFinding(levelWarning, "effects", "dead effects: 1 of mail")
		w.ok("effects", "redrive", id, "--reason", "x", "--yes")
		w.requireFinding(levelOK, "effects", "none is dead", "--max-overdue", "1us")
		w.exec("DELETE FROM outbox_event")
		w.requireFinding(levelOK, "effects", "none is dead", "--max-overdue", "1h")
		w.requireFinding(levelFailure, "effects", id, "--max-overdue", "1us")
	})
}

// Doctor finds an event that is kept for longer than consumers remember it.
func TestDoctorRetention(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up")
		w.requireFinding(levelOK, "retention", "no event", "--dedup-window", "1us")
		w.publish(core.Event{Type: "order.placed", Topic: "orders"})
		w.drain(nil, core.BlockKey)
		w.requireFinding(levelOK, "retention", "no event", "--dedup-window", "1h")
		w.requireFinding(levelWarning, "retention", "is still in the table", "--dedup-window", "1us")
	})
}

// Doctor finds topics of Kafka that lose events.
func TestDoctorKafka(t *testing.T) {
	t.Parallel()
	address, dialect := newSQLite(t)
	w := &world{T: t, name: "sqlite", address: address, dialect: dialect, env: map[string]string{}}
	w.ok("migrate", "up")
	brokers := server(t, "OUTBOX_TEST_KAFKA")
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(strings.Split(brokers, ",")...))
	must(t, err)
	defer admin.Close()
	topic, yes := unique(), "true"
	config := map[string]*string{"unclean.leader.election.enable": &yes}
	if _, err = admin.CreateTopic(t.Context(), 1, 1, config, topic); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = admin.DeleteTopic(context.Background(), topic) }()
	w.env["OUTBOX_TO"] = "kafka://" + brokers
	w.requireFinding(levelOK, "broker", "0 topics")
	w.publish(core.Event{Type: "order.placed", Topic: topic}, core.Event{Type: "mail", Topic: unique()})
	w.until(50*time.Millisecond, func() bool {
		var all []finding // the topic is known a moment after it was made
		w.list(&all, "findings", "doctor")
		return found(all, "broker", "topic "+topic+" has one replica").Level == levelWarning
	})
	w.requireFinding(levelWarning, "broker", "topic "+topic+" may elect a leader that lacks events")
	w.requireFinding(levelWarning, "broker", "Kafka has no topic")

	for _, c := range []struct {
		replicas int
		inSync   string
		unclean  string
		want     string
	}{
		{3, "2", "false", ""},
		{3, "1", "false", "min.insync.replicas=1 with 3 replicas"},
		{1, "1", "false", "one replica"},
		{3, "2", "true", "lacks events"},
	} {
		all := judgeTopic("orders", c.replicas, map[string]string{
			"min.insync.replicas": c.inSync, "unclean.leader.election.enable": c.unclean,
		})
		if c.want == "" != (len(all) == 0) || c.want != "" && found(all, "broker", c.want).Fix == "" {
			t.Errorf("%+v: %+v", c, all)
		}
	}
}
