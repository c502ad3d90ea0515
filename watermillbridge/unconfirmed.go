package watermillbridge

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ErrUnconfirmed: the Watermill publisher reports a message as published before the broker keeps
// it safely, so its events are lost without a word. The error names the setting, what it means, and
// the bridge of the broker. See Config.AllowUnconfirmed.
var ErrUnconfirmed = errors.New("watermillbridge: the publisher does not wait until the broker keeps a message safely")

// checkConfirmed refuses the forms of Watermill's own publishers that do not wait for the broker. It
// knows them by the names of their types and fields, because this module does not depend on them. A
// publisher that it does not know passes, and so does one inside of a decorator.
func checkConfirmed(pub message.Publisher) error {
	v := reflect.ValueOf(pub)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || v.Type().Name() != "Publisher" {
		return nil
	}
	module, found := strings.CutPrefix(v.Type().PkgPath(), "github.com/ThreeDotsLabs/watermill-")
	if !found {
		return nil
	}
	is := func(want bool, path ...string) bool {
		f := field(v, path...)
		return f.Kind() == reflect.Bool && f.Bool() == want
	}
	problem := ""
	switch of, _, _ := strings.Cut(module, "/"); {
	case of == "amqp" && is(false, "config", "Publish", "ConfirmDelivery"):
		problem = "Publish.ConfirmDelivery of watermill-amqp is false, so it waits for no confirmation: use " +
			"amqpbridge, or set true"
	case of == "amqp" && is(true, "config", "Publish", "Transactional"):
		problem = "Publish.Transactional of watermill-amqp is true, which hides errors: use amqpbridge, or set false"
	case of == "nats" && is(true, "config", "JetStream", "Disabled"):
		problem = "JetStream.Disabled of watermill-nats is true, so no stream confirms a message: use natsbridge, " +
			"or set false"
	case of == "kafka":
		acks := field(v, "config", "OverwriteSaramaConfig", "Producer", "RequiredAcks")
		if acks.CanInt() && acks.Int() != -1 {
			means := "so it waits for the leader alone, which loses messages when another broker becomes the leader"
			if acks.Int() == 0 {
				means = "so it waits for no confirmation"
			}
			problem = fmt.Sprintf("Producer.RequiredAcks of watermill-kafka is %d, %s: use kafkabridge, or set "+
				"sarama.WaitForAll", acks.Int(), means)
		}
	}
	if problem == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUnconfirmed, problem)
}

// field returns a field of a struct, through pointers, or the zero Value.
func field(v reflect.Value, path ...string) reflect.Value {
	for _, name := range path {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return reflect.Value{}
		}
		v = v.FieldByName(name)
	}
	return v
}
