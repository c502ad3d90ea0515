package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
)

// franzBroker is Kafka, whose bridge is franzbridge.
type franzBroker struct{ *kafkaBroker }

func openFranz(ctx context.Context, address, topic string) (broker, error) {
	b, err := openKafka(ctx, address, topic+"_franz")
	if err != nil {
		return nil, err
	}
	return franzBroker{b.(*kafkaBroker)}, nil
}

func (b franzBroker) publisher(int) (brokerPublisher, error) {
	p, err := franzbridge.NewPublisher(franzbridge.Config{Brokers: []string{b.address}})
	if err != nil {
		return nil, err
	}
	return toTopic{p, b.topic}, nil
}

// toTopic publishes all events to one topic.
type toTopic struct {
	*franzbridge.Publisher
	topic string
}

func (t toTopic) Publish(ctx context.Context, d core.Delivery) error {
	d.Topic = t.topic
	return t.Publisher.Publish(ctx, d)
}

func (t toTopic) PublishWithReceipt(ctx context.Context, d core.Delivery) (string, error) {
	d.Topic = t.topic
	return t.Publisher.PublishWithReceipt(ctx, d)
}

func (t toTopic) PublishAsync(ctx context.Context, d core.Delivery, done func(string, error)) {
	d.Topic = t.topic
	t.Publisher.PublishAsync(ctx, d, done)
}

// aloneAsync hands over the events, as many at once as the relay does. It hands over the next event
// of a key when the one before it is acknowledged.
func (d *brokerDrain) aloneAsync(ctx context.Context, p core.AsyncPublisher) (finished int, took time.Duration,
	err error,
) {
	var acked atomic.Int64
	var failed sync.Map
	room := make(chan struct{}, d.workers)
	start := time.Now()
	send := func(delivery core.Delivery, next func()) {
		room <- struct{}{}
		p.PublishAsync(ctx, delivery, func(_ string, err error) {
			<-room
			if err != nil {
				failed.Store(err, true)
			} else {
				acked.Add(1)
			}
			next()
		})
	}
	var all sync.WaitGroup
	all.Add(len(d.deliveries))
	if !d.ordered {
		for _, delivery := range d.deliveries {
			send(delivery, all.Done)
		}
	} else { // the events of a key are drainKeys apart
		due := make(chan int, len(d.deliveries))
		for n := range min(drainKeys, len(d.deliveries)) {
			due <- n
		}
		for range d.deliveries {
			n := <-due
			send(d.deliveries[n], func() {
				if n += drainKeys; n < len(d.deliveries) {
					due <- n
				}
				all.Done()
			})
		}
	}
	all.Wait()
	took = time.Since(start)
	failed.Range(func(e, _ any) bool { err = errors.Join(err, e.(error)); return true })
	return int(acked.Load()), took, err
}
