package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/pflag"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

func TestBrokerAddresses(t *testing.T) {
	t.Parallel()
	s := brokerSettings{workers: 4, timeout: time.Second, logger: slog.New(slog.DiscardHandler)}
	for address, want := range map[string]string{
		"kafka://localhost:9092":                                      "kafka://localhost:9092",
		"kafka://me:hunter2@a:9092,b:9093?tls=true&client-id=x":       "kafka://a:9092,b:9093",
		"amqp://me:hunter2@localhost:5672/":                           "amqp://localhost:5672",
		"amqps://me:hunter2@localhost/shop?topology=queue":            "amqps://localhost",
		"amqp://localhost?topology=queue&queue=quorum":                "amqp://localhost",
		"amqp://localhost?topology=topic&exchange=events&heartbeat=5": "amqp://localhost",
		"amqp://me:hunter2@a:5672,b:5673/shop?topology=queue":         "amqp://a:5672,b:5673",
		"amqp://me:hunter2@a/,amqp://me:hunter2@b/?topology=queue":    "amqp://a,b",
		"kafka://a:9092,kafka://b:9092?tls=true":                      "kafka://a:9092,b:9092",
		"nats://me:hunter2@127.0.0.1:1":                               "nats://127.0.0.1:1",
		"nats://me:hunter2@a:4222,b:4222":                             "nats://a:4222,b:4222",
		"nats://me:hunt,er2@a:4222,b:4222":                            "nats://a:4222,b:4222",
		"tls://me:hunter2@a:4222,tls://me:hunter2@b:4222":             "tls://a:4222,b:4222",
		"redis://me:hunter2@localhost:6379/3":                         "redis://localhost:6379",
		"kafka://me:hunter2@a:9092?tls=true&sasl=scram-sha-512":       "kafka://a:9092",
	} {
		b, err := openBroker(t.Context(), address, s)
		if err != nil || b.name != want {
			t.Errorf("%s: %v, %v", address, b, err)
			continue
		}
		_ = b.Close(t.Context())
	}
	for address, want := range map[string]string{
		"":                                              "amqp://",
		"http://me:hunter2@localhost":                   "names no broker",
		"kafka://me:hunter2@a:9092?acks=1":              `"acks" is not known`,
		"kafka://me:hunter2@a:9092?tls=yes":             "neither true nor false",
		"amqp://me:hunter2@a?topolgy=queue":             `"topolgy" is not known`,
		"amqp://me:hunter2@a?topology=star":             "topology=star",
		"amqp://me:hunter2@a?topology=topic":            "exchange=NAME",
		"amqp://me:hunter2@a?queue=quorum":              "is with topology=queue",
		"amqp://me:hunter2@a?topology=queue&queue=lazy": "it is classic or quorum",
		"amqp://me:hunter2@a:x/":                        "port",
		"kafka://me:hunter2/x@a":                        "invalid port",
		"nats://hunter2/x@a":                            "%2F",
		"redis://me:hunter2@a:6379/shop":                "database",
		"redis://me:hunter2@%zz":                        "escape",
		"redis://me:hunter2@a:6379,b:6379":              "redis has one server",
		"nats://me:hunter2@a:4222,nats://b:hunter2@c":   "different users",
		"amqp://me:hunter2@a/x,amqp://me:hunter2@b/x":   "several servers are",
		"kafka://a:9092,,b:9092":                        "several servers are",
		"nats://me:hunter2@a:4222?stream=shop":          "not known",
		"kafka://me:hunter2@a:9092?sasl=md5":            "sasl=md5",
		"kafka://a:9092?sasl=plain":                     "is with user:password@",
		"kafka://a:9092?cacertfile=ca.crt":              "are for an address with TLS",
		"redis://me:hunter2@a:6379?certfile=a":          "are for an address with TLS",
		"nats://me:hunter2@a:4222?cacertfile=ca.crt":    "are for an address with TLS",
		"rediss://me:hunter2@a:6379?cacertfile=none":    "cacertfile: ",
		"tls://me:hunter2@a:4222?cacertfile=root.go":    "root.go has no certificate",
		"kafka://a:9092?tls=true&certfile=none":         "certfile and keyfile: ",
		"nats://a:4222?creds=none":                      "open none",
	} {
		_, err := openBroker(t.Context(), address, s)
		if codeOf(err) != ExitUsage || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter2") || strings.Count(err.Error(), "--to") != 1 {
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
	for flag, values := range map[string][]string{
		"workers": {"-1", "0", "1000000000"}, "connections": {"1", "1000000000"}, "keep": {"0", "-1h"},
		"keep-discarded": {"-1h"}, "publish-timeout": {"0"}, "poll-interval": {"0"}, "shutdown-timeout": {"0"},
	} {
		for _, v := range values {
			r := w.run("relay", "--poll-interval", "1s", "--to", "redis://localhost:1", "--"+flag, v)
			w.require(r, ExitUsage, "outbox: --"+flag+" "+v, "it is ", "see outbox relay --help")
			config := fmt.Sprintf(`{"outboxes": [{"name": "a", "database_url": "sqlite::memory:", "to": "redis://r",
				%q: %q}]}`, strings.ReplaceAll(flag, "-", "_"), v)
			r = (&world{T: t}).run("relay", "--config", config)
			w.require(r, ExitUsage, "outbox: --config: outbox a: --"+flag+" "+v, "it is ")
		}
	}
}

// A relay on a database without tables says so and ends.
func TestRelayWithoutTables(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.open().PingContext(w.Context()) // makes the file of SQLite
		w.require(w.run("relay", "--to", "redis://localhost:1"), ExitFailed, "outbox migrate up")
	})
}

