package franzbridge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
)

func TestUnsafeOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]kgo.Opt{
		"RequiredAcks":                   {kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()},
		"DisableIdempotentWrite":         {kgo.DisableIdempotentWrite()},
		"ManualFlushing":                 {kgo.ManualFlushing()},
		"DefaultProduceTopicAlways":      {kgo.DefaultProduceTopic("x"), kgo.DefaultProduceTopicAlways()},
		"StopProducerOnDataLossDetected": {kgo.StopProducerOnDataLossDetected()},
		"RecordPartitioner":              {kgo.RecordPartitioner(kgo.RoundRobinPartitioner())},
		"RecordRetries":                  {kgo.RecordRetries(0)},
		"ProducerLinger":                 {kgo.ProducerLinger(3 * time.Second)},
		"ProduceRequestTimeout":          {kgo.ProduceRequestTimeout(10 * time.Second)},
		"DialTimeout":                    {kgo.DialTimeout(10 * time.Second)},
		"MaxBufferedBytes":               {kgo.MaxBufferedBytes(1000)},
	} {
		_, err := franzbridge.NewPublisher(franzbridge.Config{Brokers: []string{"localhost:1"}, Options: opts})
		if !errors.Is(err, franzbridge.ErrUnsafeConfig) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: err = %v", name, err)
		}
	}
	// The client itself refuses a transactional id beside the cancellation of messages.
	_, err := franzbridge.NewPublisher(franzbridge.Config{
		Brokers: []string{"localhost:1"}, Options: []kgo.Opt{kgo.TransactionalID("x")},
	})
	if err == nil {
		t.Error("TransactionalID is taken")
	}
}

func TestSafeOptionsAreTaken(t *testing.T) {
	t.Parallel()
	p, err := franzbridge.NewPublisher(franzbridge.Config{
		Brokers: []string{"localhost:1"}, AllowPartitioner: true,
		Options: []kgo.Opt{
			kgo.ProducerLinger(2 * time.Millisecond), kgo.ProducerBatchCompression(kgo.ZstdCompression()),
			kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.MaxBufferedBytes(64 << 20),
			kgo.ProducerBatchMaxBytes(2 << 20),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// The shortest PublishTimeout leaves the client no shorter limit than it takes.
func TestShortestPublishTimeout(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{250 * time.Millisecond, 400 * time.Millisecond} {
		cfg := franzbridge.Config{Brokers: []string{"localhost:1"}, PublishTimeout: timeout}
		p, err := franzbridge.NewPublisher(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

func TestBadConfigIsRefused(t *testing.T) {
	t.Parallel()
	brokers := []string{"localhost:1"}
	for want, cfg := range map[string]franzbridge.Config{
		"Brokers is empty":        {},
		"Brokers[1] is empty":     {Brokers: []string{"a:1", ""}},
		"-1ns is negative":        {Brokers: brokers, PublishTimeout: -1},
		"leaves a broker no time": {Brokers: brokers, PublishTimeout: 249 * time.Millisecond},
		"Binding is nats": {
			Brokers: brokers, CloudEvents: &cloudevents.Mapper{Source: "/o", Binding: cloudevents.NATS},
		},
		"Source is empty": {Brokers: brokers, CloudEvents: &cloudevents.Mapper{}},
	} {
		if _, err := franzbridge.NewPublisher(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want %q", err, want)
		}
	}
}
