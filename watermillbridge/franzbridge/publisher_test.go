package franzbridge_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
)

func requireClass(t *testing.T, err error, want core.Class) {
	t.Helper()
	if class, marked := core.ClassOf(err); err == nil || !marked || class != want {
		t.Errorf("err = %v, class %v; want %v", err, class, want)
	}
}

func TestPublishGivesAReceipt(t *testing.T) {
	t.Parallel()
	b := startBroker(t, nil)
	p := newPublisher(t, franzbridge.Config{Brokers: []string{b.addr}})
	if receipt, err := publish(t, p, delivery("orders", key1)); err != nil || receipt != "orders/1@0" {
		t.Errorf("receipt %q, err %v", receipt, err)
	}
}

// failedTwice calls then when two connections could not be opened.
type failedTwice struct {
	n    atomic.Int32
	then func()
}

func (f *failedTwice) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil && f.n.Add(1) == 2 {
		f.then()
	}
}

// The error of a message that nobody answered names the connection that failed.
func TestNoBrokerIsThere(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := failedTwice{then: cancel} // after the second, the first is remembered
	p := newPublisher(t, franzbridge.Config{
		Brokers: []string{"127.0.0.1:1"}, Options: []kgo.Opt{kgo.WithHooks(&failed)},
	})
	err := p.Publish(ctx, delivery("orders", key1))
	requireClass(t, err, core.ClassUnavailable)
	if !errors.Is(err, franzbridge.ErrNoAnswer) || !strings.Contains(err.Error(), "the last connection failed: ") ||
		!strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v, want ErrNoAnswer and the connection that failed", err)
	}
}

func TestRefusedCredentialsAreTold(t *testing.T) {
	t.Parallel()
	b := startBroker(t, nil)
	p := newPublisher(t, franzbridge.Config{
		Brokers: []string{b.addr},
		Options: []kgo.Opt{kgo.SASL(plain.Auth{User: "relay", Pass: "s3cret"}.AsMechanism())},
	})
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			_, err := publishFor(t, p, delivery("orders", key0), 2*time.Second)
			requireClass(t, err, core.ClassUnavailable)
			if !strings.Contains(err.Error(), "SASL_AUTHENTICATION_FAILED") || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v, want SASL_AUTHENTICATION_FAILED", err)
			}
		})
	}
	all.Wait()
}

