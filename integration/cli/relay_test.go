package cli_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// inbound collects the ids of the events that a broker has received.
type inbound struct {
	mu  sync.Mutex
	ids []string
}

func (i *inbound) add(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ids = append(i.ids, id)
}

func (i *inbound) all() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.ids)
}

// brokers has functions that make a topic and return the address for --to.
var brokers = map[string]func(t *testing.T, in *inbound) (to, topic string){
	"rabbitmq": func(t *testing.T, in *inbound) (to, topic string) {
		return topics.RabbitURI(t) + "?topology=queue", rabbitQueue(t, in, nil)
	},
	"rabbitmq quorum": func(t *testing.T, in *inbound) (to, topic string) {
		return topics.RabbitURI(t) + "?topology=queue&queue=quorum",
			rabbitQueue(t, in, amqp091.Table{"x-queue-type": "quorum"})
	},
	"kafka": func(t *testing.T, in *inbound) (to, topic string) {
		topic = topics.Kafka(t, "", 1, nil)
		c, err := sarama.NewConsumer([]string{topics.KafkaAddress(t)}, kafkabridge.SaramaConfig(0))
		fixture.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		p, err := c.ConsumePartition(topic, 0, sarama.OffsetOldest)
		fixture.NoError(t, err)
		t.Cleanup(func() { _ = p.Close() })
		go func() {
			for m := range p.Messages() {
				for _, h := range m.Headers {
					if string(h.Key) == core.HeaderEventID {
						in.add(string(h.Value))
					}
				}
			}
		}()
		return "kafka://" + topics.KafkaAddress(t), topic
	},
	"redis": func(t *testing.T, in *inbound) (to, topic string) {
		topic = "it-" + core.NewEventID()
		address := testdb.Server(t, "OUTBOX_TEST_REDIS")
		client := fixture.RedisAt(t, address)
		t.Cleanup(func() { client.Del(context.Background(), topic) })
		go func() {
			for last := "0"; ; {
				streams, err := client.XRead(t.Context(), &redis.XReadArgs{
					Streams: []string{topic, last}, Block: time.Second,
				}).Result()
				if t.Context().Err() != nil {
					return
				}
				for i := 0; err == nil && i < len(streams); i++ {
					for _, m := range streams[i].Messages {
						id, _ := m.Values["_watermill_message_uuid"].(string)
						in.add(id)
						last = m.ID
					}
				}
			}
		}()
		return address, topic
	},
	"nats": func(t *testing.T, in *inbound) (to, topic string) {
		topic = "it-" + core.NewEventID()
		address := testdb.Server(t, "OUTBOX_TEST_NATS")
		conn, err := nats.Connect(address)
		fixture.NoError(t, err)
		t.Cleanup(conn.Close)
		js, err := jetstream.New(conn)
		fixture.NoError(t, err)
		stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: topic, Subjects: []string{topic}})
		fixture.NoError(t, err)
		t.Cleanup(func() { _ = js.DeleteStream(context.Background(), topic) })
		c, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
		fixture.NoError(t, err)
		consume, err := c.Consume(func(m jetstream.Msg) { in.add(m.Headers().Get(core.HeaderEventID)) })
		fixture.NoError(t, err)
		t.Cleanup(consume.Stop)
		return address, topic
	},
}

// rabbitQueue makes a queue with these arguments.
func rabbitQueue(t *testing.T, in *inbound, arguments amqp091.Table) string {
	t.Helper()
	topic := topics.Rabbit(t)
	ch := topics.RabbitChannel(t)
	if _, err := ch.QueueDeclare(topic, true, false, false, false, arguments); err != nil {
		t.Fatal(err)
	}
	messages, err := ch.Consume(topic, "", true, false, false, false, nil)
	fixture.NoError(t, err)
	go func() {
		for m := range messages {
			id, _ := m.Headers[core.HeaderEventID].(string)
			in.add(id)
		}
	}()
	return topic
}

// A relay in a separate process publishes the events that another process commits. Its probes
// report its state. On SIGTERM it leaves no event half done.
func TestRelayProcess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		broker string
		open   func(*testing.T) testdb.DB
	}{
		{"rabbitmq", testdb.Postgres},
		{"rabbitmq quorum", testdb.SQLite},
		{"kafka", testdb.MariaDB},
		{"redis", testdb.SQLite},
		{"nats", testdb.Postgres},
	} {
		t.Run(c.broker, func(t *testing.T) {
			t.Parallel()
			db := c.open(t)
			var in inbound
			to, topic := brokers[c.broker](t, &in)
			if c.broker != "redis" { // the first of two servers is down
				u, err := url.Parse(to)
				fixture.NoError(t, err)
				u.Host = "127.0.0.1:1," + u.Host
				to = u.String()
			}
			if out, errs, code := outbox(t, db, "migrate", "up"); code != 0 {
				t.Fatal(out, errs)
			}
			relay := startRelay(t, db, to)
			fixture.Await(t, "the relay is ready", func() bool { return relay.ready() })
			if got := relay.get("/healthz"); !strings.Contains(got, `"status":"ok"`) {
				t.Errorf("/healthz: %s", got)
			}

			service := serviceOf(t, db)
			first := service(topic, 1)
			fixture.Await(t, "the event arrives", func() bool { return slices.Equal(in.all(), first) })
			fixture.Await(t, "the event is counted", func() bool {
				return strings.Contains(relay.get("/metrics"), `outbox_relay_messages_total{destination="`+topic)
			})

			want := append(first, service(topic, 200)...)
			fixture.Await(t, "some of the many arrive", func() bool { return len(in.all()) > 1 })
			relay.terminate()
			pool := db.Open(t)
			open := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_event WHERE status IN (0, 2)")
			if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_event WHERE status IN (0, 2) AND "+
				"lease_until IS NOT NULL AND claim_no <> 0"); n != 0 {
				t.Errorf("the relay kept %d of %d open events when it ended", n, open)
			}
			// Every event that is no longer open has arrived, and no open event has.
			fixture.Await(t, "the published events arrive", func() bool { return len(in.all()) >= len(want)-int(open) })
			got := in.all()
			slices.Sort(got)
			if open == 0 {
				slices.Sort(want)
				fixture.Check(t, slices.Equal(got, want), "arrived: %d events, want these %d", len(got), len(want))
			}
			if u := slices.Compact(slices.Clone(got)); len(u) != len(got) || len(got) != len(want)-int(open) {
				t.Errorf("%d events arrived, %d of them different; want %d of %d", len(got), len(u),
					len(want)-int(open), len(want))
			}
		})
	}
}