// A configuration has several outboxes, and its secrets come from the environment.
func TestRelayConfiguration(t *testing.T) {
	t.Parallel()
	env := map[string]string{"SHOP_URL": "postgres://me:hunter2@db/shop"}
	a := &app{Environment: Environment{Getenv: func(name string) string { return env[name] }}}
	var base relayFlags
	base.register(pflag.NewFlagSet("", pflag.ContinueOnError))
	base.keep = time.Hour
	all, wrong := a.configured([]byte(`{"outboxes": [
		{"name": "shop", "database_url": "${SHOP_URL}?sslmode=disable", "to": "redis://r", "workers": 4,
		 "keep": "24h", "keep_discarded": "48h", "delete_on_success": true, "schema": "s", "prefix": "p_"},
		{"name": "mail", "database_url": "sqlite:$x", "to": "redis://r"}]}`), base)
	must(t, errors.Join(wrong...))
	shop, mail := base, base
	shop.to, shop.workers, shop.keep, shop.deleteOnSuccess = "redis://r", 4, 24*time.Hour, true
	shop.keepDiscarded, mail.to = 48*time.Hour, "redis://r"
	if len(all) != 2 || all[0].relayFlags != shop || all[1].relayFlags != mail || all[0].name != "shop" ||
		all[0].databaseURL != env["SHOP_URL"]+"?sslmode=disable" || all[0].schema != "s" || all[0].prefix != "p_" ||
		all[1].databaseURL != "sqlite:$x" {
		t.Errorf("%+v %+v", all[0], all[1])
	}
	const rest = `"database_url": "${SHOP_URL}", "to": "redis://r"`
	for text, want := range map[string]string{
		`{}`:                             "no outboxes",
		`{"outboxes": [{"name": "a"}]}`:  "database_url is missing",
		`{"outboxes": [{` + rest + `}]}`: `name ""`,
		`{"outboxes": [{"name": "a b", ` + rest + `}]}`:                              `name "a b"`,
		`{"outboxes": [{"name": "a", ` + rest + `}, {"name": "a", ` + rest + `}]}`:   "two outboxes",
		`{"outboxes": [{"name": "a", "acks": 1, ` + rest + `}]}`:                     `"acks" is not known`,
		`{"outboxes": [{"name": "a", "poll-interval": "1s", ` + rest + `}]}`:         "is not known",
		`{"outboxes": [{"name": "a", "workers": [1], ` + rest + `}]}`:                "workers is no text",
		`{"outboxes": [{"name": "a", "workers": "${SHOP_URL}", ` + rest + `}]}`:      "workers: it is a number",
		`{"outboxes": [{"name": "a", "to": "${LOST}", "database_url": "sqlite:x"}]}`: "${LOST} is not set",
		`{"outbox": []}`: "not JSON as",
	} {
		_, wrong := a.configured([]byte(text), base)
		err := errors.Join(wrong...)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
	w := &world{T: t, env: map[string]string{}}
	w.require(w.run("relay", "--config", "lost.json"), ExitUsage, "lost.json")
	w.require(w.run("relay", "--config", "{}", "--to", "redis://r"), ExitUsage, "leave --to")
	w.env["OUTBOX_CONFIG"] = `{"outboxes": [{"name": "a", "database_url": "sqlite::memory:", "to": "redis://r"},
		{"name": "b", "database_url": "sqlite::memory:", "to": "redis://r"}]}`
	w.require(w.run("relay"), ExitUsage, "a and b have the same tables")
	w.env["OUTBOX_CONFIG"] = `{"outboxes": [{"name": "a", "database_url": "sqlite::memory:", "to": "http://r"}]}`
	w.require(w.run("relay"), ExitUsage, "outbox a: --to names no broker")
}

// A relay of the log is refused where there is no log, and with flags that have no meaning for it.
// This holds on the command line and in a configuration.
func TestRelayOfTheLogFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flags, want string }{
		{"--slot outbox", "only the log of PostgreSQL is read, and this is sqlite"},
		{"--slot Outbox", `--slot "Outbox": it has lower-case letters`},
		{"--slot outbox --poll-interval 2s", "--poll-interval does not go with --slot"},
		{"--slot outbox --no-wake", "--no-wake does not go with --slot"},
		{"--slot outbox --delete-on-success", "--delete-on-success does not go with --slot"},
		{"--slot outbox --connections 3", "--connections 3: with --slot it is 4 or more"},
		{"--slot outbox --repair-slot no", `--repair-slot "no": it is lost, always or never`},
		{"--create-slot", "--slot is missing"},
		{"--failover-slot", "--slot is missing"},
		{"--repair-slot never", "--slot is missing"},
	} {
		w := &world{T: t, address: "sqlite::memory:"}
		args := strings.Fields(c.flags)
		w.require(w.run(append([]string{"relay", "--to", "redis://localhost:1"}, args...)...), ExitUsage, c.want)

		var config strings.Builder
		for i, arg := range args {
			name, flag := strings.CutPrefix(arg, "--")
			switch {
			case !flag:
				fmt.Fprintf(&config, ": %q", arg)
			case i == len(args)-1 || strings.HasPrefix(args[i+1], "--"):
				fmt.Fprintf(&config, ", %q: true", strings.ReplaceAll(name, "-", "_"))
			default:
				fmt.Fprintf(&config, ", %q", strings.ReplaceAll(name, "-", "_"))
			}
		}
		w = &world{T: t}
		w.require(w.run("relay", "--config", `{"outboxes": [{"name": "a", "database_url": "sqlite::memory:",
			"to": "redis://localhost:1"`+config.String()+`}]}`), ExitUsage, "outbox a: ", c.want)
	}
	w := &world{T: t, address: "sqlite::memory:"}
	w.require(w.run("relay", "--to", "redis://localhost:1", "--slot", ""), ExitUsage, "--slot: it is empty")
	w = &world{T: t}
	w.require(w.run("relay", "--config", `{"outboxes": [
		{"name": "a", "database_url": "sqlite::memory:", "to": "redis://localhost:1", "slot": ""}]}`),
		ExitUsage, "slot: it is empty; leave it out for its default")
	w.require(w.run("relay", "--config", `{"outboxes": [
		{"name": "a", "database_url": "postgres://localhost:1/a", "to": "redis://localhost:1", "slot": "s"},
		{"name": "b", "database_url": "postgres://localhost:1/b", "to": "redis://localhost:1", "slot": "s"}]}`),
		ExitUsage, "a and b have the same slot s on one server")
}

