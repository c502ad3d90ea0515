package brokers_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

// features are those of a broker with its bridge. Each text is a cell of the table in
// docs/choosing-a-broker.md, and what stands beside it is checked against the broker.
type features struct {
	name string
	open func(t *testing.T) destination

	order string // every one keeps the order of a key

	headers       string
	refusesBlanks bool // a value with blanks around it is refused when it is recorded

	copies     string
	recognises bool // a copy of a message is not stored

	largest      string
	largestBytes int // of a payload beside few headers; 64 KiB less are taken

	receipt string
	form    string // of a receipt, as a regular expression

	nobody      string
	nobodyClass string // of the error for a topic that nobody has made; empty: it is taken
}

// destination is a topic of a broker, with a subscriber.
type destination struct {
	topic     string
	publisher publisher
	messages  <-chan *message.Message
	drop      func(t *testing.T, topic string) // removes a topic that the broker made by itself; may be nil
}

type publisher interface {
	core.ReceiptPublisher
	core.SizeChecker
}

const uuidForm = `[0-9a-f-]{36}`

var brokers = []features{
	{
		name: "Kafka", order: "in a partition", headers: "as they are", copies: "stored again",
		largest: "1 MiB with headers", largestBytes: 1 << 20,
		receipt: "`topic/partition@offset`", form: "it-" + uuidForm + `/[0-2]@\d+`,
		nobody: "taken, as Kafka makes topics by default; else it waits", nobodyClass: "",
		open: func(t *testing.T) destination {
			topic := topics.Kafka(t, "", 3, nil)
			return destination{
				topic, topics.KafkaPublisher(t, kafkabridge.Config{}), kafkaMessages(t, topic), dropKafkaTopic,
			}
		},
	}, {
		name: "RabbitMQ", order: "in a queue", headers: "as they are", copies: "stored again",
		largest: "16 MiB", largestBytes: 16 << 20, receipt: "none",
		nobody: "waits; dead once the topic has taken events", nobodyClass: "unroutable",
		open: func(t *testing.T) destination {
			topic, cfg := topics.Rabbit(t), amqpbridge.QueueConfig(topics.RabbitURI(t))
			messages := rabbitMessages(t, cfg, topic)
			return destination{topic, topics.RabbitPublisher(t, amqpbridge.Config{AMQP: cfg}), messages, nil}
		},
	}, {
		name: "NATS JetStream", order: "in a stream", headers: "as they are; blanks around a value are refused",
		refusesBlanks: true, copies: "recognised for 2 minutes", recognises: true,
		largest: "1 MiB with headers", largestBytes: 1 << 20,
		receipt: "`stream@sequence`", form: "it-" + uuidForm + `@\d+`,
		nobody: "waits", nobodyClass: "unavailable",
		open: func(t *testing.T) destination {
			topic := topics.NATS(t, nil)
			p := topics.NATSPublisher(t, natsbridge.Config{URL: topics.NATSURL(t)})
			return destination{topic, p, natsMessages(t, topic), nil}
		},
	}, {
		name: "Redis streams", order: "in a stream", headers: "as they are", copies: "stored again",
		largest: "512 MiB", largestBytes: 512 << 20,
		receipt: "`stream@id`", form: "it-" + uuidForm + `@\d+-\d+`,
		nobody: "taken", nobodyClass: "",
		open: func(t *testing.T) destination {
			topic := topics.Redis(t)
			p := topics.RedisPublisher(t, topics.RedisURL(t), redisbridge.Config{})
			return destination{topic, p, redisMessages(t, topic), dropRedisStream}
		},
	}, {
		name: "Webhooks", order: "of requests", headers: "in `Message-Metadata`, as they are",
		copies: "sent again with the same `Idempotency-Key`", largest: "1 MiB", largestBytes: 1 << 20,
		receipt: "status and request id", form: `202 req-\d+`,
		nobody: "waits", nobodyClass: "unavailable",
		open: webhook,
	},
}

