package brokers_test

import (
	"crypto/md5" //nolint:gosec // AWS answers with it
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-aws/sns"
	"github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// awsBroker answers as the documents of SQS and SNS say, with the limits that no emulator enforces
// altogether: FIFO queues, and FIFO topics with a subscription that gets raw messages.
type awsBroker struct {
	server *httptest.Server
	sns    bool

	mu    sync.Mutex
	known map[string]map[string]bool // by queue or topic: the deduplication ids
	got   map[string][]heldMessage
}

func openAWS(sns bool) func(t *testing.T) broker {
	return func(t *testing.T) broker {
		t.Helper()
		b := &awsBroker{sns: sns, known: map[string]map[string]bool{}, got: map[string][]heldMessage{}}
		b.server = httptest.NewServer(b)
		t.Cleanup(b.server.Close)
		return b
	}
}

func fifo(topic string) string { return topic + ".fifo" }

func (b *awsBroker) topic(*testing.T) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	topic := "it-" + core.NewEventID()
	b.known[fifo(topic)] = map[string]bool{}
	return topic
}

func (b *awsBroker) at(t *testing.T, address string) publisher {
	t.Helper()
	cfg := aws.Config{
		Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		BaseEndpoint: aws.String("http://" + address),
	}
	if b.sns {
		arns, err := sns.NewGenerateArnTopicResolver("000000000000", cfg.Region)
		fixture.NoError(t, err)
		p, err := newSNS(cfg, arns)
		fixture.NoError(t, err)
		topics.CloseAtEnd(t, p)
		return p
	}
	p, err := newSQS(cfg)
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, p)
	return p
}

func (b *awsBroker) publisher(t *testing.T, _ time.Duration) publisher {
	t.Helper()
	return b.at(t, b.server.Listener.Addr().String())
}

func (b *awsBroker) through(t *testing.T, _ time.Duration) (publisher, suite.Link) {
	t.Helper()
	proxy := suite.NewProxy(t, b.server.Listener.Addr().String())
	return b.at(t, proxy.Addr()), proxy
}

func (b *awsBroker) held(_ *testing.T, topic string) []heldMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got[fifo(topic)])
}

// awsMessage is a message as either service gets it.
type awsMessage struct {
	to, group, id, body string
	attributes          map[string]string
}

func (b *awsBroker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b.sns {
		b.serveSNS(w, r)
		return
	}
	var in struct {
		QueueName, QueueUrl, MessageBody, MessageGroupId, MessageDeduplicationId string
		MessageAttributes                                                        map[string]struct{ StringValue string }
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	if json.NewDecoder(r.Body).Decode(&in) != nil {
		return // the connection broke
	}
	fail := func(code, text string) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"__type":"com.amazonaws.sqs#%s","message":%q}`, code, text)
	}
	name := in.QueueName
	if name == "" {
		name = in.QueueUrl[strings.LastIndex(in.QueueUrl, "/")+1:]
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.known[name] == nil:
		fail("QueueDoesNotExist", "The specified queue does not exist.")
	case strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetQueueUrl"):
		_, _ = fmt.Fprintf(w, `{"QueueUrl":"http://%s/1/%s"}`, r.Host, name)
	default:
		m := awsMessage{name, in.MessageGroupId, in.MessageDeduplicationId, in.MessageBody, map[string]string{}}
		for name, v := range in.MessageAttributes {
			m.attributes[name] = v.StringValue
		}
		if code, text := m.problem(); code != "" {
			fail(code, text)
			return
		}
		b.keep(m)
		hash := md5.Sum([]byte(m.body)) //nolint:gosec // of AWS
		_, _ = fmt.Fprintf(w, `{"MessageId":"x","MD5OfMessageBody":%q}`, hex.EncodeToString(hash[:]))
	}
}

func (b *awsBroker) serveSNS(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/xml")
	if r.ParseForm() != nil {
		return // the connection broke
	}
	f := r.PostForm
	m := awsMessage{
		f.Get("TargetArn")[strings.LastIndex(f.Get("TargetArn"), ":")+1:], f.Get("MessageGroupId"),
		f.Get("MessageDeduplicationId"), f.Get("Message"),
		map[string]string{},
	}
	for n := 1; f.Has(fmt.Sprintf("MessageAttributes.entry.%d.Name", n)); n++ {
		m.attributes[f.Get(fmt.Sprintf("MessageAttributes.entry.%d.Name", n))] = f.Get(
			fmt.Sprintf("MessageAttributes.entry.%d.Value.StringValue", n))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	code, text := m.problem()
	if b.known[m.to] == nil {
		code, text = "NotFound", "Topic does not exist"
	}
	if code != "" && len(m.attributes) <= 10 {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error>`+
			`</ErrorResponse>`, code, text)
		return
	}
	if code == "" { // a message with more than ten attributes is taken, and dropped before the queue
		b.keep(m)
	}
	_, _ = fmt.Fprint(w, `<PublishResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishResult>`+
		`<MessageId>x</MessageId></PublishResult></PublishResponse>`)
}