// A pool that had one connection at first keeps all that it may have later.
func TestSharedPoolKeepsConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPostgres)
	a := &app{databaseURL: w.address, Environment: Environment{Getenv: func(string) string { return "" }}}
	shared := databases{open: map[poolKey]*sharedDatabase{}}
	const connections = 4
	db, give, err := shared.take(a, &relaySettings{relayFlags: relayFlags{connections: connections}})
	must(t, err)
	w.await("the pool may have more", func() bool { return db.Stats().MaxOpenConnections == connections })
	var held []*sql.Conn
	for range connections {
		c, err := db.Conn(t.Context())
		must(t, err)
		held = append(held, c)
	}
	for _, c := range held {
		must(t, c.Close())
	}
	equal(t, db.Stats().Idle, connections, "connections that the pool keeps")
	must(t, give())
}

// /healthz names the outbox that only a restart helps.
func TestProbesNameTheOutbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newSQLite)
	repo, err := sqloutbox.New(w.open(), sqloutbox.Config{Dialect: w.dialect})
	must(t, err)
	logger := slog.New(slog.DiscardHandler)
	ob, err := core.New(core.Config{
		Repository: repo, Publisher: &outboxtest.Publisher{}, Relay: relay.Config{}, Logger: logger,
	})
	must(t, err)
	f := newFleet(&app{}, relayProcess{}, relayFlags{}, logger)
	f.members = []*member{{relaySettings: relaySettings{name: "shop"}, outbox: ob}}
	probe := func() (int, string) {
		answer := httptest.NewRecorder()
		f.probes(t.Context()).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/healthz", nil))
		return answer.Code, answer.Body.String()
	}
	if code, text := probe(); code != http.StatusOK || !strings.Contains(text, `"problems":[]`) {
		t.Errorf("%d %s", code, text)
	}
	if err := ob.Run(t.Context()); !errors.Is(err, core.ErrNoTables) {
		t.Fatal(err)
	}
	code, text := probe()
	if code != http.StatusServiceUnavailable || !strings.Contains(text, "outbox shop: outbox: Run has ended") {
		t.Errorf("%d %s", code, text)
	}
}

