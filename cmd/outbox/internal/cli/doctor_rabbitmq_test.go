package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
)

// rabbitWorld is a database with events of these topics.
func rabbitWorld(t *testing.T, topics ...string) *world {
	t.Helper()
	w := newWorld(t, newSQLite)
	w.ok("migrate", "up")
	for _, topic := range topics {
		w.publish(core.Event{Type: "order.placed", Topic: topic})
	}
	return w
}

// A client finds missing exchanges and queues, and makes none.
func TestDoctorRabbitMQ(t *testing.T) {
	t.Parallel()
	here, missing := unique(), unique()
	w, address := rabbitWorld(t, here, missing), strings.TrimSuffix(server(t, "OUTBOX_TEST_RABBITMQ"), "/")
	ch := channelTo(t, address)
	must(t, ch.ExchangeDeclare(here, "fanout", true, false, false, false, nil))
	must(t, errOf(ch.QueueDeclare(here, true, false, false, false, nil)))
	defer func() {
		_ = ch.ExchangeDelete(here, false, false)
		_, _ = ch.QueueDelete(here, false, false, false)
	}()
	for range 2 {
		w.requireFinding(levelWarning, "broker", `no exchange "`+missing, "--to", address)
		w.requireFinding(levelWarning, "broker", `no queue "`+missing, "--to", address+"/?topology=queue")
	}
	w.exec("DELETE FROM outbox_event WHERE topic = '" + missing + "'")
	w.requireFinding(levelWarning, "broker", "no client can see whether queues are bound", "--to", address)
	w.requireFinding(levelOK, "broker", "the queues of 1 topic;", "--to", address+"/?topology=queue")
}

// deleteQueue deletes a queue with a connection of its own.
func deleteQueue(t *testing.T, address, name string) {
	t.Helper()
	onChannel(t, address, func(ch *amqp091.Channel) error {
		_, err := ch.QueueDelete(name, false, false, false)
		return err
	})
}

func deleteExchange(t *testing.T, address, name string) {
	t.Helper()
	onChannel(t, address, func(ch *amqp091.Channel) error { return ch.ExchangeDelete(name, false, false) })
}

// channelTo returns a channel of a connection that ends with the test.
func channelTo(t *testing.T, address string) *amqp091.Channel {
	t.Helper()
	conn, err := amqp091.Dial(address + "/")
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	must(t, err)
	return ch
}

// onChannel runs fn with a channel of a new connection.
func onChannel(t *testing.T, address string, fn func(*amqp091.Channel) error) {
	t.Helper()
	conn, err := amqp091.Dial(address + "/")
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = fn(ch)
	}
	noError(t, err)
}

// An exchange or a queue that is not as the relay declares it is a failure: RabbitMQ refuses the
// declaration, and the events wait. The queue stays as it is.
func TestDoctorRabbitMQComparesDeclarations(t *testing.T) {
	t.Parallel()
	address, api := strings.TrimSuffix(server(t, "OUTBOX_TEST_RABBITMQ"), "/"), server(t, "OUTBOX_TEST_RABBITMQ_API")
	ch := channelTo(t, address)
	const (
		asQueue  = "/?topology=queue"
		asQuorum = "/?topology=queue&queue=quorum"
	)
	type ask struct {
		to  string
		fix string // empty: RabbitMQ accepts it
	}
	for name, c := range map[string]struct {
		durable bool
		args    amqp091.Table
		asks    []ask
	}{
		"quorum": {true, amqp091.Table{"x-queue-type": "quorum"}, []ask{
			{asQueue, "write queue=quorum into --to"}, {asQuorum, ""},
		}},
		"classic": {true, nil, []ask{{asQueue, ""}, {asQuorum, "leave queue=quorum out of --to"}}},
		"stream": {true, amqp091.Table{"x-queue-type": "stream"}, []ask{
			{asQueue, "topology=topic"}, {asQuorum, "topology=topic"},
		}},
		"ttl":    {true, amqp091.Table{"x-message-ttl": int32(60000)}, []ask{{asQueue, "by a policy"}}},
		"memory": {false, nil, []ask{{asQueue, "topology=topic"}}},
	} {
		topic := unique() + name
		must(t, errOf(ch.QueueDeclare(topic, c.durable, false, false, false, c.args)))
		t.Cleanup(func() { deleteQueue(t, address, topic) })
		must(t, ch.ExchangeDeclare(topic, "direct", true, false, false, false, nil))
		t.Cleanup(func() { deleteExchange(t, address, topic) })
		w := rabbitWorld(t, topic)
		for _, more := range [][]string{nil, {"--rabbitmq-api", api}} {
			for _, a := range c.asks {
				args := append([]string{"--to", address + a.to}, more...)
				if a.fix != "" {
					w.requireFinding(levelFailure, "broker", "RabbitMQ does not let the relay declare queue", args...)
					w.require(w.run(append([]string{"doctor"}, args...)...), ExitUnhealthy, a.fix)
				} else if r := w.run(append([]string{"doctor"}, args...)...); strings.Contains(r.out, "does not let") {
					t.Errorf("%s %v: %s", name, args, r.out)
				}
			}
			w.requireFinding(levelFailure, "broker", "RabbitMQ does not let the relay declare exchange",
				append([]string{"--to", address}, more...)...)
		}
		left, err := ch.QueueDeclare(topic, c.durable, false, false, false, c.args)
		if err != nil || left.Name != topic {
			t.Fatalf("%s is not as it was: %v", name, err)
		}
	}
}

