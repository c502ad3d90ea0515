package inbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
)

// Defaults of ReleaseRequest.
const (
	DefaultReleaseWait = time.Minute
	DefaultReleaseIdle = 10 * time.Second
)

// Errors of Release that callers branch on with errors.Is. All released messages are in their
// topics, and all others are still in the poison queue.
var (
	// ErrParkedAgain: a released message was given up again. The error says why. Repair the
	// consumer, and release again.
	ErrParkedAgain = errors.New("inbox: a released message was given up again")

	// ErrNotHandled: a released message was neither processed nor given up within
	// ReleaseRequest.Wait. The consumer does not run, or it keeps failing.
	ErrNotHandled = errors.New("inbox: a released message was not handled")
)

// Metadata that Release writes. The value is the id of the run.
const (
	releasedBy = "released_by" // in a message that was sent to its topic
	keptBy     = "kept_by"     // in a message that was put at the end of the poison queue
)

// Release sends some messages, and waits until they are handled. firstWave is how many it sends at
// first, and lastWave how many at most.
const (
	firstWave = 1
	lastWave  = 256
)

// ReleaseRequest says which messages of a poison queue are released. From, Topic, To, Actor and
// Reason are required.
type ReleaseRequest struct {
	// From reads the poison queue, and removes a message from it when the message is acknowledged.
	// With Kafka it is a consumer group of its own, which remembers what was released
	// (kafkabridge.NewSubscriber); with RabbitMQ the queue itself. The caller closes it.
	From message.Subscriber
	// Topic is the poison queue.
	Topic string
	// To sends a message to the topic from which it was consumed. With Kafka it is the
	// MessagePublisher of a kafkabridge publisher. It also puts messages that are not selected back
	// into the queue.
	To message.Publisher

	Actor  string // the person or the program that asks
	Reason string // why the messages are released

	// Limit is how many messages are released at most. 0: all.
	Limit int
	// Select returns false for a message that stays in the queue. Later messages of its key stay
	// too, so that the order of the key is kept. Default: all are released.
	Select func(Parked) bool
	// Wait is how long Release waits until a released message is processed. Default: 1 minute.
	Wait time.Duration
	// Idle is how long the queue sends nothing until Release takes it for empty, and ends. It must
	// be longer than From needs to connect. Default: 10 s.
	Idle time.Duration
}

// Parked is a message in a poison queue.
type Parked struct {
	Message *message.Message // the parked message, with the metadata of Watermill's PoisonQueue
	Key     Key              // names its event in the table
	Topic   string           // where it was consumed
	Reason  string           // the error for which it was given up
	At      time.Time        // when it was parked; zero if another program than Poison parked it
}

// Released counts what Release did.
type Released struct {
	// Sent is how many messages are in their topics again. Processed is how many of these were
	// handled before Release returned.
	Sent, Processed int
	// Done is how many messages were only taken out of the queue, because their events were
	// processed or discarded already.
	Done int
	// Kept is how many messages are still in the queue, at its end. Select refused them, or they
	// have no usable event id or no topic, or they are those of another consumer.
	Kept int
}

// Release delivers parked messages again: call it when the consumer is repaired. It takes them from
// the poison queue, redrives their events (Redrive), and sends them to the topics from which they
// were consumed. The consumers must run.
//
// Release sends one message first, and waits until that is processed; then four, sixteen, and so on
// up to 256. If a message is given up again, it stops with ErrParkedAgain. So a consumer that is
// still broken costs few messages a second round. If a message is neither processed nor given up
// within Wait, Release stops with ErrNotHandled.
//
// Messages are sent one after another in the order of the queue. So the order of a key among the
// released messages is that in which they were given up. Events of the key that were processed
// meanwhile stay processed, and a message that is given up again goes to the end of the queue: see
// Config.OnlyNewer.
//
// A message leaves the queue after it was sent. If Release is killed between the two, the next
// Release finds it again, and its event is processed once, because the table decides. So
// Config.Retention has to cover the time that messages lie in the poison queue
// (Config.BrokerRetention).
//
// Each consumer needs a poison queue of its own. Several Releases may run at once.
func (in *Inbox) Release(ctx context.Context, req ReleaseRequest) (Released, error) {
	if err := req.check(); err != nil {
		return Released{}, err
	}
	r := &release{ReleaseRequest: req.withDefaults(), in: in, id: rand.Text(), size: firstWave, kept: map[string]bool{}}
	err := r.run(ctx)
	return r.Released, err
}