// webhook is a server in this process.
func webhook(t *testing.T) destination {
	t.Helper()
	messages := make(chan *message.Message, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		md, merr := httpbridge.Metadata(r.Header)
		if err != nil || merr != nil {
			t.Errorf("request: %v, %v", err, merr)
		}
		msg := message.NewMessage(r.Header.Get("Message-Uuid"), body)
		msg.Metadata = md
		messages <- msg
		w.Header().Set("X-Request-Id", fmt.Sprint("req-", len(messages)))
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(server.Close)
	p, err := httpbridge.NewPublisher(httpbridge.Config{
		Endpoints: map[string]httpbridge.Endpoint{"orders": {URL: server.URL}}, AllowHTTP: true,
		AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return destination{"orders", p, messages, nil}
}

func dropKafkaTopic(t *testing.T, topic string) {
	t.Helper()
	admin, err := sarama.NewClusterAdmin([]string{topics.KafkaAddress(t)}, kafkabridge.SaramaConfig(0))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if err := admin.DeleteTopic(topic); err != nil {
		t.Error(err)
	}
}

func dropRedisStream(t *testing.T, topic string) {
	t.Helper()
	if err := topics.RedisAt(t, topics.RedisURL(t)).Del(t.Context(), topic).Err(); err != nil {
		t.Error(err)
	}
}

// Each cell of the table is true.
func TestFeaturesOfBrokers(t *testing.T) {
	t.Parallel()
	for _, b := range brokers {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			d := b.open(t)
			t.Run("headers", func(t *testing.T) { b.checkHeaders(t, d) })
			t.Run("copies", func(t *testing.T) { b.checkCopies(t, d) })
			t.Run("order", func(t *testing.T) { checkOrder(t, d) })
			t.Run("largest", func(t *testing.T) { b.checkLargest(t, d) })
			t.Run("nobody", func(t *testing.T) {
				topic := "it-" + core.NewEventID()
				publishOnce(t, d.publisher, brokerDelivery(t, topic, "k"), b.nobodyClass)
				if d.drop != nil {
					d.drop(t, topic)
				}
			})
		})
	}
}

// checkHeaders compares what arrives, byte for byte, and the receipt.
func (b features) checkHeaders(t *testing.T, d destination) {
	t.Helper()
	e := brokerDelivery(t, d.topic, "order/ö 1")
	e.AggregateID, e.TenantID = "Größe \"1\" 100%", "a,b;c=d"
	for name, v := range map[string]string{
		"CaSe": "Kept", "under_score": "x", "quotes": `"a" 'b' <c> & \d`, "percent": "%41%",
		"wide":          "\U0001F4E6 \u2028",
		"inner  blanks": "", "empty": "", "long": strings.Repeat("v", 2000), "base64": "AA==", "json": `{"a":[1]}`,
	} {
		if core.CheckHeader(name, v) == nil {
			e.Headers[name] = v
		}
	}
	blanks := e.Event
	blanks.Headers = map[string]string{"blanks": " around "}
	if err := d.publisher.CheckSize(blanks); (err != nil) != b.refusesBlanks {
		t.Errorf("blanks around a value: %v, want refused %v", err, b.refusesBlanks)
	}
	if !b.refusesBlanks {
		e.Headers["blanks"] = " around "
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	receipt, err := d.publisher.PublishWithReceipt(ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile("^(" + b.form + ")$").MatchString(receipt) {
		t.Errorf("receipt %q, want %s", receipt, b.form)
	}
	requireDelivery(t, receive(t, d.messages), e)
}

// checkCopies publishes a message twice, as after a lost answer.
func (b features) checkCopies(t *testing.T, d destination) {
	t.Helper()
	e, last := brokerDelivery(t, d.topic, "k"), brokerDelivery(t, d.topic, "k")
	for _, x := range []core.Delivery{e, e, last} {
		if err := publishWithin(t, d.publisher, x, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	copies := 0
	for {
		msg := receive(t, d.messages)
		if msg.Metadata[core.HeaderEventID] == last.ID {
			break
		}
		requireDelivery(t, msg, e)
		copies++
	}
	if want := map[bool]int{true: 1, false: 2}[b.recognises]; copies != want {
		t.Errorf("%d copies, want %d", copies, want)
	}
}

// checkOrder sends events of three keys through a relay.
func checkOrder(t *testing.T, d destination) {
	t.Helper()
	const keys, each = 3, 15
	o := newOutage(t, core.Config{Publisher: d.publisher})
	for n := range each {
		for key := range keys {
			o.publish(core.Event{
				Type: "counted", Topic: d.topic, Key: fmt.Sprint("key/", key), AggregateVersion: int64(n + 1),
			})
		}
	}
	at := map[string]int64{}
	for range keys * each {
		got := receive(t, d.messages).Metadata
		key := got[core.HeaderPartitionKey]
		if at[key]++; got[core.HeaderAggregateVersion] != fmt.Sprint(at[key]) {
			t.Errorf("key %q: version %s at place %d", key, got[core.HeaderAggregateVersion], at[key])
		}
	}
	if len(at) != keys {
		t.Errorf("events of %d keys", len(at))
	}
}

// checkLargest sends a payload a little smaller than the limit. One more byte is refused when it is
// recorded.
func (b features) checkLargest(t *testing.T, d destination) {
	t.Helper()
	e := brokerDelivery(t, d.topic, "k")
	e.Payload = make([]byte, b.largestBytes+1)
	if err := d.publisher.CheckSize(e.Event); err == nil {
		t.Errorf("%d bytes would be recorded", len(e.Payload))
	}
	e.Payload = e.Payload[:b.largestBytes-64<<10]
	if err := d.publisher.CheckSize(e.Event); err != nil {
		t.Errorf("%d bytes: %v", len(e.Payload), err)
	}
	if e.Payload = e.Payload[:min(len(e.Payload), 16<<20)]; len(e.Payload) == 0 {
		t.Fatal("nothing to send")
	}
	if err := publishWithin(t, d.publisher, e, time.Minute); err != nil {
		t.Fatal(err)
	}
	requireDelivery(t, receive(t, d.messages), e)
}

// The page shows the table.
func TestFeaturesAreShown(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(fixture.Root(t), "docs", "choosing-a-broker.md"))
	if err != nil {
		t.Fatal(err)
	}
	if table := featureTable(); !strings.Contains(string(page), table) {
		t.Errorf("docs/choosing-a-broker.md does not have this table:\n%s", table)
	}
}

func featureTable() string {
	var b strings.Builder
	row := func(name string, cell func(features) string) {
		b.WriteString("| " + name)
		for _, f := range brokers {
			b.WriteString(" | " + cell(f))
		}
		b.WriteString(" |\n")
	}
	row("", func(f features) string { return f.name })
	b.WriteString(strings.Repeat("|---", len(brokers)+1) + "|\n")
	row("order of a key", func(f features) string { return f.order })
	row("headers arrive", func(f features) string { return f.headers })
	row("a copy, after a lost answer, is", func(f features) string { return f.copies })
	row("largest payload by default", func(f features) string { return f.largest })
	row("receipt", func(f features) string { return f.receipt })
	row("an event of a topic that nobody has made", func(f features) string { return f.nobody })
	return strings.ReplaceAll(b.String(), "|  |", "| |")
}
