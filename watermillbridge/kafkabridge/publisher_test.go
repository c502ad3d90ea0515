package kafkabridge_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/eapache/go-resiliency/breaker"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// A publish may take so long: a broker of this process is slow while the machine is busy.
const timeout = 30 * time.Second

func delivery(topic, key string) core.Delivery {
	e := core.Event{ID: core.NewEventID(), Type: "order.placed", Topic: topic, Key: key, Payload: []byte(`{"total":7}`)}
	id, err := core.NewRowID(e.ID, topic)
	if err != nil {
		panic(err)
	}
	return core.Delivery{Event: e, RowID: id, Attempt: 1}
}

// fakeBroker answers like a broker with the topic "orders". Partition 0 of 3 answers with the error
// refuse, unless that is ErrNoError. Partition 2 has no leader.
func fakeBroker(t *testing.T, refuse sarama.KError) string {
	t.Helper()
	b := sarama.NewMockBroker(t, 1)
	t.Cleanup(b.Close)
	metadata := &sarama.MetadataResponse{Version: 7}
	metadata.AddBroker(b.Addr(), b.BrokerID())
	only := []int32{b.BrokerID()}
	metadata.AddTopicPartition("orders", 0, b.BrokerID(), only, only, nil, sarama.ErrNoError)
	metadata.AddTopicPartition("orders", 1, b.BrokerID(), only, only, nil, sarama.ErrNoError)
	metadata.AddTopicPartition("orders", 2, -1, only, nil, only, sarama.ErrLeaderNotAvailable)
	b.SetHandlerByMap(map[string]sarama.MockResponse{
		"ApiVersionsRequest":    apiVersions(t),
		"MetadataRequest":       sarama.NewMockWrapper(metadata),
		"InitProducerIDRequest": sarama.NewMockInitProducerIDResponse(t),
		"ProduceRequest":        sarama.NewMockProduceResponse(t).SetVersion(7).SetError("orders", 0, refuse),
	})
	return b.Addr()
}

// apiVersions lists the requests of a publisher that the fake brokers answer, with their versions.
func apiVersions(t *testing.T) sarama.MockResponse {
	return sarama.NewMockApiVersionsResponse(t).SetApiKeys([]sarama.ApiVersionsResponseKey{
		{ApiKey: 0, MinVersion: 7, MaxVersion: 7},  // Produce
		{ApiKey: 3, MinVersion: 7, MaxVersion: 7},  // Metadata
		{ApiKey: 17, MinVersion: 0, MaxVersion: 1}, // SaslHandshake
		{ApiKey: 18, MinVersion: 0, MaxVersion: 3}, // ApiVersions
		{ApiKey: 22, MinVersion: 0, MaxVersion: 1}, // InitProducerId
		{ApiKey: 36, MinVersion: 0, MaxVersion: 1}, // SaslAuthenticate
	})
}

func newPublisher(t *testing.T, cfg kafkabridge.Config) *watermillbridge.Publisher {
	t.Helper()
	cfg.PublishTimeout = timeout
	if cfg.Sarama == nil {
		cfg.Sarama = kafkabridge.SaramaConfig(timeout)
		cfg.Sarama.Version = sarama.V2_1_0_0 // fakeBroker has the answers of this version
		cfg.Sarama.Producer.Retry.Backoff = 100 * time.Millisecond
		cfg.Sarama.Metadata.Retry.Backoff = 250 * time.Millisecond
	}
	p, err := kafkabridge.NewPublisher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func publish(t *testing.T, p *watermillbridge.Publisher, d core.Delivery) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return p.PublishWithReceipt(ctx, d)
}

// These keys belong to partitions 0, 1 and 2 of 3, by javaPartitions.
const key0, key1, key2 = "order/o-1", "order/o-2", "abcd"

func TestPublishGivesAReceipt(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, kafkabridge.Config{Brokers: []string{fakeBroker(t, sarama.ErrNoError)}})
	receipt, err := publish(t, p, delivery("orders", key1))
	if err != nil || !strings.HasPrefix(receipt, "orders/1@") {
		t.Errorf("receipt %q, err %v; want orders/1@...", receipt, err)
	}
}

