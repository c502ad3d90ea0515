package kafkabridge_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

func TestUnsafeSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*sarama.Config)
		names  string
	}{
		"acks of the leader": {
			func(c *sarama.Config) { c.Producer.RequiredAcks = sarama.WaitForLocal },
			"Producer.RequiredAcks",
		},
		"no acks": {
			func(c *sarama.Config) { c.Producer.RequiredAcks = sarama.NoResponse },
			"Producer.RequiredAcks",
		},
		"pipelined":  {func(c *sarama.Config) { c.Net.MaxOpenRequests = 5 }, "Net.MaxOpenRequests"},
		"no retries": {func(c *sarama.Config) { c.Producer.Retry.Max = 0 }, "Producer.Retry.Max"},
		"no successes": {
			func(c *sarama.Config) { c.Producer.Return.Successes = false },
			"Producer.Return.Successes",
		},
		"no errors":    {func(c *sarama.Config) { c.Producer.Return.Errors = false }, "Producer.Return.Errors"},
		"transactions": {func(c *sarama.Config) { c.Producer.Transaction.ID = "x" }, "Producer.Transaction.ID"},
		"other partitioner": {
			func(c *sarama.Config) { c.Producer.Partitioner = sarama.NewHashPartitioner },
			"Producer.Partitioner",
		},
		"no partitioner":     {func(c *sarama.Config) { c.Producer.Partitioner = nil }, "Producer.Partitioner"},
		"waits for others":   {func(c *sarama.Config) { c.Producer.Flush.Messages = 100 }, "Flush.Messages"},
		"slow flush":         {func(c *sarama.Config) { c.Producer.Flush.Frequency = time.Minute }, "Flush.Frequency"},
		"dial":               {func(c *sarama.Config) { c.Net.DialTimeout = 30 * time.Second }, "Net.DialTimeout"},
		"read":               {func(c *sarama.Config) { c.Net.ReadTimeout = 30 * time.Second }, "Net.ReadTimeout"},
		"write":              {func(c *sarama.Config) { c.Net.WriteTimeout = 30 * time.Second }, "Net.WriteTimeout"},
		"broker":             {func(c *sarama.Config) { c.Producer.Timeout = 10 * time.Second }, "Producer.Timeout"},
		"broker after read":  {func(c *sarama.Config) { c.Producer.Timeout = c.Net.ReadTimeout }, "Producer.Timeout"},
		"metadata":           {func(c *sarama.Config) { c.Metadata.Timeout = time.Minute }, "Metadata.Timeout"},
		"metadata unlimited": {func(c *sarama.Config) { c.Metadata.Timeout = 0 }, "Metadata.Timeout"},
		"producer retries": {
			func(c *sarama.Config) { c.Producer.Retry.Backoff = 2 * time.Second },
			"Producer.Retry.Max",
		},
		"metadata retries": {func(c *sarama.Config) {
			c.Metadata.Retry.Max = 10
			c.Metadata.Retry.BackoffFunc = func(int, int) time.Duration { return time.Second }
		}, "Metadata.Retry.Max"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := kafkabridge.SaramaConfig(0)
			tc.change(c)
			_, err := kafkabridge.NewPublisher(kafkabridge.Config{Brokers: []string{"localhost:1"}, Sarama: c})
			if !errors.Is(err, kafkabridge.ErrUnsafeConfig) || !strings.Contains(err.Error(), tc.names) {
				t.Errorf("err = %v, want ErrUnsafeConfig naming %s", err, tc.names)
			}
		})
	}
}

func TestAllUnsafeSettingsAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := kafkabridge.NewPublisher(kafkabridge.Config{Brokers: []string{"localhost:1"}, Sarama: sarama.NewConfig()})
	if err == nil {
		t.Fatal("Sarama's defaults were accepted")
	}
	for _, name := range []string{
		"Producer.RequiredAcks", "Return.Successes", "Producer.Partitioner",
		"Net.DialTimeout", "Net.ReadTimeout", "Net.WriteTimeout", "Producer.Timeout", "Metadata.Timeout",
	} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s:\n%v", name, err)
		}
	}
}

func TestSafeConfigsAreAccepted(t *testing.T) {
	t.Parallel()
	other := kafkabridge.SaramaConfig(time.Second)
	other.Producer.Partitioner = sarama.NewReferenceHashPartitioner
	own := kafkabridge.SaramaConfig(0)
	own.Producer.Compression = sarama.CompressionSnappy
	pipelined := kafkabridge.SaramaConfig(0)
	pipelined.Producer.Idempotent, pipelined.Net.MaxOpenRequests = false, 5
	for name, cfg := range map[string]kafkabridge.Config{
		"default":           {},
		"timeout":           {PublishTimeout: 500 * time.Millisecond},
		"version":           {Version: sarama.V3_6_0_0, ClientID: "orders"},
		"own":               {Sarama: own},
		"not idempotent":    {Sarama: pipelined},
		"other partitioner": {Sarama: other, PublishTimeout: time.Second, AllowPartitioner: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.Brokers = []string{"localhost:1"} // nothing connects yet
			p, err := kafkabridge.NewPublisher(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	invalid := kafkabridge.SaramaConfig(0)
	invalid.Producer.MaxMessageBytes = 0
	for name, cfg := range map[string]kafkabridge.Config{
		"Brokers":         {},
		"Brokers[1]":      {Brokers: []string{"localhost:1", ""}},
		"PublishTimeout":  {Brokers: []string{"localhost:1"}, PublishTimeout: -1},
		"100ms":           {Brokers: []string{"localhost:1"}, PublishTimeout: time.Millisecond},
		"0.11":            {Brokers: []string{"localhost:1"}, Version: sarama.V0_10_0_0},
		"MaxMessageBytes": {Brokers: []string{"localhost:1"}, Sarama: invalid},
		"MaxStuck":        {Brokers: []string{"localhost:1"}, Bridge: watermillbridge.Config{MaxStuck: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := kafkabridge.NewPublisher(cfg)
			if err == nil {
				t.Fatal("accepted")
			}
			if want := strings.ReplaceAll(name, "0.11", "V0_11"); !strings.Contains(err.Error(), want) {
				t.Errorf("err = %v, want it to name %s", err, want)
			}
		})
	}
}
