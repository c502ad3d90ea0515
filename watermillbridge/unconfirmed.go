package watermillbridge

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ErrUnconfirmed: the Watermill publisher does not report which messages the broker has stored. It
// reports a message as published too early, so its events are lost without a word. Or it waits
// without end after a connection was lost, so its topics stop until the process starts again. The
// error names the setting and the bridge of the broker. See Config.AllowUnconfirmed.
var ErrUnconfirmed = errors.New("watermillbridge: the publisher does not report which messages the broker has stored")

// checkConfirmed refuses the forms of Watermill's own publishers that do not report which messages
// the broker has stored. It recognises them by the names of their types and fields, because this
// module does not depend on them. A publisher that it does not know passes, and so does one inside
// of a decorator.
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
	problem := ""
	switch of, _, _ := strings.Cut(module, "/"); {
	case of == "amqp":
		problem = unconfirmedAMQP(v)
	case of == "nats" && is(v, true, "config", "JetStream", "Disabled"):
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

// unconfirmedAMQP returns the problem of a publisher of watermill-amqp, or "".
func unconfirmedAMQP(v reflect.Value) string {
	pool := field(v, "config", "Publish", "ChannelPoolSize")
	// The connection may be the caller's, with settings of its own.
	recovery := field(v, "ConnectionWrapper", "config", "AmqpConfig", "Recovery")
	switch {
	case is(v, false, "config", "Publish", "ConfirmDelivery"):
		return "Publish.ConfirmDelivery of watermill-amqp is false: use amqpbridge, or set true"
	case is(v, true, "config", "Publish", "Transactional"):
		return "Publish.Transactional of watermill-amqp is true, which hides errors: use amqpbridge, or set false"
	case recovery.Kind() == reflect.Pointer && !recovery.IsNil():
		return "AmqpConfig.Recovery of watermill-amqp is set, and a publish whose connection is lost never ends: " +
			"use amqpbridge, or leave it nil"
	case pool.CanInt() && pool.Int() > 0:
		return "Publish.ChannelPoolSize of watermill-amqp is set, and the pool loses a channel with each publish " +
			"that fails in an outage: use amqpbridge, or set 0"
	}
	return ""
}

// is reports whether a field of a struct is there and has a value.
func is(v reflect.Value, want bool, path ...string) bool {
	f := field(v, path...)
	return f.Kind() == reflect.Bool && f.Bool() == want
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
