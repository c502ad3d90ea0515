package kafkabridge

import (
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// besidePayload is an upper limit for the key, the headers and the fields of an event in a message.
const besidePayload = 32 << 10

// checkSize returns the watermillbridge.Config.CheckSize of messages of at most limit bytes, as
// Sarama counts them. It refuses a topic that has no name in Kafka, too. For events far below the
// limit it does not build a message. mapper may be nil.
func checkSize(limit int, rowIDMetadata string, mapper *cloudevents.Mapper) func(core.Event) error {
	return func(e core.Event) error {
		if err := checkTopic(e.Topic); err != nil {
			return err
		}
		payload, beside := len(e.Payload), besidePayload
		if mapper != nil { // base64, and attributes beside the fields
			payload, beside = payload/3*4, 3*besidePayload
		}
		if payload <= limit-beside {
			return nil
		}
		size, err := messageSize(e, rowIDMetadata, mapper)
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
func messageSize(e core.Event, rowIDMetadata string, mapper *cloudevents.Mapper) (int, error) {
	msg, payload, err := link.Largest(e, rowIDMetadata, mapper)
	if err != nil {
		return 0, err
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