func TestErrorsOfTheBrokerAreClassified(t *testing.T) {
	t.Parallel()
	for k, want := range map[sarama.KError]core.Class{
		sarama.ErrMessageSizeTooLarge:          core.ClassPermanent,
		sarama.ErrMessageSetSizeTooLarge:       core.ClassPermanent,
		sarama.ErrInvalidRecord:                core.ClassPermanent,
		sarama.ErrInvalidTopic:                 core.ClassPermanent,
		sarama.ErrNotLeaderForPartition:        core.ClassKeyUnavailable,
		sarama.ErrKafkaStorageError:            core.ClassKeyUnavailable,
		sarama.ErrOutOfOrderSequenceNumber:     core.ClassKeyUnavailable,
		sarama.ErrUnknownProducerID:            core.ClassKeyUnavailable,
		sarama.ErrInvalidProducerEpoch:         core.ClassKeyUnavailable,
		sarama.ErrInvalidProducerIDMapping:     core.ClassKeyUnavailable,
		sarama.ErrNotEnoughReplicas:            core.ClassUnavailable,
		sarama.ErrNotEnoughReplicasAfterAppend: core.ClassUnavailable,
		sarama.ErrRequestTimedOut:              core.ClassUnavailable,
		sarama.ErrThrottlingQuotaExceeded:      core.ClassUnavailable,
		sarama.ErrTopicAuthorizationFailed:     core.ClassUnavailable,
		sarama.ErrClusterAuthorizationFailed:   core.ClassUnavailable,
		sarama.ErrUnknownTopicOrPartition:      core.ClassUnavailable,
		sarama.ErrUnsupportedCompressionType:   core.ClassUnavailable,
		sarama.ErrUnsupportedForMessageFormat:  core.ClassUnavailable,
		sarama.ErrDelegationTokenExpired:       core.ClassUnavailable,
		sarama.ErrLogDirNotFound:               core.ClassKeyUnavailable,
		sarama.ErrListenerNotFound:             core.ClassKeyUnavailable,
		// CORRUPT_MESSAGE: Kafka says that it may be sent again.
		sarama.ErrInvalidMessage: core.ClassTransient,
		sarama.ErrUnknown:        core.ClassTransient,
	} {
		t.Run(k.Error(), func(t *testing.T) {
			t.Parallel()
			p := newPublisher(t, kafkabridge.Config{Brokers: []string{fakeBroker(t, k)}})
			_, err := publish(t, p, delivery("orders", key0))
			if class, _ := core.ClassOf(err); err == nil || class != want {
				t.Errorf("err = %v, class %v; want %v", err, class, want)
			}
			if !errors.Is(err, k) {
				t.Errorf("err = %v does not wrap the broker's", err)
			}
			if _, err := publish(t, p, delivery("orders", key1)); err != nil && want != core.ClassUnavailable {
				t.Errorf("another partition afterwards: %v", err)
			}
		})
	}
}

// Sarama's breaker of a partition must not look like an outage of the cluster.
func TestALeaderlessPartitionStopsOnlyItsKeys(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, kafkabridge.Config{Brokers: []string{fakeBroker(t, sarama.ErrNoError)}})
	brokerOpened := false
	for range 8 {
		_, err := publish(t, p, delivery("orders", key2))
		if class, _ := core.ClassOf(err); class != core.ClassKeyUnavailable {
			t.Fatalf("err = %v, class %v; want key_unavailable", err, class)
		}
		brokerOpened = brokerOpened || errors.Is(err, breaker.ErrBreakerOpen)
		if _, err := publish(t, p, delivery("orders", key1)); err != nil {
			t.Fatalf("a partition with a leader: %v", err)
		}
	}
	if !brokerOpened {
		t.Error("Sarama's breaker never opened: this test shows nothing")
	}
	for range 4 {
		if _, err := publish(t, p, delivery("orders", "")); err != nil {
			t.Errorf("without a key there is always a partition: %v", err)
		}
	}
}

func TestAnUnknownTopicIsUnavailable(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, kafkabridge.Config{Brokers: []string{fakeBroker(t, sarama.ErrNoError)}})
	for range 6 { // after the third, Sarama's breaker answers
		_, err := publish(t, p, delivery("nowhere", key0))
		if class, _ := core.ClassOf(err); class != core.ClassUnavailable {
			t.Fatalf("err = %v, class %v; want unavailable", err, class)
		}
	}
	if _, err := publish(t, p, delivery("orders", key0)); err != nil {
		t.Errorf("another topic: %v", err)
	}
}

