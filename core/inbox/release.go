package inbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/failgroup"
)

// Errors of [Release] that callers branch on with errors.Is. All released messages are in their
// topics, and all others are still in the queue.
var (
	// ErrParkedAgain: a released message was given up again. The error has the reason. Repair the
	// consumer, and release again.
	ErrParkedAgain = errors.New("inbox: a released message was given up again; the messages that were not sent are " +
		"still in the queue; repair the consumer and release again")

	// ErrNotHandled: a released message was neither processed nor given up within
	// [ReleaseRequest.Wait]. The consumer does not run, or it keeps failing.
	ErrNotHandled = errors.New("inbox: a released message was not handled; it is in its topic, and the messages that " +
		"were not sent are still in the queue; see that the consumer runs and release again")
)

// Headers of a parked message. Watermill's PoisonQueue, and the option Poison of module inbox, use
// the same names. A program that parks messages itself sets them, so that [Release] can deliver the
// messages again.
const (
	HeaderParkedReason   = "reason_poisoned"   // the error for which it was given up
	HeaderParkedTopic    = "topic_poisoned"    // where it was consumed; required by Release
	HeaderParkedHandler  = "handler_poisoned"  // Key.Handler; default: Config.Handler
	HeaderParkedConsumer = "consumer_poisoned" // Key.Consumer; Release skips other consumers
	HeaderParkedAt       = "poisoned_at"       // when it was parked: RFC 3339, UTC
)

const (
	// headerReleasedBy is in a message that was sent to its topic. Its value is the id of the run.
	headerReleasedBy = "released_by"
	headerSubscriber = "subscriber_poisoned" // written by Watermill
	headerKeptBy     = "kept_by"             // written by Release of module inbox
	// headerNATSMsgID names a message for a JetStream stream, which would drop the released message
	// as a copy of the first.
	headerNATSMsgID = "Nats-Msg-Id"
)

// Queue has the messages that a poison queue holds when it is opened, and none that is parked
// later. Packages amqpbridge, franzbridge, natsbridge and redisbridge open queues of their brokers.
// It is used by one goroutine.
type Queue interface {
	// Next returns the next message, each message once, and the messages of a key in the order in
	// which they were parked. The error is io.EOF at the end of the queue, as the broker reports
	// it. Raw is for Ack.
	Next(ctx context.Context) (Message, error)
	// Ack takes a message that Next returned out of the queue, and returns when the broker has
	// confirmed it. A message that is not acknowledged stays where it is, also if the process is
	// killed.
	Ack(ctx context.Context, msg Message) error
}

// Sender sends messages to a broker. The Publishers of the bridges are Senders.
type Sender interface {
	// Send sends the headers and the payload of msg to a topic, unchanged. It returns nil when the
	// broker has stored the message.
	Send(ctx context.Context, topic string, msg Message) error
}

// ReleaseRequest selects the messages of a poison queue to release. From, To, Actor and Reason are
// required; a DryRun needs only From.
type ReleaseRequest struct {
	From Queue  // the poison queue; the caller closes it
	To   Sender // sends a message to the topic from which it was consumed

	Actor  string // the person or the program that asks
	Reason string // why the messages are released

	// Limit is how many messages are released at most. 0: all.
	Limit int
	// Select returns false for a message that stays in the queue. Later messages of its key stay
	// too, so that the order of the key is kept. Default: all are released.
	Select func(Parked) bool
	// Edit returns the payload with which a message is sent. The event keeps its id. An error ends
	// Release, and the message stays in the queue. Default: the payload is sent as it is.
	Edit func(Parked) (payload []byte, err error)
	// Before is called before a message is sent, with its new payload if Edit changed it, else nil.
	// An error ends Release, and the message stays in the queue.
	Before func(ctx context.Context, p Parked, payload []byte) error
	// DryRun counts the messages that would be released, in [Released.Groups] too, and changes
	// nothing.
	DryRun bool
	// Wait is how long Release waits until a released message is processed. Default: 1 minute.
	Wait time.Duration
	// Progress is called after each message and each outcome. Groups is nil. Default: nobody.
	Progress func(Released)
}

// Parked is a message in a poison queue.
type Parked struct {
	Message Message   // as it is parked
	Key     Key       // names its event in the table
	Topic   string    // where it was consumed
	Reason  string    // the error for which it was given up
	At      time.Time // when it was parked; zero if the message does not carry it
}

// Released counts the results of Release, or of a dry run.
type Released struct {
	// Sent is how many messages are in their topics again. Processed is how many of these were
	// handled before Release returned.
	Sent      int `json:"sent"`
	Processed int `json:"processed"`
	// Done is how many messages were only taken out of the queue, because their events were
	// processed or discarded already.
	Done int `json:"done"`
	// Kept is how many messages were examined and stay in the queue. Select refused them, or they
	// have no usable event id or no topic, or they belong to another consumer.
	Kept int `json:"kept"`
	// Behind is how many of the Kept messages Select accepted. They stay behind a message of their
	// handler and key that Select refused, so that the order of the key is kept.
	Behind int `json:"behind"`
	// Groups has the messages that a DryRun counts as Sent, by cause: the largest group first, 100
	// groups at most.
	Groups []ReleaseGroup `json:"groups,omitempty"`
}

