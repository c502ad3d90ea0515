package natsbridge

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// PoisonQueue is a subject of a stream with messages that consumers gave up. It reads the stream up
// to the message that was the last one when it was opened, without a consumer on the server. A
// message that is acknowledged is deleted from the stream, and the others are not touched.
type PoisonQueue struct {
	session *session
	stream  jetstream.Stream
	subject string
	next    uint64 // the first sequence that was not read
	last    uint64 // of the stream when it was opened
}

var _ inbox.Queue = (*PoisonQueue)(nil)

// OpenPoisonQueue connects, and opens the stream of the subject. Without a stream the error wraps
// ErrNoStream. Of cfg it uses URL, Options, ConnectTimeout, Stream and the Logger. The user needs
// the rights to $JS.API.STREAM.INFO, MSG.GET and MSG.DELETE of the stream, and the stream must allow
// deletes.
func OpenPoisonQueue(ctx context.Context, cfg Config, subject string) (*PoisonQueue, error) {
	options, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	if err := checkSubject(subject); err != nil {
		return nil, err
	}
	s, err := connect(cfg.Bridge.Logger, *options)
	if err != nil {
		return nil, marked(fmt.Errorf("natsbridge: connect to %s: %w", addresses(options.Servers...), err))
	}
	q := &PoisonQueue{session: s, subject: subject, next: 1}
	if err := q.open(ctx, &SubscriberConfig{Stream: cfg.Stream}); err != nil {
		_ = q.Close()
		return nil, err
	}
	return q, nil
}

func (q *PoisonQueue) open(ctx context.Context, streams *SubscriberConfig) error {
	name, err := streams.streamOf(ctx, q.session.js, q.subject)
	if err != nil {
		return err
	}
	if q.stream, err = q.session.js.Stream(ctx, name); err != nil {
		return marked(fmt.Errorf("natsbridge: ask for stream %s: %w", name, err))
	}
	info := q.stream.CachedInfo()
	if info.Config.DenyDelete {
		return fmt.Errorf("natsbridge: stream %s denies deletes, so no message can leave the poison queue %q: park in "+
			"a stream without deny_delete", name, q.subject)
	}
	q.last = info.State.LastSeq
	return nil
}

// Next implements inbox.Queue.
func (q *PoisonQueue) Next(ctx context.Context) (inbox.Message, error) {
	if q.next > q.last {
		return inbox.Message{}, io.EOF
	}
	m, err := q.stream.GetMsg(ctx, q.next, jetstream.WithGetMsgSubject(q.subject))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return inbox.Message{}, io.EOF
	case err != nil:
		return inbox.Message{}, q.failed("read", q.next, err)
	case m.Sequence > q.last: // parked since
		return inbox.Message{}, io.EOF
	}
	q.next = m.Sequence + 1
	return parked(m), nil
}

// parked returns a message as the Subscriber does, without its place. That of a message without a
// UUID is not needed either: an event of another program has its id in a header or in the payload.
func parked(m *jetstream.RawStreamMsg) inbox.Message {
	msg := inbox.Message{
		UUID: m.Header.Get(uuidHeader), Headers: make(map[string]string, len(m.Header)), Payload: m.Data,
		Raw: m.Sequence,
	}
	for name, values := range m.Header {
		if name != uuidHeader && !commands(name) && len(values) > 0 {
			msg.Headers[name] = values[0]
		}
	}
	return msg
}

// Ack implements inbox.Queue. It is no error if another release has deleted the message.
func (q *PoisonQueue) Ack(ctx context.Context, msg inbox.Message) error {
	seq, ok := msg.Raw.(uint64)
	if !ok {
		return fmt.Errorf("natsbridge: the message is not of subject %q", q.subject)
	}
	err := q.stream.DeleteMsg(ctx, seq)
	if err == nil {
		return nil
	}
	if _, gone := q.stream.GetMsg(ctx, seq); errors.Is(gone, jetstream.ErrMsgNotFound) {
		return nil
	}
	return q.failed("delete", seq, err)
}

func (q *PoisonQueue) failed(doing string, seq uint64, err error) error {
	stream := q.stream.CachedInfo().Config.Name
	return marked(fmt.Errorf("natsbridge: %s message %d of stream %s: %w", doing, seq, stream, err))
}

// Close disconnects.
func (q *PoisonQueue) Close() error {
	q.session.conn.Close()
	return nil
}
