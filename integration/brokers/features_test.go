package brokers_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
)

// features says what a broker and its bridge can do. Each text is a cell of the table in
// docs/choosing-a-broker.md. The other fields say the same for package suite, which checks it with
// the broker, and also fails if a broker can do more.
type features struct {
	name   string
	like   string                // the broker whose column shows this one too; empty: it has its own
	beside func(k broker) broker // returns this broker on the servers of the broker like

	open  func(t *testing.T) broker                 // on a server that tests share, or in this process
	start func(t *testing.T) (broker, suite.Server) // on servers of its own; nil: it has no servers, or those of like
	heavy bool                                      // stopping and starting the servers takes long

	refuses   []string // see suite.PublisherHarness
	adds      []string // names of headers that the broker adds
	unordered bool     // the broker does not keep the order of a key

	copies     string
	recognises bool // a copy of a message is not stored

	largest      string
	largestBytes int // a larger payload is refused, one of 64 KiB less is taken; 0: no limit

	receipt string
	form    string // the form of a receipt, as a regular expression

	nobody string
	taken  bool                                       // an event of a topic that nobody has made is published
	class  core.Class                                 // if not taken: the class of the error
	drop   func(t *testing.T, k broker, topic string) // deletes the topic that the event has made

	refused string
	dies    bool // a refused event becomes dead while others are taken
	waits   bool // all events of a topic are refused, and wait until a person helps

	oneByOne bool // events of one topic wait for the acknowledgements of each other

	away     string
	survives bool // one of its servers may be lost while events go on
}

// column returns the brokers that the column of b shows, b first.
func (b features) column() []features {
	all := []features{b}
	for _, other := range allBrokers() {
		if other.like == b.name {
			all = append(all, other)
		}
	}
	return all
}

// on returns b on the servers of k, which is the first broker of b's column.
func (b features) on(k broker) broker {
	if b.beside == nil {
		return k
	}
	return b.beside(k)
}

const uuidForm = `[0-9a-f-]{36}`

// clouds are services that only their documents and their own emulators stand for here. They have
// pages with the example that is tested, and no column in the table.
func clouds() []features {
	refused := []string{
		"an empty value", "a name of signs", "64 headers", "an empty payload", "a payload that is not UTF-8",
		"a payload of control characters",
	}
	sqs := features{
		name: "AWS SQS FIFO", open: openAWS(false), refuses: refused, recognises: true, largestBytes: 200 << 10,
		class: core.ClassUnroutable,
	}
	sns := sqs
	sns.name, sns.open = "AWS SNS FIFO", openAWS(true)
	return []features{sqs, sns, {
		name: "Google Pub/Sub", open: openGoogle,
		refuses: []string{"a value of 2,000 bytes", "a name of Google's"}, adds: []string{"publishTime"},
		largestBytes: 9 << 20, form: `m\d+`, class: core.ClassUnroutable,
	}}
}