// ReleaseGroup has messages of one handler that were given up for the same reason.
type ReleaseGroup struct {
	Handler  string `json:"handler"`
	Topic    string `json:"topic"`
	Reason   string `json:"reason"` // without the numbers, ids and quoted texts in which they differ
	Messages int    `json:"messages"`
	EventID  string `json:"event_id"` // of the first of them
}

// Release sends some messages, and waits until they are handled. firstWave is how many it sends at
// first, and lastWave how many at most.
const (
	firstWave = 1
	lastWave  = 256
)

// Release delivers parked messages again: call it when the consumer is repaired. It takes them from
// the poison queue, redrives their events, and sends them to the topics from which they were
// consumed. The consumers must run.
//
// Release sends one message first, and waits until that is processed; then four, sixteen, and so on
// up to 256. If a message is given up again, it stops with [ErrParkedAgain]. So a consumer that is
// still broken costs few messages a second round. If a message is neither processed nor given up
// within Wait, Release stops with [ErrNotHandled].
//
// Messages are sent one after another in the order of the queue. So released messages of one key
// are sent in the order in which they were given up. Events of the key that were processed
// meanwhile stay processed, and a message that is given up again goes to the end of the queue: see
// [Config.OnlyNewer].
//
// A message leaves the queue after it was sent. If Release is killed between the two, the next
// Release finds it again, and its event is processed once, because the table decides. So
// [Config.Retention] has to cover the time that messages lie in the poison queue
// (BrokerRetention).
//
// Each consumer needs a poison queue of its own. Several Releases may run at once; a queue of RabbitMQ
// refuses all but one.
func (in *Inbox) Release(ctx context.Context, req ReleaseRequest) (Released, error) {
	if err := req.Validate(); err != nil {
		return Released{}, err
	}
	r := &release{
		ReleaseRequest: req.withDefaults(),
		in:             in,
		id:             rand.Text(),
		size:           firstWave,
		kept:           map[orderOf]bool{},
	}
	err := r.run(ctx)
	r.Groups = r.groups.list()
	return r.Released, err
}

// Validate reports every problem of the request at once. Each wraps [ErrInvalidRequest].
func (req ReleaseRequest) Validate() error {
	var problems []error
	bad := func(bad bool, text string) {
		if bad {
			problems = append(problems, fmt.Errorf("%w: ReleaseRequest.%s", ErrInvalidRequest, text))
		}
	}
	bad(req.From == nil, "From is nil")
	bad(req.To == nil && !req.DryRun, "To is nil")
	bad(strings.TrimSpace(req.Actor) == "" && !req.DryRun, "Actor is empty")
	bad(strings.TrimSpace(req.Reason) == "" && !req.DryRun, "Reason is empty")
	bad(req.Limit < 0, "Limit is negative")
	bad(req.Wait < 0, "Wait is negative")
	return errors.Join(problems...)
}

func (req ReleaseRequest) withDefaults() ReleaseRequest {
	if req.Select == nil {
		req.Select = func(Parked) bool { return true }
	}
	if req.Progress == nil {
		req.Progress = func(Released) {}
	}
	req.Wait = cmp.Or(req.Wait, time.Minute)
	return req
}

// orderOf identifies messages that a handler processes in order.
type orderOf struct{ handler, topic, tenant, key string }

// release is one run of Release.
type release struct {
	ReleaseRequest
	Released
	in     *Inbox
	id     string
	size   int              // how many messages are sent before their outcome is awaited
	wave   []Key            // events that were sent and whose outcome is not known
	kept   map[orderOf]bool // keys of which a message was kept
	groups releaseGroups
}

func (r *release) run(ctx context.Context) error {
	for r.Limit == 0 || r.Sent < r.Limit {
		msg, err := r.From.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if err := r.take(ctx, msg); err != nil {
			return err
		}
		r.Progress(r.Released)
		if len(r.wave) >= r.size {
			if err := r.outcomes(ctx); err != nil {
				return err
			}
			r.size = min(4*r.size, lastWave)
		}
	}
	return r.outcomes(ctx)
}

// take releases or keeps a message, or takes it out of the queue because its event is done. If that
// fails, the message stays in the queue.
func (r *release) take(ctx context.Context, msg Message) error {
	p, usable := r.in.parked(msg)
	if msg.Headers[headerReleasedBy] == r.id && slices.Contains(r.wave, p.Key) {
		return fmt.Errorf("%w: %s", ErrParkedAgain, p.Reason)
	}
	h := core.UnpackFields(msg.Headers)
	key := h[core.HeaderPartitionKey]
	order := orderOf{p.Key.Handler, p.Topic, h[core.HeaderTenantID], key}
	switch selected := usable && r.Select(p); {
	case selected && r.kept[order]:
		r.Kept++
		r.Behind++
		return nil
	case !selected:
		if usable && key != "" {
			r.kept[order] = true
		}
		r.Kept++
		return nil
	}
	state, err := r.in.State(ctx, p.Key)
	switch {
	case err != nil:
		return err
	case state == StateProcessed:
		r.Done++
		if r.DryRun {
			return nil
		}
		return r.From.Ack(ctx, msg)
	case r.DryRun:
		r.Sent++
		r.groups.add(p)
		return nil
	}
	return r.send(ctx, p, state)
}

