package kafkabridge_test

import (
	"errors"
	"testing"

	"github.com/IBM/sarama"

	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// The numbers were computed with org.apache.kafka.common.utils.Utils of kafka-clients 4.3.1:
// toPositive(murmur2(key)) % 3 and % 12.
var javaPartitions = []struct {
	key       string
	of3, of12 int32
}{
	{"", 0, 9},
	{"a", 1, 4},
	{"ab", 2, 2},
	{"abc", 0, 3},
	{"abcd", 2, 8},
	{"21", 0, 0},
	{"foobar", 0, 6},
	{"a-little-bit-long-string", 2, 8},
	{"a-little-bit-longer-string", 2, 11},
	{"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", 2, 5},
	{"order/o-1", 0, 0},
	{"order/o-2", 1, 1},
	{"order/o-3", 1, 10},
	{"Grüße/ß", 1, 1},
	{"kunde-7", 1, 10},
}

func TestPartitionerAgreesWithJava(t *testing.T) {
	t.Parallel()
	p := kafkabridge.NewPartitioner("orders")
	for _, v := range javaPartitions {
		msg := &sarama.ProducerMessage{Key: sarama.StringEncoder(v.key)}
		for n, want := range map[int32]int32{3: v.of3, 12: v.of12, 1: 0} {
			if got, err := p.Partition(msg, n); got != want || err != nil {
				t.Errorf("key %q of %d partitions: %d, %v; Java says %d", v.key, n, got, err, want)
			}
		}
	}
}

func TestPartitionerSpreadsMessagesWithoutKey(t *testing.T) {
	t.Parallel()
	p := kafkabridge.NewPartitioner("orders")
	count := map[int32]int{}
	for range 9 {
		n, err := p.Partition(&sarama.ProducerMessage{}, 3)
		if err != nil {
			t.Fatal(err)
		}
		count[n]++
	}
	if count[0] != 3 || count[1] != 3 || count[2] != 3 {
		t.Errorf("partitions = %v, want 3 each", count)
	}
}

func TestPartitionerKeepsOnlyKeysInPlace(t *testing.T) {
	t.Parallel()
	p, ok := kafkabridge.NewPartitioner("orders").(sarama.DynamicConsistencyPartitioner)
	if !ok {
		t.Fatal("messages without a key would go to partitions without a leader")
	}
	if !p.MessageRequiresConsistency(&sarama.ProducerMessage{Key: sarama.StringEncoder("")}) {
		t.Error("a key may move")
	}
	if p.MessageRequiresConsistency(&sarama.ProducerMessage{}) {
		t.Error("a message without a key may not move")
	}
}

type brokenEncoder struct{}

var errEncode = errors.New("cannot encode")

func (brokenEncoder) Encode() ([]byte, error) { return nil, errEncode }
func (brokenEncoder) Length() int             { return 0 }

func TestPartitionerReportsAKeyItCannotRead(t *testing.T) {
	t.Parallel()
	_, err := kafkabridge.NewPartitioner("orders").Partition(&sarama.ProducerMessage{Key: brokenEncoder{}}, 3)
	if !errors.Is(err, errEncode) {
		t.Errorf("err = %v", err)
	}
}
