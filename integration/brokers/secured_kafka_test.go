package brokers_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
	franzscram "github.com/twmb/franz-go/pkg/sasl/scram"
	"github.com/xdg-go/scram"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// Three brokers of Kafka with TLS and rights. Clients have a password of SCRAM, or a certificate.
func TestSecuredKafka(t *testing.T) {
	if testing.Short() {
		return // `make test-all` runs it, once
	}
	t.Parallel()
	set := fixture.StartPrivateSet(t, "securekafka1", "securekafka2", "securekafka3")
	k := &securedKafka{t: t, c: certificatesOf(t, set[0]), set: set}
	fixture.AwaitIn(t, 2*time.Minute, "the cluster has three brokers", k.open)
	t.Cleanup(func() { _ = k.admin.Close() })
	var flows []*securedFlow
	for name, p := range map[string]core.Publisher{
		"kafkabridge, SCRAM": saramaPublisher(t, kafkabridge.Config{
			Brokers: k.addresses(0), Sarama: k.scram("relay"),
		}),
		"kafkabridge, certificate": saramaPublisher(t, kafkabridge.Config{
			Brokers: k.addresses(mutualTLS), Sarama: k.certificate(),
		}),
		"franzbridge, SCRAM": franzPublisher(t, franzbridge.Config{
			Brokers: k.addresses(0), Options: []kgo.Opt{
				k.dialer(),
				kgo.SASL(franzscram.Auth{User: "relay", Pass: "secret"}.AsSha256Mechanism()),
			},
		}),
		"franzbridge, certificate": franzPublisher(t, franzbridge.Config{
			Brokers: k.addresses(mutualTLS), Options: []kgo.Opt{k.dialer()},
		}),
	} {
		topic := k.topic()
		flows = append(flows, newSecuredFlow(t, name, topic, p,
			func(t *testing.T) []heldMessage { t.Helper(); return k.held(topic) }))
	}
	checkSecured(t, flows, []securedWay{
		{"the leaders move", k.moveLeaders, func() {}, ""},
		{"a broker is restarted", func() { set[0].Run(t, "down") }, func() { set[0].Up(t); k.awaitReplicas() }, ""},
		{"no right", func() { k.allow(sarama.AclPermissionDeny) }, k.allowAgain, "not allowed|(?i)authorization"},
		{
			"an expired certificate of the servers", func() { k.show("expired") }, func() { k.show("server") },
			"certificate has expired",
		},
		{"partitions are added", func() { // after what is on its way, as the page says
			awaitSecured(t, flows, "nothing is on its way")
			k.addPartitions()
		}, func() {}, ""},
	})
	k.checkRefused()
	topic := k.topic()
	for _, to := range []string{
		"kafka://relay:secret@" + strings.Join(k.addresses(0), ",") + "?tls=true&sasl=scram-sha-256&cacertfile=" +
			k.c.file("ca.crt"),
		"kafka://" + strings.Join(k.addresses(mutualTLS), ",") + "?tls=true&" + k.c.parameters(),
	} {
		checkRelay(t, to, topic, func(*testing.T) []heldMessage { return k.held(topic) })
	}
}

// checkRefused publishes with a wrong password, and with an expired certificate.
func (k *securedKafka) checkRefused() {
	k.t.Helper()
	wrong, expired := k.scram("relay"), k.certificate()
	wrong.Net.SASL.Password = "wrong"
	expired.Net.TLS.Config = k.c.always("expired")
	for cause, all := range map[string][]core.Publisher{
		"SASL": {
			saramaPublisher(k.t, kafkabridge.Config{Brokers: k.addresses(0), Sarama: wrong}),
			franzPublisher(k.t, franzbridge.Config{Brokers: k.addresses(0), Options: []kgo.Opt{
				kgo.DialTLSConfig(k.c.config()),
				kgo.SASL(franzscram.Auth{User: "relay", Pass: "wrong"}.AsSha256Mechanism()),
			}}),
		},
		"remote error: tls: ": { // what the broker says of the certificate
			saramaPublisher(k.t, kafkabridge.Config{Brokers: k.addresses(mutualTLS), Sarama: expired}),
			franzPublisher(k.t, franzbridge.Config{
				Brokers: k.addresses(mutualTLS), Options: []kgo.Opt{kgo.DialTLSConfig(k.c.always("expired"))},
			}),
		},
	} {
		for _, p := range all {
			requireTold(k.t, p, cause)
		}
	}
}

