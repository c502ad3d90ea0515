//go:build emulators

package brokers_test

import (
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-aws/sns"
	"github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssns "github.com/aws/aws-sdk-go-v2/service/sns"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

type awsKind int

const (
	awsFIFO awsKind = iota
	awsTopics
	awsStandard
)

const (
	awsRegion = "eu-central-1"
	awsOfMoto = "123456789012" // its account
)

// emulatedAWS is an emulator of AWS as a process of the test: FIFO queues, FIFO topics with a
// subscription that gets raw messages, or standard queues.
type emulatedAWS struct {
	address string
	kind    awsKind
	queues  *awssqs.Client
	topics  *awssns.Client

	mu  sync.Mutex
	got map[string][]heldMessage
}

// TestAWSEmulators runs the suite of TestClouds against emulators that other people have written.
func TestAWSEmulators(t *testing.T) {
	t.Parallel()
	libraries := os.Getenv("OUTBOX_TEST_AWS")
	fixture.Must(t, libraries != "", "OUTBOX_TEST_AWS is empty: run `make test-emulators`")
	elasticMQ := func(port string) []string {
		return []string{
			"java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(libraries, "java", "*"),
			filepath.Join(fixture.Root(t), "scripts", "aws", "ElasticMQ.java"), port,
		}
	}
	moto := func(port string) []string {
		return []string{filepath.Join(libraries, "venv", "bin", "moto_server"), "-H", "127.0.0.1", "-p", port}
	}
	queues, others := startAWS(t, elasticMQ), startAWS(t, moto)
	standard := clouds()[0]
	standard.unordered, standard.recognises = true, false
	for name, c := range map[string]struct {
		address string
		kind    awsKind
		does    features
	}{
		"ElasticMQ, SQS FIFO": {queues, awsFIFO, clouds()[0]}, "ElasticMQ, SQS": {queues, awsStandard, standard},
		"moto, SQS FIFO": {others, awsFIFO, clouds()[0]}, "moto, SNS FIFO": {others, awsTopics, clouds()[1]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newEmulatedAWS(c.address, c.kind)
			suite.TestPublisher(t, c.does.harness(func(*testing.T) broker { return b }))
		})
	}
	t.Run("ElasticMQ, attributes", func(t *testing.T) { // moto does not count them
		t.Parallel()
		newEmulatedAWS(queues, awsFIFO).requireTenAttributes(t)
	})
}

// requireTenAttributes sends the usual form of an ordinary event, which has eleven attributes, and
// the compact form.
func (b *emulatedAWS) requireTenAttributes(t *testing.T) {
	t.Helper()
	topic := b.topic(t)
	url, err := b.queues.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: aws.String(b.queue(topic))})
	fixture.NoError(t, err)
	d := brokerDelivery(t, topic, "k")
	d.Headers, d.TenantID, d.SchemaVersion, d.AggregateVersion, d.ReplayOf = nil, "", 0, 0, core.RowID{}
	compact, err := watermillbridge.NewCompactMessage(t.Context(), d)
	fixture.NoError(t, err)
	whole := watermillbridge.NewMessage(t.Context(), d)
	for refused, msg := range map[bool]*message.Message{true: whole, false: compact} {
		attributes := map[string]types.MessageAttributeValue{}
		msg.Metadata[sqs.UUIDAttribute] = msg.UUID
		for name, v := range msg.Metadata {
			attributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(v)}
		}
		_, err := b.queues.SendMessage(t.Context(), &awssqs.SendMessageInput{
			QueueUrl: url.QueueUrl, MessageBody: aws.String(string(msg.Payload)), MessageAttributes: attributes,
			MessageGroupId: aws.String("k"), MessageDeduplicationId: aws.String(msg.UUID),
		})
		said := err != nil && strings.Contains(err.Error(), "attributes")
		fixture.Check(t, said == refused && (err != nil) == refused, "%d attributes: %v", len(attributes), err)
	}
}

// startAWS starts an emulator that ends with the test, and returns its address.
func startAWS(t *testing.T, command func(port string) []string) string {
	t.Helper()
	port, _ := fixture.ReservePorts(t)
	args := command(strconv.Itoa(port))
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	fixture.NoError(t, err)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	fixture.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("the end of the log of %s:\n%s", args[0], b[max(0, len(b)-2000):])
		}
	})
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	fixture.Await(t, args[0]+" takes connections", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return address
}

func newEmulatedAWS(address string, kind awsKind) *emulatedAWS {
	b := &emulatedAWS{address: address, kind: kind, got: map[string][]heldMessage{}}
	b.queues, b.topics = awssqs.NewFromConfig(b.config(address)), awssns.NewFromConfig(b.config(address))
	return b
}