func TestATooLargeMessageIsPermanent(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, kafkabridge.Config{Brokers: []string{fakeBroker(t, sarama.ErrNoError)}})
	d := delivery("orders", key0)
	d.Payload = make([]byte, 2<<20) // Producer.MaxMessageBytes is 1 MB
	_, err := publish(t, p, d)
	if class, _ := core.ClassOf(err); class != core.ClassPermanent {
		t.Errorf("err = %v, class %v; want permanent", err, class)
	}
}

func TestAReservedHeaderIsPermanent(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, kafkabridge.Config{Brokers: []string{fakeBroker(t, sarama.ErrNoError)}})
	d := delivery("orders", key0)
	// The outbox refuses it, but a row may have been written without the outbox.
	d.Headers = map[string]string{"_watermill_message_uuid": "x"}
	_, err := publish(t, p, d)
	if class, _ := core.ClassOf(err); class != core.ClassPermanent {
		t.Errorf("err = %v, class %v; want permanent", err, class)
	}
}

// The process starts while Kafka is down. It publishes when Kafka is up.
func TestKafkaComesLater(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p := newPublisher(t, kafkabridge.Config{Brokers: []string{addr}})
	for range 2 {
		_, err := publish(t, p, delivery("orders", key0))
		if class, _ := core.ClassOf(err); !errors.Is(err, sarama.ErrOutOfBrokers) || class != core.ClassUnavailable {
			t.Fatalf("err = %v, class %v; want ErrOutOfBrokers, unavailable", err, class)
		}
	}

	l, err = net.Listen("tcp", addr)
	for since := time.Now(); err != nil; l, err = net.Listen("tcp", addr) {
		if time.Since(since) > time.Minute { // until then a connection of another program may have the port
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	b := sarama.NewMockBrokerListener(t, 1, l)
	t.Cleanup(b.Close)
	b.SetHandlerByMap(map[string]sarama.MockResponse{
		"ApiVersionsRequest":    apiVersions(t),
		"MetadataRequest":       sarama.NewMockMetadataResponse(t).SetBroker(addr, 1).SetLeader("orders", 0, 1),
		"InitProducerIDRequest": sarama.NewMockInitProducerIDResponse(t),
		"ProduceRequest":        sarama.NewMockProduceResponse(t).SetVersion(7),
	})
	if receipt, err := publish(t, p, delivery("orders", key0)); err != nil {
		t.Errorf("receipt %q, err %v", receipt, err)
	}
}

// All that wait for a connection hear why there is none.
func TestRefusedCredentialsAreTold(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mechanism string // of the broker
		cause     sarama.KError
	}{
		{sarama.SASLTypePlaintext, sarama.ErrSASLAuthenticationFailed},
		{sarama.SASLTypeSCRAMSHA512, sarama.ErrUnsupportedSASLMechanism},
	} {
		t.Run(tc.mechanism, func(t *testing.T) {
			t.Parallel()
			b := sarama.NewMockBroker(t, 1)
			t.Cleanup(b.Close)
			b.SetHandlerByMap(map[string]sarama.MockResponse{
				"ApiVersionsRequest": apiVersions(t),
				"SaslHandshakeRequest": sarama.NewMockSaslHandshakeResponse(t).
					SetEnabledMechanisms([]string{tc.mechanism}),
				"SaslAuthenticateRequest": sarama.NewMockSaslAuthenticateResponse(t).SetError(tc.cause),
			})
			s := kafkabridge.SaramaConfig(timeout)
			s.Version = sarama.V2_1_0_0
			s.Net.SASL.Enable, s.Net.SASL.User, s.Net.SASL.Password = true, "relay", "s3cret"
			p := newPublisher(t, kafkabridge.Config{Brokers: []string{b.Addr()}, Sarama: s})
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					_, err := publish(t, p, delivery("orders", ""))
					if class, _ := core.ClassOf(err); class != core.ClassUnavailable || !errors.Is(err, tc.cause) ||
						strings.Contains(err.Error(), "s3cret") {
						t.Errorf("class %v, err = %v; want unavailable and %v", class, err, tc.cause)
					}
				})
			}
			all.Wait()
		})
	}
}

func TestPublishAfterClose(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, kafkabridge.Config{Brokers: []string{fakeBroker(t, sarama.ErrNoError)}})
	if _, err := publish(t, p, delivery("orders", key0)); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := publish(t, p, delivery("orders", key0)); !errors.Is(err, watermillbridge.ErrClosed) {
		t.Errorf("err = %v, want ErrClosed", err)
	}
}