// serviceOf starts a service without a relay. The returned function publishes n events of a topic,
// and returns their ids.
func serviceOf(t *testing.T, db testdb.DB) func(topic string, n int) []string {
	t.Helper()
	return serviceWith(t, db, core.Config{})
}

func serviceWith(t *testing.T, db testdb.DB, cfg core.Config) func(topic string, n int) []string {
	t.Helper()
	pool := fixture.TrackedPool(t, db)
	ob := fixture.NewOutbox(t, db, cfg)
	tx := sqltx.NewTransactor(pool, db.Dialect)
	return func(topic string, n int) (ids []string) {
		var events []core.Event
		for i := range n {
			events = append(events, core.Event{
				Type: "order.placed", Topic: topic, Key: keyOf(i), Payload: []byte("{}"),
			})
		}
		err := tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) (err error) {
			ids, err = ob.Publish(ctx, tx, events...)
			return err
		})
		fixture.NoError(t, err)
		return ids
	}
}

// keyOf returns the key of the i-th event of one call of a service.
func keyOf(i int) string { return strconv.Itoa(i % 7) }

// relayProcess is a running `outbox relay`.
type relayProcess struct {
	t       *testing.T
	cmd     *exec.Cmd
	address string // the address of its probes
	log     *logLines
	read    chan struct{} // closed when the log has ended
}

// logLines collects the log of a process.
type logLines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logLines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.WriteString(line + "\n")
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// listening finds the address in a log of text or of JSON.
var listening = regexp.MustCompile(`msg"?[=:]"?listening"?[ ,]"?address"?[=:]"?([^\s"]+)`)

func startRelay(t *testing.T, db testdb.DB, to string) *relayProcess {
	t.Helper()
	// A publish that is given up because the machine is slow would leave a copy.
	return startRelayWith(t, "DATABASE_URL="+address(t, db), "OUTBOX_TO="+to, "OUTBOX_PUBLISH_TIMEOUT=8s")
}

func startRelayWith(t *testing.T, env ...string) *relayProcess {
	t.Helper()
	path, err := program()
	fixture.NoError(t, err)
	return startCommand(t, exec.Command(path, "relay"), env...)
}

// startCommand starts a relay, and returns when its probes can be asked.
func startCommand(t *testing.T, cmd *exec.Cmd, env ...string) *relayProcess {
	t.Helper()
	p := &relayProcess{t: t, cmd: cmd, log: &logLines{}, read: make(chan struct{})}
	p.cmd.Env = slices.Concat(os.Environ(), env, []string{"OUTBOX_LISTEN=127.0.0.1:0"})
	stderr, err := p.cmd.StderrPipe()
	fixture.NoError(t, err)
	fixture.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		p.log.add(lines.Text())
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			p.address = m[1]
			break
		}
	}
	if p.address == "" {
		t.Fatalf("the relay does not listen:\n%s", p.log)
	}
	go func() {
		defer close(p.read)
		for lines.Scan() {
			p.log.add(lines.Text())
		}
	}()
	return p
}

// ready reports whether the relay is healthy, and no event waits.
func (p *relayProcess) ready() bool {
	p.t.Helper()
	got := p.get("/readyz")
	return strings.Contains(got, `"status":"ok"`) && strings.Contains(got, `"relaying":true`)
}

// get returns the body of an answer, or the error.
func (p *relayProcess) get(path string) string {
	p.t.Helper()
	res, err := http.Get("http://" + p.address + path)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// terminate ends the relay with SIGTERM, and requires that it stops by itself.
func (p *relayProcess) terminate() {
	p.t.Helper()
	fixture.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	ended := make(chan error, 1)
	go func() {
		<-p.read // Wait closes the pipe
		ended <- p.cmd.Wait()
	}()
	select {
	case err := <-ended:
		if err != nil {
			p.t.Errorf("the relay ended with %v:\n%s", err, p.log)
		}
	case <-time.After(30 * time.Second):
		p.t.Fatalf("the relay does not end:\n%s", p.log)
	}
}
