package oteloutbox

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// messaging has the standard metrics for clients of brokers, which the conventions of OpenTelemetry
// name: see MetricsConfig.Messaging.
type messaging struct {
	cfg MetricsConfig

	sent      messagingconv.ClientSentMessages
	sending   messagingconv.ClientOperationDuration
	consumed  messagingconv.ClientConsumedMessages
	processed messagingconv.ProcessDuration

	mu     sync.Mutex
	topics map[string]bool // topics with a series of their own
}

// other is the value of an attribute that has too many values.
const other = "_other"

func newMessaging(cfg MetricsConfig, m metric.Meter) *messaging {
	s := &messaging{cfg: cfg, topics: map[string]bool{}}
	for _, topic := range cfg.Topics {
		s.topics[topic] = true
	}
	var err error
	s.sent, err = messagingconv.NewClientSentMessages(m)
	report(err)
	// as the conventions advise
	buckets := metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5,
		7.5, 10)
	s.sending, err = messagingconv.NewClientOperationDuration(m, buckets)
	report(err)
	s.consumed, err = messagingconv.NewClientConsumedMessages(m)
	report(err)
	s.processed, err = messagingconv.NewProcessDuration(m, buckets)
	report(err)
	return s
}

// destination bounds the number of topics.
func (s *messaging) destination(topic string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.topics[topic] {
		if len(s.topics) >= s.cfg.MaxLabels+len(s.cfg.Topics) {
			return other
		}
		s.topics[topic] = true
	}
	return topic
}

func (s *messaging) system(topic string) messagingconv.SystemAttr {
	if system, ok := s.cfg.Systems[topic]; ok {
		return messagingconv.SystemAttr(system)
	}
	return messagingconv.SystemAttr(s.cfg.System)
}

func (s *messaging) published(info core.PublishInfo) {
	ctx := context.Background()
	attrs := []attribute.KeyValue{semconv.MessagingDestinationName(s.destination(info.Topic))}
	if info.Err != nil {
		attrs = append(attrs, errorType(info.Err))
	}
	s.sent.Add(ctx, 1, "send", s.system(info.Topic), attrs...)
	s.sending.Record(ctx, info.Duration.Seconds(), "send", s.system(info.Topic),
		append(attrs, semconv.MessagingOperationTypeSend)...)
}

// delivered counts a delivery to an inbox. ran: its handler may have run.
func (s *messaging) delivered(info inbox.Info, ran bool) {
	ctx := context.Background()
	attrs := []attribute.KeyValue{semconv.MessagingConsumerGroupName(info.Event.Consumer)}
	if info.Err != nil {
		attrs = append(attrs, errorType(info.Err))
	}
	system := messagingconv.SystemAttr(s.cfg.System)
	s.consumed.Add(ctx, 1, "process", system, attrs...)
	if ran {
		s.processed.Record(ctx, info.Duration.Seconds(), "process", system, attrs...)
	}
}

// inbox returns an observer that also records the standard metrics.
func (s *messaging) inbox(o *inbox.Observer) *inbox.Observer {
	c := *o
	also := func(f *func(inbox.Info), ran bool) {
		told := *f
		*f = func(info inbox.Info) {
			if told != nil {
				told(info)
			}
			s.delivered(info, ran)
		}
	}
	also(&c.Processed, true)
	also(&c.Failed, true)
	also(&c.Dead, true)
	also(&c.Duplicate, false)
	also(&c.Stale, false)
	also(&c.InProgress, false)
	return &c
}
