package kafkabridge_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

func TestUnsafeSettingsOfSubscribersAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*sarama.Config)
		names  string
	}{
		"newest": {
			func(c *sarama.Config) { c.Consumer.Offsets.Initial = sarama.OffsetNewest },
			"Consumer.Offsets.Initial",
		},
		"a limit":      {func(c *sarama.Config) { c.Consumer.Fetch.Max = 1 << 20 }, "Consumer.Fetch.Max"},
		"aborted":      {func(c *sarama.Config) { c.Consumer.IsolationLevel = 0 }, "Consumer.IsolationLevel"},
		"silent":       {func(c *sarama.Config) { c.Consumer.Return.Errors = false }, "Consumer.Return.Errors"},
		"no headers":   {func(c *sarama.Config) { c.Version = sarama.V0_10_0_0 }, "no headers"},
		"all defaults": {func(c *sarama.Config) { *c = *sarama.NewConfig() }, "Consumer.Offsets.Initial"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := kafkabridge.SubscriberSaramaConfig()
			tc.change(c)
			_, err := kafkabridge.NewSubscriber(kafkabridge.SubscriberConfig{
				Brokers: []string{"localhost:1"}, Group: "g", Sarama: c,
			})
			if !errors.Is(err, kafkabridge.ErrUnsafeConfig) || !strings.Contains(err.Error(), tc.names) {
				t.Errorf("err = %v, want ErrUnsafeConfig naming %s", err, tc.names)
			}
		})
	}
}

func TestBadInputOfSubscribersIsRefused(t *testing.T) {
	t.Parallel()
	_, err := kafkabridge.NewSubscriber(kafkabridge.SubscriberConfig{CommitInterval: -1, NackPause: -1})
	for _, name := range []string{"Brokers", "Group", "CommitInterval", "NackPause"} {
		if err == nil || !strings.Contains(err.Error(), "SubscriberConfig."+name) {
			t.Errorf("err = %v, want it to name %s", err, name)
		}
	}
	cfg := kafkabridge.SubscriberConfig{Brokers: []string{"localhost:1", ""}, Group: "g"}
	if _, err := kafkabridge.NewSubscriber(cfg); err == nil || !strings.Contains(err.Error(), "Brokers[1]") {
		t.Errorf("err = %v", err)
	}
	cfg.Brokers, cfg.Instance = cfg.Brokers[:1], "a b"
	if _, err := kafkabridge.NewSubscriber(cfg); err == nil || !strings.Contains(err.Error(), "instance id") {
		t.Errorf("a name that Kafka does not accept: %v", err)
	}
}

func TestSafeSubscribersAreAccepted(t *testing.T) {
	t.Parallel()
	each := kafkabridge.SubscriberSaramaConfig()
	each.Consumer.Offsets.AutoCommit.Enable = false // each message is committed by itself
	for name, cfg := range map[string]kafkabridge.SubscriberConfig{
		"default":     {},
		"all":         {Instance: "billing-0", Version: sarama.V3_6_0_0, ClientID: "b", CommitInterval: time.Minute},
		"each commit": {Sarama: each},
	} {
		cfg.Brokers, cfg.Group = []string{"localhost:1"}, "billing" // nothing connects yet
		s, err := kafkabridge.NewSubscriber(cfg)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnmarshalerSaysWhereTheMessageWas(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ key, header, want string }{
		{"k", "", "k"},
		{"", "", ""},
		{"k", "mine", "mine"},
		{"\xff", "", ""},
	} {
		m := &sarama.ConsumerMessage{
			Topic: "orders", Partition: 2, Offset: 1 << 40, Key: []byte(tc.key), Value: []byte("v"),
		}
		for k, v := range map[string]string{
			core.HeaderSource: "elsewhere/1/2", core.HeaderPartitionKey: tc.header, "_watermill_message_uuid": "u",
		} {
			if v != "" {
				m.Headers = append(m.Headers, &sarama.RecordHeader{Key: []byte(k), Value: []byte(v)})
			}
		}
		msg, err := kafkabridge.Unmarshaler{}.Unmarshal(m)
		if err != nil || msg.UUID != "u" || string(msg.Payload) != "v" ||
			msg.Metadata[core.HeaderSource] != "orders/2/1099511627776" ||
			msg.Metadata[core.HeaderPartitionKey] != tc.want {
			t.Errorf("%+v: %+v, %v", tc, msg, err)
		}
	}
}
