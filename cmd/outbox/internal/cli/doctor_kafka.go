package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaTimeout is how long Kafka may take for its answers.
const kafkaTimeout = 10 * time.Second

// broker asks the broker of --to for settings that lose events.
func (x *examination) broker(ctx context.Context) error {
	switch scheme, _, _ := strings.Cut(x.to, "://"); scheme {
	case "kafka":
		return x.kafka(ctx)
	case "amqp", "amqps":
		return x.rabbitMQ(ctx)
	case "nats", "tls", "redis", "rediss":
		x.fine("not checked: doctor looks at Kafka and RabbitMQ alone")
		return nil
	}
	return nil
}

func (x *examination) kafka(ctx context.Context) error {
	u, err := readAddress(x.to)
	if err != nil {
		return usage("--to: %w", err)
	}
	options, err := kafkaOptions(u)
	if err != nil {
		return usage("--to: %w", err)
	}
	topics, err := x.recentTopics(ctx)
	if err != nil {
		return err
	}
	client, err := kadm.NewOptClient(append(options, kgo.SeedBrokers(strings.Split(u.Host, ",")...))...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	there, err := client.ListTopics(ctx, topics...) // by name: Kafka leaves hidden ones out of a list
	if err != nil {
		return err
	}
	for _, topic := range topics {
		if err := there[topic].Err; errors.Is(err, kerr.TopicAuthorizationFailed) {
			return err
		}
		if !there.Has(topic) {
			x.warn(fmt.Sprintf("Kafka has no topic %q", short(topic)),
				"its events wait, or Kafka makes the topic with its defaults when the first one is published",
				"create the topic, with several replicas")
			continue
		}
		results, err := client.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return err
		}
		values := map[string]string{}
		for _, r := range results {
			if r.Err != nil {
				return r.Err
			}
			for _, c := range r.Configs {
				values[c.Key] = c.MaybeValue()
			}
		}
		x.all = append(x.all, judgeTopic(short(topic), there[topic].Partitions.NumReplicas(), values)...)
	}
	x.otherwise(fmt.Sprintf("%d topics keep what they have accepted", len(topics)))
	return nil
}

// judgeTopic reports settings of a topic of Kafka that lose events which it has accepted.
func judgeTopic(topic string, replicas int, config map[string]string) []finding {
	r := report{check: "broker"}
	warn := func(found, cause, fix string) { r.warn("topic "+topic+" "+found, cause, fix) }
	inSync, _ := strconv.Atoi(config["min.insync.replicas"])
	switch {
	case replicas == 1:
		warn("has one replica", "the loss of its broker loses events that were published",
			"give the topic three replicas, and min.insync.replicas=2")
	case inSync <= 1:
		warn("has min.insync.replicas="+strconv.Itoa(inSync)+" with "+strconv.Itoa(replicas)+" replicas",
			"an event counts as published when one broker alone has it, and is lost with that broker",
			"set min.insync.replicas=2 for the topic")
	}
	if config["unclean.leader.election.enable"] == "true" {
		warn("may elect a leader that lacks events",
			"an election among replicas that are behind drops events that were published",
			"set unclean.leader.election.enable=false for the topic")
	}
	return r.all
}