func (req ReleaseRequest) check() error {
	var problems []error
	bad := func(bad bool, text string) {
		if bad {
			problems = append(problems, fmt.Errorf("%w: ReleaseRequest.%s", ErrInvalidRequest, text))
		}
	}
	bad(isNil(req.From), "From is nil")
	bad(req.Topic == "", "Topic is empty")
	bad(isNil(req.To), "To is nil")
	bad(strings.TrimSpace(req.Actor) == "", "Actor is empty")
	bad(strings.TrimSpace(req.Reason) == "", "Reason is empty")
	bad(req.Limit < 0, "Limit is negative")
	bad(req.Wait < 0, "Wait is negative")
	bad(req.Idle < 0, "Idle is negative")
	return errors.Join(problems...)
}

func (req ReleaseRequest) withDefaults() ReleaseRequest {
	if req.Select == nil {
		req.Select = func(Parked) bool { return true }
	}
	req.Wait = cmp.Or(req.Wait, DefaultReleaseWait)
	req.Idle = cmp.Or(req.Idle, DefaultReleaseIdle)
	return req
}

// release is one run of Release.
type release struct {
	ReleaseRequest
	Released
	in   *Inbox
	id   string
	size int                // how many messages are sent before their outcome is awaited
	wave []Key              // events that were sent and whose outcome is not known
	kept map[string]bool    // keys of which a message was kept
	held []*message.Message // messages that are neither released nor kept
}

func (r *release) run(ctx context.Context) (err error) {
	reading, stop := context.WithCancel(ctx)
	msgs, err := r.From.Subscribe(reading, r.Topic)
	if err != nil {
		stop()
		return fmt.Errorf("inbox: read the poison queue %q: %w", r.Topic, err)
	}
	defer func() {
		stop()
		for _, msg := range r.held {
			msg.Nack()
		}
		drain(msgs)
	}()
	for r.Limit == 0 || r.Sent < r.Limit {
		msg, err := r.next(ctx, msgs)
		if err != nil {
			return err
		}
		if msg == nil {
			break
		}
		if err := r.take(ctx, msg); err != nil {
			return err
		}
		if len(r.wave) >= r.size {
			if err := r.outcomes(ctx); err != nil {
				return err
			}
			r.size = min(4*r.size, lastWave)
		}
	}
	return r.outcomes(ctx)
}

