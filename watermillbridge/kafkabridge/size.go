package kafkabridge

import (
	"context"
	"fmt"
	"math"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// besidePayload is an upper limit for the key, the headers and the fields of an event in a message.
const besidePayload = 32 << 10

// checkSize returns the watermillbridge.Config.CheckSize of messages of at most limit bytes, as
// Sarama counts them. For events far below the limit it does not build a message.
func checkSize(limit int, rowIDMetadata string) func(core.Event) error {
	return func(e core.Event) error {
		if len(e.Payload) <= limit-besidePayload {
			return nil
		}
		size, err := messageSize(e, rowIDMetadata)
		if err == nil && size > limit { // err is left to the relay
			return tooLarge(size, limit)
		}
		return nil
	}
}

func tooLarge(size, limit int) error {
	return fmt.Errorf("kafkabridge: the message would have %d bytes with key and headers, more than "+
		"Producer.MaxMessageBytes %d: "+
		"store the payload elsewhere and send a reference, or raise Producer.MaxMessageBytes in Config.Sarama "+
		"together with "+
		"max.message.bytes of the topic", size, limit)
}

// messageSize returns the largest size that the message of an event can have, with later attempts
// and as a replay.
func messageSize(e core.Event, rowIDMetadata string) (int, error) {
	payload := len(e.Payload)
	e.Payload = nil
	id := core.RowID{1}
	d := core.Delivery{Event: e, RowID: id, KeySeq: math.MaxInt64, Attempt: math.MaxInt32, ReplayOf: id}
	msg := watermillbridge.NewMessage(context.Background(), d)
	if rowIDMetadata != "" {
		msg.Metadata.Set(rowIDMetadata, id.String())
	}
	km, err := marshaler{}.Marshal(e.Topic, msg)
	if err != nil {
		return 0, err
	}
	return km.ByteSize(recordVersion) + payload, nil
}

// recordVersion is the version of Kafka's message format since 0.11. Idempotence and headers need
// it.
const recordVersion = 2
