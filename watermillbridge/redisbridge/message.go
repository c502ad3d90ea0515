package redisbridge

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Names of the fields of an entry, the same as in watermill-redisstream.
const (
	fieldUUID     = "_watermill_message_uuid"
	fieldMetadata = "metadata"
	fieldPayload  = "payload"
)

// entry returns the fields and values of a message.
func entry(msg *message.Message) []any {
	return []any{
		fieldUUID, msg.UUID, fieldMetadata, encodeMetadata(msg.Metadata), fieldPayload, []byte(msg.Payload),
	}
}

// encodeMetadata writes metadata in MessagePack, with the names in order. It is empty without
// metadata.
func encodeMetadata(md message.Metadata) []byte {
	if len(md) == 0 {
		return []byte{}
	}
	size := 5
	for name, v := range md {
		size += len(name) + len(v) + 10
	}
	b := make([]byte, 0, size)
	switch n := len(md); {
	case n < 16:
		b = append(b, 0x80|byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, 0xde), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdf), uint32(n))
	}
	for _, name := range slices.Sorted(maps.Keys(md)) {
		b = appendText(appendText(b, name), md[name])
	}
	return b
}

func appendText(b []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		b = append(b, 0xa0|byte(n))
	case n <= math.MaxUint8:
		b = append(b, 0xd9, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, 0xda), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
	}
	return append(b, s...)
}