// next returns the next message, or nil at the end of the queue.
func (r *release) next(ctx context.Context, msgs <-chan *message.Message) (*message.Message, error) {
	idle := time.NewTimer(r.Idle)
	defer idle.Stop()
	select {
	case msg, open := <-msgs:
		if !open && ctx.Err() == nil {
			return nil, fmt.Errorf("inbox: the subscriber of the poison queue %q was closed", r.Topic)
		}
		return msg, ctx.Err()
	case <-idle.C:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// take releases or keeps a message, or takes it out of the queue because its event is done. If that
// fails, the message stays in the queue.
func (r *release) take(ctx context.Context, msg *message.Message) (err error) {
	defer func() {
		if err != nil {
			r.held = append(r.held, msg)
		}
	}()
	switch r.id {
	case msg.Metadata[keptBy]: // the whole queue was read once
		r.held = append(r.held, msg)
		return nil
	case msg.Metadata[releasedBy]:
		return fmt.Errorf("%w: %s", ErrParkedAgain, msg.Metadata[reasonPoisoned])
	}
	p, usable := r.parked(msg)
	order := msg.Metadata[core.HeaderTenantID] + "\x00" + msg.Metadata[core.HeaderPartitionKey]
	keyed := msg.Metadata[core.HeaderPartitionKey] != ""
	if !usable || keyed && r.kept[order] || !r.Select(p) {
		if keyed {
			r.kept[order] = true
		}
		return r.keep(ctx, msg)
	}
	state, err := r.in.State(ctx, p.Key)
	switch {
	case err != nil:
		return err
	case state == StateProcessed:
		r.Done++
		msg.Ack()
		return nil
	case state == StateDead:
		redrive := RedriveRequest{Keys: []Key{p.Key}, Actor: r.Actor, Reason: r.Reason}
		if _, err := r.in.Redrive(ctx, redrive); err != nil {
			return err
		}
	}
	if err := r.To.Publish(p.Topic, r.released(ctx, msg)); err != nil {
		return fmt.Errorf("inbox: send a released message to %q: %w", p.Topic, err)
	}
	r.Sent++
	r.wave = append(r.wave, p.Key)
	msg.Ack()
	return nil
}

// keep puts a message at the end of the queue.
func (r *release) keep(ctx context.Context, msg *message.Message) error {
	out := msg.Copy()
	out.SetContext(ctx)
	delete(out.Metadata, natsMsgID)
	delete(out.Metadata, core.HeaderSource)
	out.Metadata.Set(keptBy, r.id)
	if err := r.To.Publish(r.Topic, out); err != nil {
		return fmt.Errorf("inbox: keep a message in the poison queue %q: %w", r.Topic, err)
	}
	r.Kept++
	msg.Ack()
	return nil
}

// released returns the message as it was before it was parked, with the id of this run.
func (r *release) released(ctx context.Context, msg *message.Message) *message.Message {
	out := msg.Copy()
	out.SetContext(ctx)
	for _, name := range []string{
		reasonPoisoned, topicPoisoned, handlerPoisoned, subscriberPoisoned, consumerPoisoned, poisonedAt, keptBy,
		natsMsgID, core.HeaderSource,
	} {
		delete(out.Metadata, name)
	}
	out.Metadata.Set(releasedBy, r.id)
	return out
}

// parked reads the metadata of a message in the poison queue. A message is usable if it has a topic
// and an event id, and if this consumer parked it.
func (r *release) parked(msg *message.Message) (p Parked, usable bool) {
	md := msg.Metadata
	p = Parked{Message: msg, Topic: md[topicPoisoned], Reason: md[reasonPoisoned]}
	p.At, _ = time.Parse(time.RFC3339, md[poisonedAt])
	m := r.in.from.message(msg)
	if name := md[handlerPoisoned]; name != "" {
		m.Handler = name
	}
	e, err := r.in.engine.Event(m)
	p.Key = e.Key
	if c := md[consumerPoisoned]; c != "" && c != p.Key.Consumer {
		return p, false
	}
	return p, err == nil && p.Topic != ""
}

// outcomes waits until all messages of the wave are processed.
func (r *release) outcomes(ctx context.Context) error {
	const shortest = 10 * time.Millisecond
	waiting, stop := context.WithTimeout(ctx, r.Wait)
	defer stop()
	for pause := shortest; len(r.wave) > 0; {
		key := r.wave[0]
		state, err := r.in.State(waiting, key)
		switch {
		case err == nil && state == StateProcessed:
			r.Processed++
			r.wave, pause = r.wave[1:], shortest
			continue
		case err == nil && state == StateDead:
			return fmt.Errorf("%w: event %q of handler %q%s", ErrParkedAgain, key.EventID, key.Handler, r.why(ctx, key))
		case ctx.Err() != nil:
			return ctx.Err()
		case waiting.Err() != nil:
			return fmt.Errorf("%w within %s: event %q of handler %q, and %d sent after it", ErrNotHandled, r.Wait,
				key.EventID, key.Handler, len(r.wave)-1)
		case err != nil:
			return err
		}
		sleep(waiting, pause)
		pause = min(2*pause, time.Second)
	}
	return nil
}

// why returns the last error of a dead event.
func (r *release) why(ctx context.Context, k Key) string {
	dead, err := r.in.ListDead(ctx, DeadQuery{Handler: k.Handler, Tenant: k.Tenant, EventID: k.EventID})
	if err != nil || len(dead) == 0 {
		return ""
	}
	return ": " + dead[0].Text
}

// drain gives back what a subscriber still delivers after it was told to stop.
func drain(msgs <-chan *message.Message) {
	end := time.NewTimer(10 * time.Second)
	defer end.Stop()
	for {
		select {
		case msg, open := <-msgs:
			if !open {
				return
			}
			msg.Nack()
		case <-end.C:
			return
		}
	}
}
