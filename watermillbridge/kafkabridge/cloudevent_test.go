package kafkabridge_test

import (
	"math"
	"sort"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// The check when an event is recorded knows the size of the CloudEvent to the byte: with
// attributes, and with the data as base64.
func TestSizeOfCloudEvents(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	for _, mode := range []cloudevents.Mode{cloudevents.ModeBinary, cloudevents.ModeStructured} {
		s := kafkabridge.SaramaConfig(timeout)
		s.Producer.MaxMessageBytes = limit
		p := newPublisher(t, kafkabridge.Config{
			Brokers: []string{fakeBroker(t, sarama.ErrNoError)}, Sarama: s,
			Bridge: watermillbridge.Config{CloudEvents: &cloudevents.Mapper{Source: "/orders", Mode: mode}},
		})
		d := delivery("orders", key1)
		d.KeySeq, d.Attempt, d.ReplayOf = math.MaxInt64, math.MaxInt32, d.RowID // what CheckSize allows for
		largest := sort.Search(limit, func(n int) bool {
			d.Payload = make([]byte, n)
			return p.CheckSize(d.Event) != nil
		}) - 1
		d.Payload = make([]byte, largest)
		if _, err := publish(t, p, d); err != nil {
			t.Errorf("mode %d: %d bytes: %v", mode, largest, err)
		}
		d.Payload = make([]byte, largest+1)
		if _, err := publish(t, p, d); err == nil {
			t.Errorf("mode %d: %d bytes are taken", mode, largest+1)
		}
	}
}

func TestKafkaHasItsOwnBinding(t *testing.T) {
	t.Parallel()
	_, err := kafkabridge.NewPublisher(kafkabridge.Config{
		Brokers: []string{"localhost:1"},
		Bridge:  watermillbridge.Config{CloudEvents: &cloudevents.Mapper{Source: "/orders", Binding: cloudevents.NATS}},
	})
	if err == nil || !strings.Contains(err.Error(), "Binding is nats") {
		t.Errorf("err = %v", err)
	}
}