func (b *emulatedAWS) config(address string) aws.Config {
	return aws.Config{
		Region: awsRegion, Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		BaseEndpoint: aws.String("http://" + address),
	}
}

func (b *emulatedAWS) topic(t *testing.T) string {
	t.Helper()
	topic := "it-" + core.NewEventID()
	in := &awssqs.CreateQueueInput{QueueName: aws.String(b.queue(topic))}
	if b.kind != awsStandard {
		in.Attributes = map[string]string{"FifoQueue": "true"}
	}
	queue, err := b.queues.CreateQueue(t.Context(), in)
	fixture.NoError(t, err)
	if b.kind == awsTopics {
		made, err := b.topics.CreateTopic(t.Context(), &awssns.CreateTopicInput{
			Name: aws.String(fifo(topic)), Attributes: map[string]string{"FifoTopic": "true"},
		})
		fixture.NoError(t, err)
		attributes, err := b.queues.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{
			QueueUrl: queue.QueueUrl, AttributeNames: []types.QueueAttributeName{"QueueArn"},
		})
		fixture.NoError(t, err)
		_, err = b.topics.Subscribe(t.Context(), &awssns.SubscribeInput{
			TopicArn:   made.TopicArn,
			Protocol:   aws.String("sqs"),
			Endpoint:   aws.String(attributes.Attributes["QueueArn"]),
			Attributes: map[string]string{"RawMessageDelivery": "true"},
		})
		fixture.NoError(t, err)
	}
	return topic
}

// queue is the queue in which the messages of a topic arrive.
func (b *emulatedAWS) queue(topic string) string {
	switch b.kind {
	case awsTopics:
		return "behind-" + fifo(topic)
	case awsStandard:
		return topic
	}
	return fifo(topic)
}

func (b *emulatedAWS) at(t *testing.T, address string) publisher {
	t.Helper()
	var p *watermillbridge.Publisher
	var err error
	switch b.kind {
	case awsFIFO:
		p, err = newSQS(b.config(address))
	case awsTopics:
		arns, failure := sns.NewGenerateArnTopicResolver(awsOfMoto, awsRegion)
		fixture.NoError(t, failure)
		p, err = newSNS(b.config(address), arns)
	case awsStandard:
		patient := impatient(b.config(address)) // this queue stores a copy if a slow machine is given up
		patient.HTTPClient = awshttp.NewBuildableClient().WithTimeout(20 * time.Second)
		queues, failure := sqs.NewPublisher(sqs.PublisherConfig{
			AWSConfig: patient, DoNotCreateQueueIfNotExists: true,
		}, watermill.NopLogger{})
		fixture.NoError(t, failure)
		cfg := awsConfig
		cfg.Topic, cfg.Marshal = nil, watermillbridge.NewCompactMessage
		p, err = watermillbridge.NewPublisher(queues, cfg)
	}
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, p)
	return p
}

func (b *emulatedAWS) publisher(t *testing.T, _ time.Duration) publisher {
	t.Helper()
	return b.at(t, b.address)
}

func (b *emulatedAWS) through(t *testing.T, _ time.Duration) (publisher, suite.Link) {
	t.Helper()
	proxy := suite.NewProxy(t, b.address)
	return b.at(t, proxy.Addr()), proxy
}

func (b *emulatedAWS) held(t *testing.T, topic string) []heldMessage {
	t.Helper()
	url, err := b.queues.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: aws.String(b.queue(topic))})
	fixture.NoError(t, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		out, err := b.queues.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{
			QueueUrl: url.QueueUrl, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
		})
		fixture.NoError(t, err)
		if len(out.Messages) == 0 {
			return slices.Clone(b.got[topic])
		}
		for _, m := range out.Messages {
			metadata := message.Metadata{}
			for name, v := range m.MessageAttributes {
				metadata[name] = aws.ToString(v.StringValue)
			}
			msg := message.NewMessage(metadata[sqs.UUIDAttribute], []byte(aws.ToString(m.Body)))
			msg.Metadata = maps.Clone(metadata)
			delete(msg.Metadata, sqs.UUIDAttribute)
			b.got[topic] = append(b.got[topic], heldMessage{Message: msg})
			_, err := b.queues.DeleteMessage(t.Context(), &awssqs.DeleteMessageInput{
				QueueUrl: url.QueueUrl, ReceiptHandle: m.ReceiptHandle,
			})
			fixture.NoError(t, err)
		}
	}
}
