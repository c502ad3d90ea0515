package brokers_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// kafkaBroker is Apache Kafka: one server, or a cluster. Every topic is on all servers of the
// cluster.
type kafkaBroker struct {
	addresses []string
	franz     bool // the bridge is franzbridge
}

const kafkaPartitions = 3

func (k kafkaBroker) admin(t *testing.T) sarama.ClusterAdmin {
	t.Helper()
	admin, err := sarama.NewClusterAdmin(k.addresses, kafkabridge.SaramaConfig(0))
	fixture.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	return admin
}

func (k kafkaBroker) topic(t *testing.T) string { t.Helper(); return k.topicWith(t, nil) }

func (k kafkaBroker) topicWith(t *testing.T, config map[string]*string) string {
	t.Helper()
	name, admin := topics.KafkaName(), k.admin(t)
	detail := &sarama.TopicDetail{
		NumPartitions: kafkaPartitions, ReplicationFactor: int16(len(k.addresses)), ConfigEntries: map[string]*string{},
	}
	maps.Copy(detail.ConfigEntries, config)
	if two := "2"; len(k.addresses) > 1 { // an acknowledgement means that two servers have the message
		detail.ConfigEntries["min.insync.replicas"] = &two
	}
	fixture.NoError(t, admin.CreateTopic(name, detail, false))
	t.Cleanup(func() { _ = admin.DeleteTopic(name) }) // fails after the cluster has been stopped
	k.awaitLeaders(t, name)
	return name
}

func (k kafkaBroker) awaitLeaders(t *testing.T, name string) {
	t.Helper()
	// A server tells of a topic that was made again while it still appends to the log of the old one.
	fixture.Await(t, "every partition has a leader, and nothing in it", func() bool {
		client, err := sarama.NewClient(k.addresses, kafkabridge.SaramaConfig(0))
		if err != nil {
			return false
		}
		defer client.Close()
		for n := range int32(kafkaPartitions) {
			if end, err := client.GetOffset(name, n, sarama.OffsetNewest); err != nil || end > 0 {
				return false
			}
		}
		return true
	})
}

func (k kafkaBroker) again(t *testing.T, topic string) {
	t.Helper()
	admin := k.admin(t)
	fixture.NoError(t, admin.DeleteTopic(topic))
	detail := &sarama.TopicDetail{NumPartitions: kafkaPartitions, ReplicationFactor: int16(len(k.addresses))}
	fixture.Await(t, "the topic is gone", func() bool { // its name is in use for a while
		return admin.CreateTopic(topic, detail, false) == nil
	})
	k.awaitLeaders(t, topic)
}

func (k kafkaBroker) publisher(t *testing.T, timeout time.Duration) publisher {
	t.Helper()
	return k.dialed(t, timeout, nil)
}

func (k kafkaBroker) through(t *testing.T, timeout time.Duration) (publisher, suite.Link) {
	t.Helper()
	proxies := kafkaProxies{}
	for _, address := range k.addresses {
		proxies[address] = suite.NewProxy(t, address)
	}
	return k.dialed(t, timeout, proxies), proxies
}

func (k kafkaBroker) dialed(t *testing.T, timeout time.Duration, proxies kafkaProxies) publisher {
	t.Helper()
	if k.franz {
		cfg := franzbridge.Config{Brokers: k.addresses, PublishTimeout: timeout}
		if proxies != nil {
			cfg.Options = append(cfg.Options,
				kgo.Dialer(func(_ context.Context, network, address string) (net.Conn, error) {
					return proxies.Dial(network, address)
				}))
		}
		p, err := franzbridge.NewPublisher(cfg)
		fixture.NoError(t, err)
		topics.CloseAtEnd(t, p)
		return p
	}
	s := kafkabridge.SaramaConfig(timeout)
	if proxies != nil {
		s.Net.Proxy.Enable, s.Net.Proxy.Dialer = true, proxies
	}
	p, err := kafkabridge.NewPublisher(kafkabridge.Config{Brokers: k.addresses, Sarama: s, PublishTimeout: timeout})
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, p)
	return p
}

