package brokers_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

// Three nodes of RabbitMQ with TLS, client certificates, users and a quorum queue.
func TestSecuredRabbitMQ(t *testing.T) {
	if testing.Short() {
		return // `make test-all` runs it, once
	}
	t.Parallel()
	set := fixture.StartPrivateSet(t, "securerabbitmq1", "securerabbitmq2", "securerabbitmq3")
	c := certificatesOf(t, set[0])
	r := &securedRabbitMQ{t: t, c: c, set: set, topic: "it-" + core.NewEventID()}
	r.ctl("set_policy", "full", "^it-", `{"max-length": 100000, "overflow": "reject-publish"}`)
	fixture.Await(t, "the nodes take a quorum queue", func() bool {
		return r.admin(func(ch *amqp091.Channel) error {
			_, err := ch.QueueDeclare(r.topic, true, false, false, false, queueType(true))
			return err
		}) == nil
	})
	cfg := amqpbridge.QueueConfig(r.address("relay"))
	cfg.Connection.AmqpConfig.TLSClientConfig = c.config()
	p := topics.RabbitPublisher(t, amqpbridge.Config{AMQP: cfg})
	flow := newSecuredFlow(t, "amqpbridge", r.topic, p, r.held)
	all := func(do func(*fixture.PrivateServer, *testing.T)) {
		for _, s := range set {
			do(s, t)
		}
	}
	checkSecured(t, []*securedFlow{flow}, []securedWay{
		{"another node is killed", func() { set[2].Kill(t) }, func() { set[2].Up(t) }, ""},
		{
			"a full queue", func() {
				r.ctl("set_policy", "full", "^it-", `{"max-length": 1, "overflow": "reject-publish"}`)
			},
			func() { r.ctl("set_policy", "full", "^it-", `{"max-length": 100000, "overflow": "reject-publish"}`) },
			"refused the message",
		},
		{
			"an alarm of memory", func() { r.ctl("set_vm_memory_high_watermark", "0.000001") },
			func() { r.ctl("set_vm_memory_high_watermark", "0.4") }, "blocked publishers",
		},
		{
			"no right", func() { r.ctl("set_permissions", "relay", "^$", "^$", "^$"); r.cut() },
			func() { r.ctl("set_permissions", "relay", "^it-", `^(it-|amq\.default$)`, "^it-") }, "(?i)access.refused",
		},
		{
			"another password", func() { r.ctl("change_password", "relay", "other"); r.cut() },
			func() { r.ctl("change_password", "relay", "secret") }, "username or password not allowed",
		},
		{
			"an expired certificate of the client", func() { c.show("expired"); r.cut() },
			func() { c.show("client") }, "expired certificate|bad certificate",
		},
		{
			"all are paused", func() { all((*fixture.PrivateServer).Pause) },
			func() { all((*fixture.PrivateServer).Resume) }, `publish to 127\.0\.0\.1:\d+: no answer yet`,
		},
		{
			"an expired certificate of the servers", func() { r.show("expired") }, func() { r.show("server") },
			"certificate has expired",
		},
	})
	checkRelay(t, r.address("relay")+"?topology=queue&queue=quorum&"+c.parameters(), r.topic, r.held)
}

type securedRabbitMQ struct {
	t     *testing.T
	c     *certificates
	set   []*fixture.PrivateServer
	topic string
}

// address has all nodes.
func (r *securedRabbitMQ) address(user string) string {
	r.t.Helper()
	var hosts []string
	for _, s := range r.set {
		u, err := url.Parse(s.Address)
		fixture.NoError(r.t, err)
		hosts = append(hosts, u.Host)
	}
	return "amqps://" + user + ":secret@" + strings.Join(hosts, ",") + "/"
}

func (r *securedRabbitMQ) ctl(arguments ...string) {
	r.t.Helper()
	r.set[0].RabbitMQCtl(r.t, arguments...)
}

// show makes the nodes show another certificate to their clients, which have to connect again.
func (r *securedRabbitMQ) show(name string) {
	r.t.Helper()
	for i, s := range r.set {
		for _, end := range []string{".crt", ".key"} {
			text, err := os.ReadFile(r.c.file(name + end))
			fixture.NoError(r.t, err)
			file := filepath.Join(s.Folder(fmt.Sprint("securerabbitmq", i+1)), "shown"+end)
			fixture.NoError(r.t, os.WriteFile(file, text, 0o600))
		}
	}
	r.ctl("eval", "rpc:multicall(ssl, clear_pem_cache, []).")
	r.cut()
}

// cut closes the connections.
func (r *securedRabbitMQ) cut() { r.t.Helper(); r.ctl("close_all_connections", "cut") }

// admin calls fn with a channel of a connection of the admin.
func (r *securedRabbitMQ) admin(fn func(*amqp091.Channel) error) error {
	conn, err := amqp091.DialTLS(withUser(r.t, r.set[0].Address, "admin"), r.c.always("client"))
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return fn(ch)
}

func (r *securedRabbitMQ) held(t *testing.T) (all []heldMessage) {
	t.Helper()
	fixture.NoError(t, r.admin(func(ch *amqp091.Channel) error {
		for {
			d, ok, err := ch.Get(r.topic, true)
			if err != nil || !ok {
				return err
			}
			msg, err := amqpbridge.Marshaler{}.Unmarshal(d)
			if err != nil {
				return err
			}
			all = append(all, heldMessage{Message: msg})
		}
	}))
	return all
}
