package natsbridge

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// ErrUnsafeConsumer: a durable consumer that exists on the server loses messages, or was made for
// something else. The error names each setting with the remedy.
var ErrUnsafeConsumer = errors.New("natsbridge: unsafe consumer")

// durable returns the durable consumer of a topic, and makes it if there is none. AckWait and
// MaxAckPending of the configuration win over the server's.
func (c *SubscriberConfig) durable(ctx context.Context, js jetstream.JetStream, topic string) (
	jetstream.Consumer, error,
) {
	stream, err := c.streamOf(ctx, js, topic)
	if err != nil {
		return nil, err
	}
	name := c.durableName(topic)
	fail := func(doing string, err error) error {
		return marked(fmt.Errorf("natsbridge: %s consumer %s of stream %s: %w", doing, name, stream, err))
	}
	found, err := js.Consumer(ctx, stream, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		made, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
			Durable: name, FilterSubject: topic, AckPolicy: jetstream.AckExplicitPolicy, AckWait: c.AckWait,
			MaxAckPending: c.MaxAckPending,
		})
		if errors.Is(err, jetstream.ErrConsumerExists) { // another process made it, with other settings
			return nil, fail("make", fmt.Errorf("processes of one group have different settings: %w", err))
		}
		if err != nil {
			return nil, fail("make", err)
		}
		return made, nil
	}
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		return nil, fmt.Errorf("%w %s of stream %s: it pushes messages: delete it (nats consumer rm %s %s), or choose "+
			"another Group", ErrUnsafeConsumer, name, stream, stream, name)
	}
	if err != nil {
		return nil, fail("ask for", err)
	}
	cfg := found.CachedInfo().Config
	if err := errors.Join(unsafeConsumer(&cfg, topic)...); err != nil {
		return nil, fmt.Errorf("%w %s of stream %s: %w", ErrUnsafeConsumer, name, stream, err)
	}
	if cfg.AckWait == c.AckWait && cfg.MaxAckPending == c.MaxAckPending {
		return found, nil
	}
	cfg.AckWait, cfg.MaxAckPending = c.AckWait, c.MaxAckPending
	changed, err := js.UpdateConsumer(ctx, stream, cfg)
	if err != nil {
		return nil, fail(fmt.Sprintf("set AckWait to %s and MaxAckPending to %d at", c.AckWait, c.MaxAckPending), err)
	}
	return changed, nil
}

func (c *SubscriberConfig) streamOf(ctx context.Context, js jetstream.JetStream, topic string) (string, error) {
	if c.Stream != nil {
		if name := c.Stream(topic); name != "" {
			return name, nil
		}
		return "", fmt.Errorf("%w %q: SubscriberConfig.Stream returned none", ErrNoStream, topic)
	}
	list := js.StreamNames(ctx, jetstream.WithStreamListSubject(topic))
	var names []string
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		return "", asked(topic, err)
	}
	switch len(names) {
	case 0:
		return "", fmt.Errorf("%w %q: create one: %s", ErrNoStream, topic, createCommand(topic))
	case 1:
		return names[0], nil
	}
	return "", fmt.Errorf("natsbridge: topic %q is of the streams %s, and a consumer reads one: subscribe to a topic "+
		"of each, or choose one with SubscriberConfig.Stream", topic, strings.Join(names, ", "))
}

// durableName returns the name of the consumer of a topic. NATS allows no dots in it.
func (c *SubscriberConfig) durableName(topic string) string {
	return c.Group + "_" + strings.NewReplacer(".", "_", "*", "any", ">", "all", "/", "_", `\`, "_").Replace(topic)
}

// unsafeConsumer returns every problem of a consumer that exists.
func unsafeConsumer(c *jetstream.ConsumerConfig, topic string) (problems link.Problems) {
	refuse := problems.Add
	refuse(c.FilterSubject != topic || len(c.FilterSubjects) > 0, "it is of topic %q: choose another Group",
		strings.Join(append(c.FilterSubjects, c.FilterSubject), ","))
	refuse(c.AckPolicy != jetstream.AckExplicitPolicy, "its messages need no acknowledgement of their own: make it "+
		"anew with --ack explicit")
	refuse(c.MaxDeliver > 0, "it gives a message up after %d deliveries (--max-deliver): set -1, and let the inbox "+
		"give up", c.MaxDeliver)
	refuse(c.InactiveThreshold > 0, "the server deletes it after %s without a process (--inactive-threshold): the "+
		"next process would get every message of the stream again", c.InactiveThreshold)
	refuse(len(c.BackOff) > 0, "messages of slow handlers are delivered to other processes too (--backoff), because "+
		"it replaces AckWait: make it anew without --backoff")
	refuse(c.MemoryStorage, "a server that restarts forgets what was handled (--memory), and delivers every message "+
		"of the stream again: make it anew without --memory")
	refuse(c.PriorityPolicy != jetstream.PriorityPolicyNone, "its processes must belong to priority groups, and get "+
		"no messages otherwise: make it anew without them")
	refuse(c.HeadersOnly, "it delivers no payloads: make it anew without --headers-only")
	return problems
}