// rabbitRecorded answers as the management API of RabbitMQ 3.10 did: testdata/rabbitmq-api.json has
// its answers, without what doctor does not read. The members of the queue "safe" are written by
// hand.
func rabbitRecorded(t *testing.T) (address string) {
	t.Helper()
	text, err := os.ReadFile("testdata/rabbitmq-api.json")
	must(t, err)
	var answers map[string]json.RawMessage
	must(t, json.Unmarshal(text, &answers))
	s := httptest.NewServer(http.HandlerFunc(func(resp http.ResponseWriter, req *http.Request) {
		user, password, _ := req.BasicAuth()
		answer, found := answers[req.URL.EscapedPath()]
		switch {
		case user != "reader" || password != "secret":
			resp.WriteHeader(http.StatusUnauthorized)
			answer = json.RawMessage(`{"error":"not_authorized","reason":"Login failed"}`)
		case !found:
			resp.WriteHeader(http.StatusNotFound)
			answer = json.RawMessage(`{"error":"Object Not Found","reason":"Not Found"}`)
		}
		_, _ = resp.Write(answer)
	}))
	t.Cleanup(s.Close)
	return strings.Replace(s.URL, "http://", "http://reader:secret@", 1)
}

// Exchanges and queues that lose events are found in the management API, each with its fault.
func TestDoctorRabbitMQSettings(t *testing.T) {
	t.Parallel()
	api := rabbitRecorded(t)
	for _, c := range []struct {
		topic, to string
		want      []string // none: all is well
	}{
		{"orders", "", []string{
			"queue careful has one member", "queue careful drops a message after 3 deliveries",
			"exchange loose is not durable", "queue mirrored is a mirrored classic queue",
			"queue mirrored drops its oldest messages when it is full", "queue moved has one member",
			"queue own is removed with its last consumer", "queue retried has one member",
			"queue retried drops a message after 3 deliveries", "queue short is a classic queue",
			"queue short is removed after 15m without a consumer", "queue short drops messages after 1m",
			"queue short drops its oldest messages when it is full", "queue temp is not durable",
		}},
		{"wanted", "", []string{"exchange brief is removed with its last binding"}},
		{"unbound", "", []string{"no queue of RabbitMQ takes events of unbound"}},
		{"nowhere", "", []string{`no exchange "nowhere"`}},
		{"temp", "?topology=queue", []string{"queue temp is not durable"}},
		{"nowhere", "?topology=queue", []string{`no queue "nowhere"`}},
		{"safe", "?topology=queue&queue=quorum", nil},
		{"order.placed", "?topology=topic&exchange=events", nil},
		{"order.placed.late", "?topology=topic&exchange=events", []string{"no queue of RabbitMQ takes"}},
		{"stock", "?topology=topic&exchange=events", []string{
			"queue short is a classic", "queue short is removed", "queue short drops messages", "queue short drops its",
		}},
	} {
		t.Run(c.topic+c.to, func(t *testing.T) {
			t.Parallel()
			w := rabbitWorld(t, c.topic)
			args := []string{"--to", "amqp://guest:guest@broker:5672/" + c.to, "--rabbitmq-api", api}
			if c.want == nil {
				w.requireFinding(levelOK, "broker", "1 queues of RabbitMQ keep", args...)
			}
			for _, part := range c.want {
				w.requireFinding(levelWarning, "broker", part, args...)
			}
			var all []finding
			w.list(&all, "findings", append([]string{"doctor"}, args...)...)
			n := 0
			for _, f := range all {
				if f.Check == "broker" && f.Level != levelFailure { // of another declaration
					n++
				}
			}
			equal(t, n, max(1, len(c.want)), "findings: %+v", all)
		})
	}
}

