package redisbridge

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// ErrNoStream: there is no such stream. Nothing was parked there, or that is not its name.
var ErrNoStream = errors.New("redisbridge: no such stream")

// PoisonQueue is a stream with messages that consumers gave up. It reads the stream up to the entry
// that was the last one when it was opened, without a consumer group. An entry that is acknowledged
// is deleted, and the others are not touched.
type PoisonQueue struct {
	client redis.UniversalClient
	stream string
	after  string // the last entry that was read
	last   string // of the stream when it was opened
	read   []redis.XMessage
}

var _ inbox.Queue = (*PoisonQueue)(nil)

// OpenPoisonQueue opens a stream. The error wraps ErrNoStream if there is none. The caller closes the
// client.
func OpenPoisonQueue(ctx context.Context, client redis.UniversalClient, stream string) (*PoisonQueue, error) {
	if client == nil || stream == "" {
		return nil, errors.New("redisbridge: a poison queue needs a client and the name of its stream")
	}
	info, err := client.XInfoStream(ctx, stream).Result()
	if answer, ok := errors.AsType[redis.Error](err); ok && strings.Contains(answer.Error(), "no such key") {
		return nil, fmt.Errorf("%w: %q: nothing was parked there, or is that its name?", ErrNoStream, stream)
	}
	if err != nil {
		return nil, marked(fmt.Errorf("redisbridge: open the poison queue %q: %w", stream, err))
	}
	return &PoisonQueue{client: client, stream: stream, after: "0-0", last: info.LastGeneratedID}, nil
}

// readAtOnce is how many entries are read with one command.
const readAtOnce = 100

// Next implements inbox.Queue.
func (q *PoisonQueue) Next(ctx context.Context) (inbox.Message, error) {
	if len(q.read) == 0 && q.after != q.last {
		var err error
		if q.read, err = q.client.XRangeN(ctx, q.stream, "("+q.after, q.last, readAtOnce).Result(); err != nil {
			return inbox.Message{}, marked(fmt.Errorf("redisbridge: read stream %q: %w", q.stream, err))
		}
	}
	if len(q.read) == 0 {
		return inbox.Message{}, io.EOF
	}
	x := q.read[0]
	q.read, q.after = q.read[1:], x.ID
	return parked(x), nil
}

// parked returns an entry as watermill-redisstream reads it. One that it cannot read has no headers,
// and stays in the stream.
func parked(x redis.XMessage) inbox.Message {
	text := func(field string) string { s, _ := x.Values[field].(string); return s }
	msg := inbox.Message{UUID: text(fieldUUID), Payload: []byte(text(fieldPayload)), Raw: x.ID}
	msg.Headers, _ = decodeMetadata(text(fieldMetadata))
	return msg
}

// Ack implements inbox.Queue. It is no error if another release has deleted the entry.
func (q *PoisonQueue) Ack(ctx context.Context, msg inbox.Message) error {
	id, ok := msg.Raw.(string)
	if !ok {
		return fmt.Errorf("redisbridge: the message is not of stream %q", q.stream)
	}
	if err := q.client.XDel(ctx, q.stream, id).Err(); err != nil {
		return marked(fmt.Errorf("redisbridge: delete entry %s of stream %q: %w", id, q.stream, err))
	}
	return nil
}

var errMetadata = errors.New("redisbridge: the metadata are no map of texts in MessagePack")

// decodeMetadata reads what encodeMetadata or watermill-redisstream has written.
func decodeMetadata(s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	d := decoder{rest: []byte(s)}
	n := d.size(0x80, 0x0f, 0, 0xde, 0xdf)
	md := make(map[string]string, min(n, len(s)/2)) // each takes two bytes at least
	for range n {
		name := d.text()
		md[name] = d.text()
		if d.bad {
			return nil, errMetadata
		}
	}
	if d.bad || len(d.rest) > 0 {
		return nil, errMetadata
	}
	return md, nil
}

type decoder struct {
	rest []byte
	bad  bool
}

// take returns the next n bytes, or n zeros at the end.
func (d *decoder) take(n int) []byte {
	if d.bad || n > len(d.rest) {
		d.bad, d.rest = true, nil
		return make([]byte, min(n, 4))
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

// size reads a length: in the low bits of a byte that begins with fix, or behind the code for one
// (0: there is none), two or four bytes.
func (d *decoder) size(fix, low, one, two, four byte) int {
	switch b := d.take(1)[0]; {
	case b&^low == fix:
		return int(b & low)
	case b == one && one != 0:
		return int(d.take(1)[0])
	case b == two:
		return int(binary.BigEndian.Uint16(d.take(2)))
	case b == four:
		return int(binary.BigEndian.Uint32(d.take(4)))
	}
	d.bad = true
	return 0
}

func (d *decoder) text() string { return string(d.take(d.size(0xa0, 0x1f, 0xd9, 0xda, 0xdb))) }