func (b *awsBroker) keep(m awsMessage) {
	if b.known[m.to][m.id] {
		return
	}
	b.known[m.to][m.id] = true
	msg := message.NewMessage(m.attributes[sqs.UUIDAttribute], []byte(m.body))
	msg.Metadata = maps.Clone(m.attributes)
	delete(msg.Metadata, sqs.UUIDAttribute)
	b.got[m.to] = append(b.got[m.to], heldMessage{Message: msg})
}

var (
	awsGroupID   = regexp.MustCompile(`^[!-~]{1,128}$`)
	awsAttribute = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	awsContent   = regexp.MustCompile("^[\t\n\r -\U0000d7ff\ue000-\ufffd\U00010000-\U0010ffff]+$")
)

func (m awsMessage) problem() (code, text string) {
	size := len(m.body)
	for name, v := range m.attributes {
		size += len(name) + len(v) + len("String")
		if len(name) > 256 || !awsAttribute.MatchString(name) || !awsContent.MatchString(v) {
			return "InvalidParameterValue", fmt.Sprintf("attribute %s", name)
		}
	}
	switch {
	case len(m.attributes) > 10:
		return "InvalidParameterValue", fmt.Sprintf(
			"Number of message attributes [%d] exceeds the allowed maximum [10].",
			len(m.attributes),
		)
	case size > 256<<10:
		return "InvalidParameterValue", "Message must be shorter than 262144 bytes."
	case !awsGroupID.MatchString(m.group) || !awsGroupID.MatchString(m.id):
		return "InvalidParameterValue", "MessageGroupId or MessageDeduplicationId"
	case !awsContent.MatchString(m.body):
		return "InvalidMessageContents", "Invalid characters"
	}
	return "", ""
}

// AWS refuses the usual form of an ordinary event, which has eleven attributes, and takes the
// compact form.
func TestAWSTakesTheCompactForm(t *testing.T) {
	t.Parallel()
	d := brokerDelivery(t, "orders", "k")
	d.Headers, d.TenantID, d.SchemaVersion, d.AggregateVersion, d.ReplayOf = nil, "", 0, 0, core.RowID{}
	compact, err := watermillbridge.NewCompactMessage(t.Context(), d)
	fixture.NoError(t, err)
	for want, msg := range map[string]*message.Message{
		"InvalidParameterValue": watermillbridge.NewMessage(t.Context(), d), "": compact,
	} {
		m := awsMessage{to: "orders.fifo", group: "k", id: "1", body: string(msg.Payload), attributes: msg.Metadata}
		m.attributes[sqs.UUIDAttribute] = msg.UUID
		code, text := m.problem()
		fixture.Check(t, code == want, "%d attributes: %q %s, want %q", len(m.attributes), code, text, want)
	}
}
