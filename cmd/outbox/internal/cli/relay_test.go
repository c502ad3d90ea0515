package cli

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestBrokerAddresses(t *testing.T) {
	t.Parallel()
	s := brokerSettings{workers: 4, timeout: time.Second, logger: slog.New(slog.DiscardHandler)}
	for address, want := range map[string]string{
		"kafka://localhost:9092":                                      "kafka://localhost:9092",
		"kafka://me:hunter2@a:9092,b:9093?tls=true&client-id=x":       "kafka://a:9092,b:9093",
		"amqp://me:hunter2@localhost:5672/":                           "amqp://localhost:5672",
		"amqps://me:hunter2@localhost/shop?topology=queue":            "amqps://localhost",
		"amqp://localhost?topology=topic&exchange=events&heartbeat=5": "amqp://localhost",
		"nats://me:hunter2@127.0.0.1:1":                               "nats://127.0.0.1:1",
		"redis://me:hunter2@localhost:6379/3":                         "redis://localhost:6379",
	} {
		b, err := openBroker(t.Context(), address, s)
		if err != nil || b.name != want {
			t.Errorf("%s: %v, %v", address, b, err)
			continue
		}
		_ = b.Close(t.Context())
	}
	for address, want := range map[string]string{
		"":                                     "amqp://",
		"http://me:hunter2@localhost":          "names no broker",
		"kafka://me:hunter2@a:9092?acks=1":     `"acks" is not known`,
		"amqp://me:hunter2@a?topology=star":    "topology=star",
		"amqp://me:hunter2@a?topology=topic":   "exchange=NAME",
		"amqp://me:hunter2@a:x/":               "port",
		"redis://me:hunter2@a:6379/shop":       "database",
		"redis://me:hunter2@%zz":               "escape",
		"nats://me:hunter2@a:4222?stream=shop": "not known",
	} {
		_, err := openBroker(t.Context(), address, s)
		if codeOf(err) != ExitUsage || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// Every flag of the relay can be set in the environment.
func TestRelayFromTheEnvironment(t *testing.T) {
	t.Parallel()
	w := &world{T: t, address: "sqlite::memory:", env: map[string]string{}}
	w.require(w.run("relay"), ExitUsage, "--to is missing", "amqp://")
	w.env["OUTBOX_TO"] = "http://localhost"
	w.require(w.run("relay"), ExitUsage, "names no broker")
	w.env["OUTBOX_POLL_INTERVAL"] = "often"
	w.require(w.run("relay"), ExitUsage, "OUTBOX_POLL_INTERVAL")
	w.require(w.run("relay", "--poll-interval", "1s", "--log-level", "loud"), ExitUsage, "--log-level")
	w.require(w.run("relay", "--poll-interval", "1s", "--to", "redis://localhost:1", "--workers", "-1"), ExitUsage,
		"Workers")
}

// A relay on a database without tables says so and ends.
func TestRelayWithoutTables(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.open().PingContext(w.Context()) // makes the file of SQLite
		w.require(w.run("relay", "--to", "redis://localhost:1"), ExitFailed, "outbox migrate up")
	})
}