// send releases a message.
func (r *release) send(ctx context.Context, p Parked, state State) error {
	out, err := r.released(p)
	if err != nil {
		return err
	}
	if r.Before != nil {
		var payload []byte
		if r.Edit != nil {
			payload = out.Payload
		}
		if err := r.Before(ctx, p, payload); err != nil {
			return err
		}
	}
	if state == StateDead {
		if _, err := r.in.Redrive(ctx, []Key{p.Key}, r.Actor, r.Reason); err != nil {
			return err
		}
	}
	if err := r.To.Send(ctx, p.Topic, out); err != nil {
		return fmt.Errorf("inbox: send a released message to %q: %w", p.Topic, err)
	}
	r.Sent++
	r.wave = append(r.wave, p.Key)
	return r.From.Ack(ctx, p.Message)
}

// parkedHeaders are removed from a released message.
var parkedHeaders = []string{
	HeaderParkedReason, HeaderParkedTopic, HeaderParkedHandler, headerSubscriber, HeaderParkedConsumer, HeaderParkedAt,
	headerKeptBy, headerNATSMsgID, core.HeaderSource,
}

// released returns the message as it was before it was parked, with the id of this run and the
// payload of Edit.
func (r *release) released(p Parked) (Message, error) {
	out := p.Message
	out.Headers = maps.Clone(out.Headers)
	for _, name := range parkedHeaders {
		delete(out.Headers, name)
	}
	out.Headers[headerReleasedBy] = r.id
	if r.Edit == nil {
		return out, nil
	}
	payload, err := r.Edit(p)
	if err != nil {
		return out, fmt.Errorf("inbox: edit event %q: %w", p.Key.EventID, err)
	}
	out.Payload, out.Handler = payload, p.Key.Handler
	if e, err := r.in.Event(out); err != nil || e.Key != p.Key {
		return out, fmt.Errorf("%w: with the new payload, event %q of tenant %q would be %q of %q: the id in the "+
			"payload has to stay", ErrInvalidRequest, p.Key.EventID, p.Key.Tenant, e.EventID, e.Tenant)
	}
	return out, nil
}

// parked reads the headers of a message in the poison queue. A message is usable if it has a topic
// and an event id, and if this consumer parked it.
func (in *Inbox) parked(msg Message) (p Parked, usable bool) {
	h := msg.Headers
	p = Parked{Message: msg, Topic: h[HeaderParkedTopic], Reason: h[HeaderParkedReason]}
	p.At, _ = time.Parse(time.RFC3339, h[HeaderParkedAt])
	if name := h[HeaderParkedHandler]; name != "" {
		msg.Handler = name
	}
	e, err := in.Event(msg)
	p.Key = e.Key
	if c := h[HeaderParkedConsumer]; c != "" && c != p.Key.Consumer {
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
			r.Progress(r.Released)
			continue
		case err == nil && state == StateDead:
			return fmt.Errorf("%w: event %q of handler %q%s", ErrParkedAgain, key.EventID, key.Handler, r.why(ctx, key))
		case ctx.Err() != nil:
			return ctx.Err()
		case waiting.Err() != nil:
			return fmt.Errorf("%w: within %s: event %q of handler %q, and %d sent after it", ErrNotHandled, r.Wait,
				key.EventID, key.Handler, len(r.wave)-1)
		case err != nil:
			return err
		}
		Result{After: pause}.Wait(waiting)
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

// maxReleaseGroups bounds Released.Groups.
const maxReleaseGroups = 100

// releaseGroups collects the groups of a dry run. The zero value is empty.
type releaseGroups map[[3]string]*ReleaseGroup

func (g *releaseGroups) add(p Parked) {
	if *g == nil {
		*g = releaseGroups{}
	}
	name := [3]string{p.Key.Handler, p.Topic, failgroup.Pattern(p.Reason)}
	one := (*g)[name]
	if one == nil {
		one = &ReleaseGroup{Handler: name[0], Topic: name[1], Reason: name[2], EventID: p.Key.EventID}
		(*g)[name] = one
	}
	one.Messages++
}

func (g releaseGroups) list() (all []ReleaseGroup) {
	for _, one := range g {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b ReleaseGroup) int {
		return cmp.Or(b.Messages-a.Messages, strings.Compare(a.Handler, b.Handler), strings.Compare(a.Topic, b.Topic),
			strings.Compare(a.Reason, b.Reason))
	})
	return all[:min(len(all), maxReleaseGroups)]
}
