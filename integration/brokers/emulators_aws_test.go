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

const (
	awsRegion = "eu-central-1"
	awsOfMoto = "123456789012" // its account
)

// emulatedAWS is an emulator of AWS as a process of the test: its queues, or its topics with a
// subscription that gets raw messages.
type emulatedAWS struct {
	address    string
	sns, fifos bool
	queues     *awssqs.Client
	topics     *awssns.Client

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
	for name, b := range map[string]*emulatedAWS{
		"ElasticMQ, SQS FIFO": {address: queues, fifos: true}, "ElasticMQ, SQS": {address: queues},
		"moto, SQS FIFO": {address: others, fifos: true}, "moto, SNS FIFO": {address: others, sns: true, fifos: true},
		"moto, SNS": {address: others, sns: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			does := clouds()[0] // SNS differs only in how it is opened
			does.unordered, does.recognises = !b.fifos, b.fifos
			b.open()
			suite.TestPublisher(t, does.harness(func(*testing.T) broker { return b }))
		})
	}
	t.Run("ElasticMQ, attributes", func(t *testing.T) { // moto does not count them
		t.Parallel()
		b := &emulatedAWS{address: queues, fifos: true}
		b.open()
		b.requireTenAttributes(t)
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

func (b *emulatedAWS) open() {
	b.got = map[string][]heldMessage{}
	b.queues, b.topics = awssqs.NewFromConfig(b.config(b.address)), awssns.NewFromConfig(b.config(b.address))
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
	ofQueue := &awssqs.CreateQueueInput{QueueName: aws.String(b.queue(topic))}
	ofTopic := &awssns.CreateTopicInput{Name: aws.String(b.name(topic))}
	if b.fifos {
		ofQueue.Attributes = map[string]string{"FifoQueue": "true"}
		ofTopic.Attributes = map[string]string{"FifoTopic": "true"}
	}
	queue, err := b.queues.CreateQueue(t.Context(), ofQueue)
	fixture.NoError(t, err)
	if b.sns {
		made, err := b.topics.CreateTopic(t.Context(), ofTopic)
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

func (b *emulatedAWS) name(topic string) string {
	if b.fifos {
		return fifo(topic)
	}
	return topic
}

// queue is the queue in which the messages of a topic arrive.
func (b *emulatedAWS) queue(topic string) string {
	if b.sns {
		return "behind-" + b.name(topic)
	}
	return b.name(topic)
}

func (b *emulatedAWS) at(t *testing.T, address string) publisher {
	t.Helper()
	arns, err := sns.NewGenerateArnTopicResolver(awsOfMoto, awsRegion)
	fixture.NoError(t, err)
	var p *watermillbridge.Publisher
	switch {
	case b.fifos && b.sns:
		p, err = newSNS(b.config(address), arns)
	case b.fifos:
		p, err = newSQS(b.config(address))
	default:
		p, err = b.standard(address, arns)
	}
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, p)
	return p
}

// standard publishes to standard topics or queues, which know no groups and recognise no copies.
func (b *emulatedAWS) standard(address string, arns sns.TopicResolver) (*watermillbridge.Publisher, error) {
	patient := impatient(b.config(address)) // a copy is stored if a slow machine is given up
	patient.HTTPClient = awshttp.NewBuildableClient().WithTimeout(20 * time.Second)
	cfg := awsConfig
	cfg.Topic, cfg.Marshal = nil, watermillbridge.NewCompactMessage
	var to message.Publisher
	var err error
	if b.sns {
		to, err = sns.NewPublisher(sns.PublisherConfig{
			AWSConfig: patient, DoNotCreateTopicIfNotExists: true, TopicResolver: arns,
		}, watermill.NopLogger{})
	} else {
		to, err = sqs.NewPublisher(sqs.PublisherConfig{
			AWSConfig: patient, DoNotCreateQueueIfNotExists: true,
		}, watermill.NopLogger{})
	}
	if err != nil {
		return nil, err
	}
	return watermillbridge.NewPublisher(to, cfg)
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
