package natsbridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/core"
)

// reading is a subscription of a topic.
type reading struct {
	*Subscriber

	topic  string
	output chan *message.Message
	slots  chan struct{} // one for each message that the handlers may have
	// ended is closed when no more messages are asked for. A message that is given back before that
	// may come back here.
	ended   chan struct{}
	senders sync.WaitGroup // messages that may still be sent to output
	working sync.WaitGroup // messages that are not answered yet
}

// run reads until parent ends or the subscriber is closed. The handlers' contexts have the values
// of parent, and end CloseTimeout later.
func (r *reading) run(parent context.Context, consumer jetstream.Consumer) {
	ctx, stop := context.WithCancel(parent)
	defer stop()
	work, giveUp := context.WithCancel(context.WithoutCancel(parent))
	defer giveUp()
	r.running.Go(func() {
		defer stop()
		select {
		case <-r.closing:
		case <-ctx.Done():
		}
	})
	defer context.AfterFunc(ctx, func() { time.AfterFunc(r.cfg.CloseTimeout, giveUp) })()

	for ctx.Err() == nil {
		err := r.read(ctx, work, consumer)
		if err == nil && ctx.Err() == nil { // a person may have changed the consumer
			consumer, err = r.consumer(ctx, r.topic)
		}
		for pause := time.Second; err != nil && ctx.Err() == nil; pause = min(2*pause, 10*time.Second) {
			r.cfg.Logger.Warn("natsbridge: cannot read messages, and tries again", "topic", r.topic, "group",
				r.cfg.Group, "error", err)
			select {
			case <-time.After(pause):
				consumer, err = r.consumer(ctx, r.topic)
			case <-ctx.Done():
			}
		}
	}
	close(r.ended)
	r.senders.Wait()
	close(r.output)
	r.working.Wait()
}

// pullFor is how long the server keeps a request for a message. Close waits so long for the end of
// the last one. A message that came after its request was cancelled would be lost until AckWait is
// over.
const pullFor = time.Second

// read delivers messages until ctx ends, or the consumer is gone, or for checkEvery. It asks for
// one message at a time, when a handler is free. The iterator of jetstream (Consumer.Messages) asks
// for more than the handlers can take. With nats.go v1.55.0 it may forget to ask if it is to keep
// one message.
func (r *reading) read(ctx, work context.Context, consumer jetstream.Consumer) error {
	for since := time.Now(); time.Since(since) < checkEvery; {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		var m jetstream.Msg
		asked, err := time.Now(), ctx.Err()
		if err == nil {
			m, err = consumer.Next(jetstream.FetchMaxWait(pullFor))
		}
		if err != nil {
			<-r.slots
			if !errors.Is(err, nats.ErrTimeout) {
				return err
			}
			// The server answers also if there is no message. The client waits a second longer.
			if time.Since(asked) > pullFor+900*time.Millisecond {
				return errors.New("the server does not answer to requests for messages")
			}
			continue
		}
		r.senders.Add(1)
		r.working.Go(func() {
			defer func() { <-r.slots }()
			r.deliver(ctx, work, m)
		})
	}
	return nil
}

// deliver gives a message to a handler and its answer to the server.
func (r *reading) deliver(ctx, work context.Context, m jetstream.Msg) {
	msg := received(m, r.topic)
	work, cancel := context.WithCancel(work)
	defer cancel()
	msg.SetContext(work)
	alive := time.NewTicker(max(r.cfg.AckWait/3, time.Millisecond))
	defer alive.Stop()
	sent := func() bool {
		defer r.senders.Done()
		for {
			select {
			case r.output <- msg:
				return true
			case <-ctx.Done():
				return false
			case <-alive.C:
				r.tell(msg, m.InProgress())
			}
		}
	}()
	if !sent {
		<-r.ended
		r.tell(msg, m.Nak())
		return
	}
	for {
		select {
		case <-msg.Acked():
			r.answer(msg, m.DoubleAck)
			return
		case <-msg.Nacked():
			r.answer(msg, func(context.Context) error { return m.NakWithDelay(r.cfg.NackPause) })
			return
		case <-work.Done():
			<-r.ended
			r.tell(msg, m.Nak())
			return
		case <-alive.C:
			r.tell(msg, m.InProgress())
		}
	}
}

// answer sends the handler's answer to the server. It tries again after a short outage: the message
// would come again after AckWait, and with MaxAckPending 1 no other until then. It returns when the
// server has an acknowledgement, because the next message may come before a lost one is noticed.
func (r *reading) answer(msg *message.Message, send func(context.Context) error) {
	wait, done := context.WithTimeout(context.Background(), min(r.cfg.AckWait, 5*time.Second))
	defer done()
	for {
		try, tried := context.WithTimeout(wait, time.Second)
		err := send(try)
		tried()
		// Without responders the consumer is gone, and another stream may have the sequence later.
		if err == nil || errors.Is(err, nats.ErrNoResponders) {
			r.tell(msg, err)
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-wait.Done():
			r.tell(msg, err)
			return
		}
	}
}

// tell logs that the server did not get the answer to a message.
func (r *reading) tell(msg *message.Message, err error) {
	if err != nil {
		r.cfg.Logger.Warn("natsbridge: the server did not get the answer to a message, which is delivered again",
			"topic", r.topic, "group", r.cfg.Group, "source", msg.Metadata[core.HeaderSource], "error", err)
	}
}

// received converts a message of NATS to Watermill's. A message that no bridge has sent gets
// stream@sequence as its UUID.
func received(m jetstream.Msg, topic string) *message.Message {
	msg := message.NewMessage(m.Headers().Get(uuidHeader), m.Data())
	if at, err := m.Metadata(); err == nil {
		msg.Metadata[core.HeaderSource] = fmt.Sprintf("%s/0/%d", topic, at.Sequence.Stream)
		if msg.UUID == "" {
			msg.UUID = fmt.Sprintf("%s@%d", at.Stream, at.Sequence.Stream)
		}
	}
	for name, values := range m.Headers() {
		if name != uuidHeader && name != core.HeaderSource && !commands(name) && len(values) > 0 {
			msg.Metadata[name] = values[0]
		}
	}
	return msg
}