func allBrokers() []features {
	kafka := features{
		name: "Kafka", copies: "stored again",
		largest: "1 MiB with headers", largestBytes: 1 << 20,
		receipt: "`topic/partition@offset`", form: "it-" + uuidForm + `/[0-2]@\d+`,
		nobody: "taken by kafkabridge, as Kafka makes topics by default; else it waits", taken: true,
		drop:    dropKafkaTopic,
		refused: "dead, if it is larger than the topic takes", dies: true,
		away: "go on with two of three servers", survives: true, heavy: true,
		open: onShared(topics.KafkaAddress, func(address string) broker {
			return kafkaBroker{addresses: []string{address}}
		}),
		start: startKafka,
	}
	franz := kafka
	franz.name, franz.like, franz.start = "franz-go", kafka.name, nil
	franz.taken, franz.class = false, core.ClassUnavailable
	franz.beside = func(k broker) broker { return kafkaBroker{k.(kafkaBroker).addresses, true} }
	franz.open = func(t *testing.T) broker { t.Helper(); return franz.beside(kafka.open(t)) }

	classic := func(uri string) broker { return &rabbitBroker{uri: uri} }
	rabbit := features{
		name: "RabbitMQ", copies: "stored again",
		largest: "16 MiB", largestBytes: 16 << 20, receipt: "none",
		nobody: "waits; dead once the topic has taken events", class: core.ClassUnroutable,
		refused: "waits, if the queue is full", waits: true, away: "wait", heavy: true,
		open: onShared(topics.RabbitURI, classic), start: onPrivate("rabbitmq", classic),
	}
	quorum := rabbit
	quorum.name, quorum.like, quorum.start = "RabbitMQ quorum", rabbit.name, nil
	quorum.adds = []string{"x-delivery-count"}
	quorum.beside = func(k broker) broker { return &rabbitBroker{uri: k.(*rabbitBroker).uri, quorum: true} }
	quorum.open = func(t *testing.T) broker { t.Helper(); return quorum.beside(rabbit.open(t)) }

	nats := func(url string) broker { return natsBroker{url} }
	redis := func(url string) broker { return redisBroker{url} }

	return []features{kafka, franz, rabbit, quorum, {
		name:    "NATS JetStream",
		refuses: []string{"blanks around a value"}, copies: "recognised for 2 minutes", recognises: true,
		largest: "1 MiB with headers", largestBytes: 1 << 20,
		receipt: "`stream@sequence`", form: "it-" + uuidForm + `@\d+`,
		nobody: "waits", class: core.ClassUnavailable,
		refused: "dead, if it is larger than the stream takes", dies: true, away: "wait", heavy: true,
		open: onShared(topics.NATSURL, nats), start: onPrivate("nats", nats),
	}, {
		name:    "Redis streams",
		copies:  "stored again",
		largest: "512 MiB", largestBytes: 512 << 20,
		receipt: "`stream@id`", form: "it-" + uuidForm + `@\d+-\d+`,
		nobody: "taken", taken: true, drop: dropRedisStream,
		refused: "waits, if the key is no stream", waits: true, away: "wait",
		open: onShared(topics.RedisURL, redis), start: onPrivate("redis", redis),
	}, {
		name:   "Webhooks",
		copies: "sent again with the same `Idempotency-Key`", largest: "1 MiB", largestBytes: 1 << 20,
		receipt: "status and request id", form: `202 req-\d+`,
		nobody: "waits", class: core.ClassUnavailable,
		refused: "dead after most answers of 4xx", dies: true, away: "wait",
		open: openWebhook, start: startWebhook,
	}, {
		name: "watermill-sql", copies: "stored again",
		largest: "the bridge knows no limit", receipt: "none",
		nobody: "taken, with `AutoInitializeSchema`", taken: true,
		refused: "dead after its attempts, if it is no JSON and the column is", dies: true,
		away: "wait", heavy: true,
		open: openSQL, start: startSQL,
	}, {
		name:    "Go channels",
		copies:  "delivered again",
		largest: "no limit", receipt: "none",
		nobody: "taken and lost", taken: true,
		refused: "no event is refused", oneByOne: true,
		away: "are lost with the process",
		open: openChannel,
	}}
}

func dropKafkaTopic(t *testing.T, k broker, topic string) {
	t.Helper()
	if err := k.(kafkaBroker).admin(t).DeleteTopic(topic); err != nil {
		t.Error(err)
	}
}

func dropRedisStream(t *testing.T, k broker, topic string) {
	t.Helper()
	if err := topics.RedisAt(t, k.(redisBroker).url).Del(context.Background(), topic).Err(); err != nil {
		t.Error(err)
	}
}

// The page shows the table.
func TestFeaturesAreShown(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(fixture.Root(t), "docs", "choosing-a-broker.md"))
	fixture.NoError(t, err)
	if table := featureTable(); !strings.Contains(string(page), table) {
		t.Errorf("docs/choosing-a-broker.md does not have this table:\n%s", table)
	}
}

func featureTable() string {
	shown := slices.DeleteFunc(allBrokers(), func(f features) bool { return f.like != "" })
	var b strings.Builder
	row := func(name string, cell func(features) string) {
		b.WriteString("| " + name)
		for _, f := range shown {
			b.WriteString(" | " + cell(f))
		}
		b.WriteString(" |\n")
	}
	row("", func(f features) string { return f.name })
	b.WriteString(strings.Repeat("|---", len(shown)+1) + "|\n")
	row("a copy, after a lost answer, is", func(f features) string { return f.copies })
	row("largest payload by default", func(f features) string { return f.largest })
	row("receipt", func(f features) string { return f.receipt })
	row("an event of a topic that nobody has made", func(f features) string { return f.nobody })
	row("an event that it refuses", func(f features) string { return f.refused })
	row("events, while a server is away,", func(f features) string { return f.away })
	return strings.ReplaceAll(b.String(), "|  |", "| |")
}
