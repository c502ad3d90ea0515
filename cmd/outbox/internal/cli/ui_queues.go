package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/outboxui"
)

// poisonQueues are the queues of --poison-queue: the addresses by consumer.
func (a *app) poisonQueues(byConsumer map[string]string) (all []outboxui.PoisonQueue, err error) {
	if len(byConsumer) == 0 {
		return nil, nil
	}
	logger, err := a.logger("error")
	if err != nil {
		return nil, err
	}
	s := brokerSettings{workers: 1, timeout: releaseTimeout, logger: logger, existing: true}
	for _, consumer := range slices.Sorted(maps.Keys(byConsumer)) {
		q, err := readQueueAddress(byConsumer[consumer])
		if err != nil {
			return nil, usage("--poison-queue %s: %w", consumer, err)
		}
		all = append(all, outboxui.PoisonQueue{
			Consumer: consumer, Name: q.name,
			Open: func(ctx context.Context) (inbox.Queue, inbox.Sender, func(), error) {
				return q.openBoth(ctx, consumer+".release", s)
			},
		})
	}
	return all, nil
}

// openBoth opens the queue and a sender to its broker.
func (q queueAddress) openBoth(ctx context.Context, group string, s brokerSettings) (inbox.Queue, inbox.Sender,
	func(), error,
) {
	to, err := openBroker(ctx, q.broker, s)
	if err != nil {
		return nil, nil, nil, err
	}
	end := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = to.Close(ctx)
	}
	sender, ok := to.publisher.(inbox.Sender)
	if !ok {
		end()
		return nil, nil, nil, fmt.Errorf("a %T does not send messages", to.publisher)
	}
	from, err := q.open(ctx, group, s)
	if err != nil {
		end()
		return nil, nil, nil, err
	}
	return from, sender, func() { from.close(); end() }, nil
}