// RabbitMQ 4 limits the deliveries of a quorum queue unless somebody has switched that off. RabbitMQ
// 3 does so only if somebody has set a limit.
func TestDoctorRabbitMQDeliveryLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ settings, want string }{
		{`"delivery_limit": 20`, "after 20 deliveries"},
		{`"delivery_limit": 5, "arguments": {"x-delivery-limit": 5}`, "after 5 deliveries"},
		{`"delivery_limit": "unlimited", "effective_policy_definition": {"delivery-limit": -1}`, ""},
		{`"effective_policy_definition": {"delivery-limit": 3}`, "after 3 deliveries"},
		{`"arguments": {"x-delivery-limit": -1}`, ""},
		{`"arguments": {}`, ""},
		{`"delivery_limit": 20, "arguments": {"x-dead-letter-exchange": "parked"}`, ""},
	} {
		var q rabbitQueue
		must(t, json.Unmarshal([]byte(`{"name": "q", "type": "quorum", "durable": true, `+c.settings+"}"), &q))
		var found []string
		for _, f := range judgeQueue(q) {
			found = append(found, f.Found)
		}
		if got := strings.Join(found, ", "); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: found %q, want %q", c.settings, got, c.want)
		}
	}
}

// The management API of a running RabbitMQ answers as the recorded one does.
func TestDoctorRabbitMQAnswers(t *testing.T) {
	t.Parallel()
	address, api := server(t, "OUTBOX_TEST_RABBITMQ"), server(t, "OUTBOX_TEST_RABBITMQ_API")
	temp, short, moved, unbound, missing := unique(), unique(), unique(), unique(), unique()
	conn, err := amqp091.Dial(address)
	must(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must(t, err)
	do := func(err error) {
		t.Helper()
		must(t, err)
	}
	queue := func(name string, durable bool, args amqp091.Table) {
		t.Helper()
		_, err := ch.QueueDeclare(name, durable, false, false, false, args)
		do(err)
		t.Cleanup(func() { _, _ = ch.QueueDelete(name, false, false, false) })
	}
	queue(temp, false, nil)
	queue(short, true, amqp091.Table{
		"x-queue-type": "quorum", "x-message-ttl": int32(60000), "x-max-length": int32(10), "x-overflow": "drop-head",
	})
	queue(moved, true, nil)
	for _, exchange := range []string{moved, unbound} {
		do(ch.ExchangeDeclare(exchange, "fanout", exchange == unbound, false, false, false, nil))
		t.Cleanup(func() { _ = ch.ExchangeDelete(exchange, false, false) })
	}
	do(ch.QueueBind(moved, "", moved, false, nil))
	for _, c := range []struct {
		topic, to string
		want      []string
	}{
		{temp, "?topology=queue", []string{"queue " + temp + " is not durable"}},
		{short, "?topology=queue", []string{
			"queue " + short + " has one member", "queue " + short + " drops messages after 1m",
			"queue " + short + " drops its oldest messages when it is full",
		}},
		{moved, "", []string{"exchange " + moved + " is not durable", "queue " + moved + " is a classic queue"}},
		{unbound, "", []string{"no queue of RabbitMQ takes events of " + unbound}},
		{missing, "", []string{`no exchange "` + missing + `"`}},
		{missing, "?topology=queue", []string{`no queue "` + missing + `"`}},
	} {
		w := rabbitWorld(t, c.topic)
		to := strings.TrimSuffix(address, "/") + "/" + c.to
		for _, part := range c.want {
			w.requireFinding(levelWarning, "broker", part, "--to", to, "--rabbitmq-api", api)
		}
	}
}

// An API that does not answer as one is a warning, and its password is not shown.
func TestDoctorRabbitMQRefuses(t *testing.T) {
	t.Parallel()
	w := rabbitWorld(t, "orders")
	to := "amqp://guest:hidden@broker:5672/"
	w.env["OUTBOX_RABBITMQ_API"] = strings.Replace(rabbitRecorded(t), "secret", "hidden", 1)
	for _, c := range [][]string{
		{"401", "doctor", "--to", to},
		{"is no address", "doctor", "--to", to, "--rabbitmq-api", "broker:15672"},
		{"could not be checked", "doctor", "--to", to, "--rabbitmq-api", "http://guest:hidden@127.0.0.1:1"},
		{"topology=topic is with", "doctor", "--to", to + "?topology=topic"},
	} {
		r := w.run(c[1:]...)
		w.require(r, ExitUnhealthy, c[0]) // nobody relays the topic
		if strings.Contains(r.out+r.err, "hidden") {
			t.Errorf("the password is shown: %s%s", r.out, r.err)
		}
	}
	w.exec("DROP INDEX outbox_event_dead") // the failure of one check hides no other
	for _, part := range []string{"401", "outbox_event_dead"} {
		w.require(w.run("doctor", "--to", to), ExitUnhealthy, part)
	}
}