// Two outboxes listen on one connection, which falls silent. The first one that listens again finds
// it out for both.
func TestSilentListener(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPostgres)
	cfg, err := pgx.ParseConfig(w.address)
	must(t, err)
	var silent atomic.Bool
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return silentConn{c, &silent}, err
	}
	listener := &sharedListener{cfg: cfg}
	listen := func(channel string) (wakes chan struct{}, ended chan error, leave func()) {
		ctx, leave := context.WithCancel(t.Context())
		wakes, ended = make(chan struct{}, 8), make(chan error, 1)
		go func() { ended <- listener.listen(channel)(ctx, func() { wakes <- struct{}{} }) }()
		return wakes, ended, leave
	}
	first, ended, leave := listen("one")
	<-first
	other, lost, _ := listen("two")
	<-other
	once(t, "pgx", w.address, "NOTIFY one")
	<-first

	silent.Store(true)
	leave()
	<-ended
	_, _, _ = listen("one")
	<-lost // the second one need not find it out
}

// silentConn gets nothing any more when it is silent.
type silentConn struct {
	net.Conn
	silent *atomic.Bool
}

func (c silentConn) Read(b []byte) (n int, err error) {
	n, err = c.Conn.Read(b)
	for err == nil && c.silent.Load() {
		n, err = c.Conn.Read(b)
	}
	return n, err
}