func (k *securedKafka) addPartitions() {
	k.t.Helper()
	for _, topic := range k.topics {
		fixture.NoError(k.t, k.admin.CreatePartitions(topic, kafkaPartitions+1, nil, false))
	}
}

// mutualTLS is what a broker's port for clients with certificates is above that of passwords.
const mutualTLS = 6

type securedKafka struct {
	t       *testing.T
	c       *certificates
	network network
	set     []*fixture.PrivateServer
	admin   sarama.ClusterAdmin
	topics  []string
	moves   int
}

func (k *securedKafka) addresses(above int) (all []string) {
	for _, s := range k.set {
		host, port, err := net.SplitHostPort(s.Address)
		fixture.NoError(k.t, err)
		n, err := strconv.Atoi(port)
		fixture.NoError(k.t, err)
		all = append(all, net.JoinHostPort(host, strconv.Itoa(n+above)))
	}
	return all
}

func (k *securedKafka) certificate() *sarama.Config {
	s := kafkabridge.SaramaConfig(0)
	s.Net.TLS.Enable, s.Net.TLS.Config = true, k.c.config()
	s.Net.Proxy.Enable, s.Net.Proxy.Dialer = true, &k.network
	return s
}

// dialer makes franz-go connect with TLS through the network of the test.
func (k *securedKafka) dialer() kgo.Opt {
	return kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := k.network.Dial(network, address)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(raw, k.c.config())
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, err
		}
		return conn, nil
	})
}

// show makes the brokers show another certificate to their clients, which have to connect again.
func (k *securedKafka) show(name string) {
	k.t.Helper()
	file, update := k.c.file(name+".pem"), map[string]sarama.IncrementalAlterConfigsEntry{}
	for _, listener := range []string{"ssl", "sasl_ssl"} {
		update["listener.name."+listener+".ssl.keystore.location"] = sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &file,
		}
	}
	for i := range k.set {
		fixture.NoError(k.t, k.admin.IncrementalAlterConfig(sarama.BrokerResource, strconv.Itoa(i+1), update, false))
	}
	blind := k.c.always("client")
	blind.InsecureSkipVerify = true
	for _, address := range append(k.addresses(0), k.addresses(mutualTLS)...) {
		fixture.Await(k.t, address+" shows "+name, func() bool {
			conn, err := tls.Dial("tcp", address, blind)
			if err != nil {
				return false
			}
			defer conn.Close()
			expired := conn.ConnectionState().PeerCertificates[0].NotAfter.Before(time.Now())
			return expired == (name == "expired")
		})
	}
	k.network.Cut()
}

func (k *securedKafka) scram(user string) *sarama.Config {
	s := k.certificate()
	s.Net.SASL.Enable, s.Net.SASL.Mechanism = true, sarama.SASLTypeSCRAMSHA256
	s.Net.SASL.User, s.Net.SASL.Password = user, "secret"
	if user == "admin" { // it works also while the certificate is expired or the machine is busy
		s.Net.TLS.Config.InsecureSkipVerify, s.Net.Proxy.Enable = true, false
		s.Net.ReadTimeout, s.Net.WriteTimeout = 30*time.Second, 30*time.Second
	}
	s.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{} }
	return s
}

// scramClient connects Sarama with a package for SCRAM.
type scramClient struct{ *scram.ClientConversation }