// kafkaProxies are proxies of servers, by their addresses.
type kafkaProxies map[string]*suite.Proxy

// Dial implements proxy.Dialer. Clients dial the addresses that the servers tell them.
func (p kafkaProxies) Dial(network, address string) (net.Conn, error) {
	for of, proxy := range p {
		if of == address || len(p) == 1 { // a single server may advertise another address
			return proxy.Dial(network, address)
		}
	}
	return nil, fmt.Errorf("no server has the address %s", address)
}

func (p kafkaProxies) each(do func(*suite.Proxy)) {
	for _, proxy := range p {
		do(proxy)
	}
}

// Hold implements suite.Link.
func (p kafkaProxies) Hold() { p.each((*suite.Proxy).Hold) }

// Release implements suite.Link.
func (p kafkaProxies) Release() { p.each((*suite.Proxy).Release) }

// Delay implements suite.Link.
func (p kafkaProxies) Delay(d time.Duration) { p.each(func(one *suite.Proxy) { one.Delay(d) }) }

// Cut implements suite.Link.
func (p kafkaProxies) Cut() { p.each((*suite.Proxy).Cut) }

func (k kafkaBroker) behind(t *testing.T, other string) publisher {
	t.Helper()
	k.addresses = append([]string{other}, k.addresses...)
	return k.publisher(t, 0)
}

// refusal is a message that is larger than its topic takes.
func (k kafkaBroker) refusal(t *testing.T) suite.Refusal {
	t.Helper()
	const limit = 2000
	text := strconv.Itoa(limit)
	topic := k.topicWith(t, map[string]*string{"max.message.bytes": &text})
	return suite.Refusal{Publisher: k.publisher(t, 0), Topic: topic, Payload: strings.Repeat("x", 2*limit)}
}

func (k kafkaBroker) held(t *testing.T, topic string) (all []heldMessage) {
	t.Helper()
	ends, err := sarama.NewClient(k.addresses, kafkabridge.SaramaConfig(0))
	fixture.NoError(t, err)
	defer ends.Close()
	left, from := int64(0), map[int32]kgo.Offset{}
	for p := range int32(kafkaPartitions) {
		end, err := ends.GetOffset(topic, p, sarama.OffsetNewest)
		fixture.NoError(t, err)
		left += end
		from[p] = kgo.NewOffset().AtStart()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.addresses...), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	fixture.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var records []*kgo.Record
	for int64(len(records)) < left {
		fetched := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d messages of %d: %v", len(records), left, fetched.Err())
		}
		records = append(records, fetched.Records()...)
	}
	slices.SortFunc(records, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	for _, r := range records {
		m := &sarama.ConsumerMessage{
			Key: r.Key, Value: r.Value, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
		}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, &sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		msg, err := kafka.DefaultMarshaler{}.Unmarshal(m)
		fixture.NoError(t, err)
		all = append(all, heldMessage{msg, place(topic, r.Partition, r.Offset)})
	}
	return all
}

// kafkaServers are three servers. Each Pause or Kill hits the next one.
type kafkaServers struct {
	servers []*fixture.PrivateServer
	next    int
}

func startKafka(t *testing.T) (broker, suite.Server) {
	t.Helper()
	s, k := &kafkaServers{servers: fixture.StartPrivateSet(t, "kafka1", "kafka2", "kafka3")}, kafkaBroker{}
	for _, one := range s.servers {
		k.addresses = append(k.addresses, one.Address)
	}
	return k, s
}

func (s *kafkaServers) Pause(t *testing.T)  { t.Helper(); s.servers[s.next].Pause(t) }
func (s *kafkaServers) Resume(t *testing.T) { t.Helper(); s.servers[s.next].Resume(t); s.next++ }
func (s *kafkaServers) Kill(t *testing.T)   { t.Helper(); s.servers[s.next].Kill(t) }
func (s *kafkaServers) Up(t *testing.T)     { t.Helper(); s.servers[s.next].Up(t); s.next++ }