// Many events are on their way, and each gets its own answer.
func TestEachEventIsAnswered(t *testing.T) {
	t.Parallel()
	b := startBroker(t, nil)
	p := newPublisher(t, franzbridge.Config{Brokers: []string{b.addr}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := 0
	for i := range 500 {
		all.Add(1)
		p.PublishAsync(ctx, delivery("orders", []string{key0, key1}[i%2]), func(receipt string, err error) {
			defer all.Done()
			mu.Lock()
			defer mu.Unlock()
			if err != nil || receipt == "" {
				t.Errorf("receipt %q, err %v", receipt, err)
			}
			answers++
		})
	}
	all.Wait()
	if records := b.records(); records != 500 || answers != 500 {
		t.Errorf("%d answers, and the broker has %d messages of 500", answers, records)
	}
}

func (b *fakeBroker) records() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, batch := range b.batches {
		n += int(batch[60]) + int(batch[59])<<8
	}
	return n
}

// A broker refuses a batch as a whole. Each message of it is sent again alone: only the one that is
// at fault is refused.
func TestOneBadMessageOfABatch(t *testing.T) {
	t.Parallel()
	b := startBroker(t, func(_ int32, records int, batch []byte) *kerr.Error {
		if bytes.Contains(batch, []byte("too large")) || records > 3 {
			return kerr.MessageTooLarge
		}
		return nil
	})
	p := newPublisher(t, franzbridge.Config{
		Brokers: []string{b.addr}, Options: []kgo.Opt{kgo.ProducerLinger(20 * time.Millisecond)},
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for i := range 20 {
		d := delivery("orders", key0)
		bad := i == 7
		if bad {
			d.Payload = []byte("too large")
		}
		all.Add(1)
		p.PublishAsync(ctx, d, func(_ string, err error) {
			defer all.Done()
			if bad {
				requireClass(t, err, core.ClassPermanent)
			} else if err != nil {
				t.Errorf("event %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if records := b.records(); records != 19 {
		t.Errorf("the broker has %d messages, want 19", records)
	}
}

// oneClient is a hook that takes one client.
type oneClient struct{ clients atomic.Int32 }

func (o *oneClient) OnNewClient(*kgo.Client) {
	if o.clients.Add(1) > 1 {
		panic("metrics are registered twice")
	}
}

// Without a client that sends a message alone, nobody knows whether it is at fault: it waits.
func TestAHookThatTakesOneClient(t *testing.T) {
	t.Parallel()
	b := startBroker(t, func(int32, int, []byte) *kerr.Error { return kerr.InvalidRecord })
	p := newPublisher(t, franzbridge.Config{
		Brokers: []string{b.addr}, Options: []kgo.Opt{kgo.WithHooks(&oneClient{})},
	})
	_, err := publish(t, p, delivery("orders", key0))
	requireClass(t, err, core.ClassKeyUnavailable)
	if !strings.Contains(err.Error(), "metrics are registered twice") {
		t.Errorf("%v, want the panic of the hook", err)
	}
}

func TestAnUnknownTopicIsUnavailable(t *testing.T) {
	t.Parallel()
	b := startBroker(t, nil)
	p := newPublisher(t, franzbridge.Config{Brokers: []string{b.addr}})
	_, err := publish(t, p, delivery("nowhere", key0))
	requireClass(t, err, core.ClassUnavailable)
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("err = %v, want UNKNOWN_TOPIC_OR_PARTITION", err)
	}
	if _, err := publish(t, p, delivery("orders", key0)); err != nil {
		t.Errorf("another topic: %v", err)
	}
}

func TestALeaderlessPartitionStopsOnlyItsKeys(t *testing.T) {
	t.Parallel()
	b := startBroker(t, nil)
	p := newPublisher(t, franzbridge.Config{Brokers: []string{b.addr}})
	for limit := 2 * time.Second; ; limit *= 2 {
		answered := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		p.PublishAsync(ctx, delivery("orders", key2), func(_ string, err error) { answered <- err })
		if _, err := publish(t, p, delivery("orders", key1)); err != nil {
			t.Fatalf("a partition with a leader: %v", err)
		}
		early := ctx.Err() == nil
		err := <-answered
		if early {
			requireClass(t, err, core.ClassKeyUnavailable)
			return
		}
		if limit > time.Minute { // until then the machine may have been busy
			t.Fatalf("a partition without a leader holds another one up for %s", limit)
		}
	}
}

// A broker does not answer. The event is given up when its context ends, and later events arrive.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	silent := true
	b := startBroker(t, func(int32, int, []byte) *kerr.Error {
		mu.Lock()
		defer mu.Unlock()
		if silent {
			return silence
		}
		return nil
	})
	p := newPublisher(t, franzbridge.Config{Brokers: []string{b.addr}})
	_, err := publishFor(t, p, delivery("orders", key0), time.Second)
	requireClass(t, err, core.ClassUnavailable)
	if !errors.Is(err, franzbridge.ErrNoAnswer) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want ErrNoAnswer and DeadlineExceeded", err)
	}
	mu.Lock()
	silent = false
	mu.Unlock()
	d := delivery("orders", key0)
	for { // until the client has given the first message up, it gives later ones up too
		if _, err = publish(t, p, d); err == nil {
			break
		}
		requireClass(t, err, core.ClassUnavailable)
		if t.Context().Err() != nil || t.Failed() {
			t.Fatalf("afterwards: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if records := b.records(); records != 1 {
		t.Errorf("the broker has %d messages: one that was given up came after all", records)
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
	p := newPublisher(t, franzbridge.Config{Brokers: []string{addr}})
	_, err = publishFor(t, p, delivery("orders", key0), time.Second)
	requireClass(t, err, core.ClassUnavailable)
	l, err = net.Listen("tcp", addr)
	for since := time.Now(); err != nil; l, err = net.Listen("tcp", addr) {
		if time.Since(since) > time.Minute { // until then a connection of another program may have the port
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	serve(t, l, nil)
	for { // the client may give up a message that comes right behind one that it gave up
		receipt, err := publish(t, p, delivery("orders", key0))
		if err == nil {
			break
		}
		requireClass(t, err, core.ClassUnavailable)
		if t.Context().Err() != nil || t.Failed() {
			t.Fatalf("receipt %q, err %v", receipt, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestPublishAfterClose(t *testing.T) {
	t.Parallel()
	b := startBroker(t, nil)
	p := newPublisher(t, franzbridge.Config{Brokers: []string{b.addr}})
	if _, err := publish(t, p, delivery("orders", key0)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	_, err := publish(t, p, delivery("orders", key0))
	requireClass(t, err, core.ClassUnavailable)
	if !errors.Is(err, franzbridge.ErrClosed) {
		t.Errorf("err = %v, want ErrClosed", err)
	}
}

func TestNoTopicIsPermanent(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, franzbridge.Config{Brokers: []string{"localhost:1"}})
	_, err := publish(t, p, core.Delivery{})
	requireClass(t, err, core.ClassPermanent)
}

// The check when an event is recorded knows the size of the message to the byte, as the client
// counts it.
func TestSizeIsKnownToTheByte(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	for name, mapper := range map[string]*cloudevents.Mapper{
		"plain": nil, "binary": {Source: "/orders"},
		"structured": {Source: "/orders", Mode: cloudevents.ModeStructured},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startBroker(t, nil)
			p := newPublisher(t, franzbridge.Config{
				Brokers: []string{b.addr}, CloudEvents: mapper, Options: []kgo.Opt{kgo.ProducerBatchMaxBytes(limit)},
			})
			d := delivery("orders", key1)
			d.Headers = map[string]string{"a": strings.Repeat("x", 300)}
			d.KeySeq, d.Attempt, d.ReplayOf = math.MaxInt64, math.MaxInt32, d.RowID // what CheckSize allows for
			largest := sort.Search(limit, func(n int) bool {
				d.Payload = make([]byte, n)
				return p.CheckSize(d.Event) != nil
			}) - 1
			d.Payload = make([]byte, largest)
			if _, err := publish(t, p, d); err != nil {
				t.Errorf("%d bytes: %v", largest, err)
			}
			d.Payload = make([]byte, largest+1)
			if err := p.CheckSize(d.Event); err == nil || !strings.Contains(err.Error(), strconv.Itoa(limit)) {
				t.Errorf("a byte more: err = %v", err)
			}
			_, err := publish(t, p, d)
			requireClass(t, err, core.ClassPermanent)
		})
	}
}