func (c *scramClient) Begin(user, password, authorization string) error {
	client, err := scram.HashGeneratorFcn(sha256.New).NewClient(user, password, authorization)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

// open connects the admin, and reports whether there are three brokers.
func (k *securedKafka) open() bool {
	admin, err := sarama.NewClusterAdmin(k.addresses(0), k.scram("admin"))
	if err != nil {
		return false
	}
	brokers, _, err := admin.DescribeCluster()
	if err != nil || len(brokers) < len(k.set) {
		_ = admin.Close()
		return false
	}
	k.admin = admin
	k.allowAgain()
	return true
}

// allow gives both users of relays a right, or refuses it.
func (k *securedKafka) allow(permission sarama.AclPermissionType) {
	k.t.Helper()
	for _, user := range []string{"User:relay", "User:CN=relay"} {
		for _, operation := range []sarama.AclOperation{sarama.AclOperationWrite, sarama.AclOperationDescribe} {
			if permission == sarama.AclPermissionDeny && operation != sarama.AclOperationWrite {
				continue
			}
			fixture.NoError(k.t, k.admin.CreateACLs([]*sarama.ResourceAcls{{
				Resource: sarama.Resource{
					ResourceType: sarama.AclResourceTopic, ResourceName: "it-",
					ResourcePatternType: sarama.AclPatternPrefixed,
				},
				Acls: []*sarama.Acl{{Principal: user, Host: "*", Operation: operation, PermissionType: permission}},
			}}))
		}
	}
}

// allowAgain gives the rights that relays need, and no others.
func (k *securedKafka) allowAgain() {
	k.t.Helper()
	name := "it-"
	_, err := k.admin.DeleteACL(sarama.AclFilter{
		ResourceType: sarama.AclResourceTopic, ResourceName: &name,
		ResourcePatternTypeFilter: sarama.AclPatternPrefixed,
		Operation:                 sarama.AclOperationAny, PermissionType: sarama.AclPermissionDeny,
	}, false)
	fixture.NoError(k.t, err)
	k.allow(sarama.AclPermissionAllow)
}

func (k *securedKafka) topic() string {
	k.t.Helper()
	name := "it-" + core.NewEventID()
	fixture.Await(k.t, "a topic is made", func() bool {
		return k.admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: kafkaPartitions, ReplicationFactor: 3},
			false) == nil
	})
	k.topics = append(k.topics, name)
	return name
}

// partitions are those of all topics.
func (k *securedKafka) partitions() (all []*sarama.PartitionMetadata) {
	topics, err := k.admin.DescribeTopics(k.topics)
	if err != nil {
		return []*sarama.PartitionMetadata{{Leader: -1}} // the broker that was asked is away
	}
	for _, topic := range topics {
		all = append(all, topic.Partitions...)
	}
	return all
}

func (k *securedKafka) awaitReplicas() {
	k.t.Helper()
	fixture.AwaitIn(k.t, 2*time.Minute, "every partition is in sync on three brokers", func() bool {
		return !slices.ContainsFunc(k.partitions(), func(p *sarama.PartitionMetadata) bool { return len(p.Isr) != 3 })
	})
}

// moveLeaders gives every partition another leader.
func (k *securedKafka) moveLeaders() {
	k.t.Helper()
	k.moves++
	assignment, partitions := make([][]int32, kafkaPartitions), map[string][]int32{}
	for p := range kafkaPartitions {
		for i := range 3 {
			assignment[p] = append(assignment[p], int32((k.moves+p+i)%3+1))
		}
	}
	for _, topic := range k.topics {
		fixture.NoError(k.t, k.admin.AlterPartitionReassignments(topic, assignment))
		partitions[topic] = []int32{0, 1, 2}
	}
	fixture.Await(k.t, "the leaders have moved", func() bool {
		_, err := k.admin.ElectLeaders(sarama.PreferredElection, partitions)
		return err == nil && !slices.ContainsFunc(k.partitions(),
			func(p *sarama.PartitionMetadata) bool { return p.Leader != assignment[p.ID][0] })
	})
}

// held reads a topic. The messages of a key are in order, also where it moved to a new partition.
func (k *securedKafka) held(topic string) (all []heldMessage) {
	k.t.Helper()
	client, err := sarama.NewClient(k.addresses(0), k.scram("admin"))
	fixture.NoError(k.t, err)
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	fixture.NoError(k.t, err)
	defer consumer.Close()
	times := map[string]time.Time{}
	partitions, err := client.Partitions(topic)
	fixture.NoError(k.t, err)
	for _, p := range partitions {
		end, err := client.GetOffset(topic, p, sarama.OffsetNewest)
		fixture.NoError(k.t, err)
		read, err := consumer.ConsumePartition(topic, p, sarama.OffsetOldest)
		fixture.NoError(k.t, err)
		for next := int64(0); next < end; {
			select {
			case m := <-read.Messages():
				msg, err := kafka.DefaultMarshaler{}.Unmarshal(m)
				fixture.NoError(k.t, err)
				all, times[msg.UUID] = append(all, heldMessage{msg, fmt.Sprint(m.Offset)}), m.Timestamp
				next = m.Offset + 1
			case <-time.After(30 * time.Second):
				k.t.Fatalf("partition %d: no message at offset %d, the end is %d", p, next, end)
			}
		}
		_ = read.Close()
	}
	slices.SortStableFunc(all, func(a, b heldMessage) int { return times[a.UUID].Compare(times[b.UUID]) })
	return all
}
