package amqpbridge_test

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

const nowhere = "amqp://guest:s3cret@127.0.0.1:1/" // no server listens there

func TestUnsafeSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*amqp.Config)
		names  string
	}{
		"transactional":     {func(c *amqp.Config) { c.Publish.Transactional = true }, "Publish.Transactional"},
		"immediate":         {func(c *amqp.Config) { c.Publish.Immediate = true }, "Publish.Immediate"},
		"exchange":          {func(c *amqp.Config) { c.Exchange.Durable = false }, "Exchange.Durable"},
		"exchange auto":     {func(c *amqp.Config) { c.Exchange.AutoDeleted = true }, "Exchange.AutoDeleted"},
		"exchange internal": {func(c *amqp.Config) { c.Exchange.Internal = true }, "Exchange.Internal"},
		"exchange no wait":  {func(c *amqp.Config) { c.Exchange.NoWait = true }, "Exchange.NoWait"},
		"queue":             {func(c *amqp.Config) { c.Queue.Durable = false }, "Queue.Durable"},
		"queue auto":        {func(c *amqp.Config) { c.Queue.AutoDelete = true }, "Queue.AutoDelete"},
		"queue exclusive":   {func(c *amqp.Config) { c.Queue.Exclusive = true }, "Queue.Exclusive"},
		"queue no wait":     {func(c *amqp.Config) { c.Queue.NoWait = true }, "Queue.NoWait"},
		"bind no wait":      {func(c *amqp.Config) { c.QueueBind.NoWait = true }, "QueueBind.NoWait"},
		"transient messages": {func(c *amqp.Config) {
			c.Marshaler = amqp.DefaultMarshaler{NotPersistentDeliveryMode: true}
		}, "Marshaler"},
		"recovery": {func(c *amqp.Config) {
			c.Connection.AmqpConfig = &amqp091.Config{Recovery: &amqp091.Recovery{}}
		}, "Recovery"},
		"two TLS": {func(c *amqp.Config) {
			c.Connection.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
			c.Connection.AmqpConfig = &amqp091.Config{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
		}, "TLSClientConfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := amqpbridge.PubSubConfig(nowhere, amqp.GenerateQueueNameTopicName)
			tc.change(&c)
			_, err := amqpbridge.NewPublisher(amqpbridge.Config{AMQP: c, DeclareQueues: true})
			if !errors.Is(err, amqpbridge.ErrUnsafeConfig) || !strings.Contains(err.Error(), tc.names) {
				t.Errorf("err = %v, want ErrUnsafeConfig naming %s", err, tc.names)
			}
		})
	}
}

func TestAllUnsafeSettingsAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	c := amqp.NewNonDurablePubSubConfig(nowhere, amqp.GenerateQueueNameTopicName)
	c.Publish.Transactional = true
	_, err := amqpbridge.NewPublisher(amqpbridge.Config{AMQP: c})
	if !errors.Is(err, amqpbridge.ErrUnsafeConfig) {
		t.Fatalf("err = %v, want ErrUnsafeConfig", err)
	}
	for _, name := range []string{"Publish.Transactional", "Exchange.Durable", "Queue.Durable", "Marshaler"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s:\n%v", name, err)
		}
	}
}

func TestSafeConfigsAreAccepted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]amqp.Config{
		"queue":                     amqpbridge.QueueConfig(nowhere),
		"pub sub":                   amqpbridge.PubSubConfig(nowhere, amqp.GenerateQueueNameTopicName),
		"pub sub without a queue":   amqpbridge.PubSubConfig(nowhere, nil),
		"topic":                     amqpbridge.TopicConfig(nowhere, "events", "orders"),
		"Watermill's durable queue": amqp.NewDurableQueueConfig(nowhere),
		"Watermill's durable pub":   amqp.NewDurablePubSubConfig(nowhere, nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := amqpbridge.NewPublisher(amqpbridge.Config{AMQP: c})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := amqpbridge.NewPublisher(amqpbridge.Config{AMQP: amqp.NewDurableTopicConfig(nowhere, "events",
		"orders")}); err == nil {
		t.Error("Watermill's topic configuration was accepted: its exchange is not durable")
	}
}

func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	config := func(change func(*amqpbridge.Config)) amqpbridge.Config {
		c := amqpbridge.Config{AMQP: amqpbridge.PubSubConfig(nowhere, nil)}
		change(&c)
		return c
	}
	for name, tc := range map[string]struct {
		cfg   amqpbridge.Config
		names string
	}{
		"zero": {amqpbridge.Config{}, "AmqpURI"},
		"bad URI": {
			config(func(c *amqpbridge.Config) { c.AMQP.Connection.AmqpURI = "http://guest:s3cret@x" }),
			"AmqpURI",
		},
		"unparseable URI": {config(func(c *amqpbridge.Config) {
			c.AMQP.Connection.AmqpURI = "amqp://guest:s3cret@x\x7f"
		}), "AmqpURI"},
		"a slash in the password": {config(func(c *amqpbridge.Config) {
			c.AMQP.Connection.AmqpURI = "amqp://guest:s3cret/s3cret@x"
		}), "invalid port"},
		"no builder":    {config(func(c *amqpbridge.Config) { c.AMQP.TopologyBuilder = nil }), "TopologyBuilder"},
		"no queue name": {config(func(c *amqpbridge.Config) { c.DeclareQueues = true }), "GenerateName"},
		"channels":      {config(func(c *amqpbridge.Config) { c.Channels = -1 }), "Channels"},
		"many channels": {config(func(c *amqpbridge.Config) { c.Channels = 5000 }), "2047"},
		"timeout":       {config(func(c *amqpbridge.Config) { c.ConnectTimeout = -time.Second }), "ConnectTimeout"},
		"bridge": {
			config(func(c *amqpbridge.Config) { c.Bridge = watermillbridge.Config{MaxStuck: -1} }),
			"MaxStuck",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := amqpbridge.NewPublisher(tc.cfg)
			if err == nil || !strings.Contains(err.Error(), tc.names) {
				t.Fatalf("err = %v, want it to name %s", err, tc.names)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error tells the password: %v", err)
			}
		})
	}
}
