package amqpbridge_test

import (
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

// In structured mode the body is the document, with the data as base64: three bytes become four.
func TestSizeOfCloudEvents(t *testing.T) {
	t.Parallel()
	const limit = 1000
	beside := len(`{"specversion":"1.0","id":"1","source":"/orders","type":"order.placed","data_base64":""}`)
	for mode, largest := range map[cloudevents.Mode]int{
		cloudevents.ModeBinary: limit, cloudevents.ModeStructured: (limit - beside) / 4 * 3,
	} {
		p, err := amqpbridge.NewPublisher(amqpbridge.Config{
			AMQP: amqpbridge.QueueConfig(nowhere), MaxMessageBytes: limit,
			Bridge: watermillbridge.Config{CloudEvents: &cloudevents.Mapper{Source: "/orders", Mode: mode}},
		})
		if err != nil {
			t.Fatal(err)
		}
		e := core.Event{ID: "1", Type: "order.placed", Topic: "t", Payload: make([]byte, largest)}
		if err := p.CheckSize(e); err != nil {
			t.Errorf("mode %d: %d bytes: %v", mode, largest, err)
		}
		e.Payload = make([]byte, largest+1)
		if err := p.CheckSize(e); err == nil || !strings.Contains(err.Error(), "Config.MaxMessageBytes") {
			t.Errorf("mode %d: %d bytes: %v", mode, largest+1, err)
		}
	}
}

func TestAMQPHasItsOwnBindings(t *testing.T) {
	t.Parallel()
	for b, taken := range map[cloudevents.Binding]bool{
		0: true, cloudevents.AMQP: true, cloudevents.AMQPUnderscore: true,
		cloudevents.Kafka: false, cloudevents.HTTP: false,
	} {
		_, err := amqpbridge.NewPublisher(amqpbridge.Config{
			AMQP:   amqpbridge.QueueConfig(nowhere),
			Bridge: watermillbridge.Config{CloudEvents: &cloudevents.Mapper{Source: "/orders", Binding: b}},
		})
		if (err == nil) != taken || err != nil && !strings.Contains(err.Error(), "Binding is "+b.String()) {
			t.Errorf("%s: %v", b, err)
		}
	}
}
