package inbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
)

// Wrap makes the handlers of a Router idempotent by an Inbox, or an AtLeastOnce, of package
// core/inbox. Use it where [Middleware] has too few settings, or where you need the Inbox: to list,
// redrive, discard and [Release] events.
//
//	store, err := sqlinbox.On(gormoutbox.Transactor(db), sqlinbox.Config{AutoCreate: true})
//	in, err := coreinbox.New(coreinbox.Config{Consumer: "billing", Store: store, MaxAttempts: 3})
//	router.AddMiddleware(inbox.Wrap(in, inbox.Poison(publisher, "billing_poison")))
//
// It needs one of the options [Poison], [AckDead] and [ReturnDead], for the message of a dead
// event. Like [Middleware], it panics when an argument is wrong.
//
// # With an Inbox
//
// The handler finds its transaction in the message's context, by FromContext of its adapter or
// core.TxFromContext, and does all its work there. The messages that it returns are written to the
// outbox in the same transaction ([Publisher]), under the publish topic of the Router. So the
// Router has nothing left to publish. The returned messages carry the correlation id of the
// message, with or without Watermill's CorrelationID. The handler must not acknowledge the message
// itself, nor may InstantAck be inside or outside: see ErrAcknowledged of package core/inbox.
//
// The handler may run several times for one delivery. A transaction that failed only because of
// others (sqltx.Retryable) is run again as a whole, at most ten times and for twenty seconds.
//
// After the rollback the middleware returns the errors of the handler and the database, so that the
// Router rejects the message. Other errors come from package core/inbox, or are
// [ErrProducedNeedsOutbox] and [ErrPoisonInside]. A panic of the handler rolls back and counts as a
// failed attempt, and then goes on.
//
// # With an AtLeastOnce
//
// The context of the message ends when the lease is lost, with the cause once.ErrLeaseLost. The
// handler should stop then. Returned messages are published before the event is marked as done. The
// publisher of the broker is enough. When the handler runs again, they are published again.
//
// # Pauses
//
// After a failure the middleware pauses (RetryPause of the inbox) before it returns, because most
// brokers deliver a rejected message again at once.
func Wrap[In *coreinbox.Inbox | *coreinbox.AtLeastOnce](in In, opts ...Option) message.HandlerMiddleware {
	o := newOptions(opts)
	if o.createTables {
		o.bad("CreateTables is for Middleware and SQL: set AutoCreate of the sqlinbox.Config")
	}
	o.notLeased()
	if in == nil {
		o.bad("the inbox is nil")
	}
	if o.dead == 0 {
		o.bad("dead messages stay at the broker: add Poison or AckDead, " +
			"or ReturnDead if a poison queue of your own is outside")
	}
	return wrap(o, "Wrap", in)
}

// wrap builds the middleware, or panics with all problems.
func wrap[In *coreinbox.Inbox | *coreinbox.AtLeastOnce](o *options, name string, in In) message.HandlerMiddleware {
	w := &wrapped{publisher: o.publisher, ackDead: o.dead == ackDead}
	switch in := any(in).(type) {
	case *coreinbox.Inbox:
		w.in = in
	case *coreinbox.AtLeastOnce:
		w.leased = in
		if w.ackDead {
			o.bad("AckDead is for an Inbox: an AtLeastOnce keeps nothing of a dead event")
		}
	}
	if err := errors.Join(o.problems...); err != nil {
		//nolint:forbidigo // it panics at the start of the program, like Router.AddHandler
		panic(fmt.Sprintf("inbox.%s: %v", name, err))
	}
	return func(h message.HandlerFunc) message.HandlerFunc {
		h = w.middleware(h)
		if o.retry != nil {
			h = o.retry(h)
		}
		if o.poison != nil {
			h = o.poison.middleware(w.consumer(), h)
		}
		return h
	}
}

// wrapped is an inbox for a Router: an Inbox or an AtLeastOnce.
type wrapped struct {
	in        *coreinbox.Inbox
	leased    *coreinbox.AtLeastOnce
	publisher message.Publisher // nil: a handler that returns messages fails
	ackDead   bool
}

func (w *wrapped) consumer() string {
	if w.leased != nil {
		return w.leased.Consumer()
	}
	return w.in.Consumer()
}

func (w *wrapped) process(ctx context.Context, msg coreinbox.Message, h func(context.Context) error) coreinbox.Result {
	if w.leased != nil {
		return w.leased.Process(ctx, msg, func(ctx context.Context, _ coreinbox.Message) error { return h(ctx) })
	}
	return w.in.Process(ctx, msg, func(ctx context.Context, _ core.Tx, _ coreinbox.Message) error { return h(ctx) })
}

func (w *wrapped) middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		defer msg.SetContext(ctx) // middleware outside gets no context of an ended transaction
		res := w.process(ctx, MessageOf(msg), func(ctx context.Context) error {
			msg.SetContext(ctx)
			before := msg.Metadata[reasonPoisoned]
			produced, err := h(msg)
			if err != nil {
				return err
			}
			if reason := msg.Metadata[reasonPoisoned]; w.in != nil && reason != before {
				return fmt.Errorf("%w: %s", ErrPoisonInside, reason)
			}
			return w.publish(ctx, msg, produced)
		})
		res.Wait(ctx)
		// A message without a usable id is dead too, and in no table: it is not acknowledged.
		if w.ackDead && res.Action == coreinbox.Dead && errors.Is(res.Err, coreinbox.ErrDead) {
			return nil, nil
		}
		return nil, res.Err
	}
}

// correlationID is the metadata key of Watermill's CorrelationID.
const correlationID = "correlation_id"

// publish writes the messages that a handler returned to the outbox. It also sets the correlation
// id, because the middleware CorrelationID does not see these messages if it is outside of the
// inbox.
func (w *wrapped) publish(ctx context.Context, consumed *message.Message, produced []*message.Message) error {
	if len(produced) == 0 {
		return nil
	}
	topic := message.PublishTopicFromCtx(ctx)
	switch {
	case w.publisher == nil:
		return ErrProducedNeedsOutbox
	case topic == "":
		return errors.New("inbox: the handler returned messages, and has no topic to publish to: add it with " +
			"AddHandler of the Router")
	}
	for _, p := range produced {
		if p == nil {
			return errors.New("inbox: the handler returned a nil message")
		}
		p.SetContext(ctx)
		if id := consumed.Metadata[correlationID]; id != "" && p.Metadata[correlationID] == "" {
			if p.Metadata == nil {
				p.Metadata = message.Metadata{}
			}
			p.Metadata[correlationID] = id
		}
	}
	if err := w.publisher.Publish(topic, produced...); err != nil {
		return fmt.Errorf("inbox: write produced messages to the outbox: %w", err)
	}
	coreinbox.Produced(ctx, len(produced))
	return nil
}

// Errors of the middleware that callers branch on with errors.Is.
var (
	// ErrProducedNeedsOutbox: the handler returned messages, and the option [Publisher] is not
	// there. The Router would publish them after the commit, and lose them if publishing fails.
	// Everything was rolled back.
	ErrProducedNeedsOutbox error = &codedError{"produced_needs_outbox", "inbox: the handler returned messages and " +
		"they have no publisher: add the option inbox.Publisher, which writes them to the outbox"}

	// ErrPoisonInside: a poison queue inside of the inbox took the message and hid the handler's
	// error. Everything was rolled back. Put the poison queue outside.
	ErrPoisonInside error = &codedError{"poison_inside", "inbox: a poison queue inside of the inbox hid the " +
		"handler's error: use the option inbox.Poison, or add the poison queue to the Router before the inbox"}
)

// codedError is an error with a code for the table.
type codedError struct{ code, text string }

func (e *codedError) Error() string { return e.text }

// InboxCode returns the code that the table keeps.
func (e *codedError) InboxCode() string { return e.code }

// CQRS puts an inbox between a processor of Watermill's package cqrs and its handlers. Outside of
// the processor, as middleware of the Router, an inbox does not see a handler's error, but what the
// processor makes of it. AckCommandHandlingErrors makes it a success, so half of the work would be
// committed. With AckOnUnknownEvent an event that nobody handles is remembered as processed.
//
//	once := inbox.CQRS(inbox.SQL(db, "billing", inbox.CreateTables()))
//
//	cqrs.CommandProcessorConfig{
//		OnHandle: func(p cqrs.CommandProcessorOnHandleParams) error {
//			return once(p.Message, p.Handler.HandlerName(), p.Handler, p.Command)
//		},
//	}
//	cqrs.EventProcessorConfig{
//		OnHandle: func(p cqrs.EventProcessorOnHandleParams) error {
//			return once(p.Message, p.Handler.HandlerName(), p.Handler, p.Event)
//		},
//	}
//	cqrs.EventGroupProcessorConfig{
//		OnHandle: func(p cqrs.EventGroupProcessorOnHandleParams) error {
//			return once(p.Message, p.GroupName+"."+p.EventName, p.Handler, p.Event)
//		},
//	}
//
// m is a middleware of this package, by [Middleware], [SQL], [Wrap] or [Leased], or
// redisonce.Middleware. The function that CQRS returns calls h with v, the command or event of msg,
// unless the handler with this name has processed msg before. name is the handler in the key of the
// event. Choose it once. Give each handler a name of its own: another h under a used name is
// refused, because it would take over the events that the first one has processed. The function is
// safe for use by several goroutines.
func CQRS(m message.HandlerMiddleware) func(msg *message.Message, name string, h interface {
	Handle(ctx context.Context, v any) error
}, v any) error {
	c := &namedHandlers{named: map[string]cqrsHandler{}}
	return func(msg *message.Message, name string, h cqrsHandler, v any) error {
		if err := c.own(name, h); err != nil {
			return err
		}
		ctx := msg.Context()
		defer msg.SetContext(ctx)
		msg.SetContext(context.WithValue(ctx, handlerName{}, name))
		_, err := m(func(msg *message.Message) ([]*message.Message, error) {
			return nil, h.Handle(msg.Context(), v)
		})(msg)
		return err
	}
}

// cqrsHandler is a CommandHandler, an EventHandler or a GroupEventHandler of Watermill.
type cqrsHandler = interface {
	Handle(ctx context.Context, v any) error
}

type namedHandlers struct {
	mu    sync.Mutex
	named map[string]cqrsHandler
}

// own gives the name to h.
func (c *namedHandlers) own(name string, h cqrsHandler) error {
	if name == "" {
		return errors.New("inbox: CQRS needs the name of the handler")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	first, named := c.named[name]
	if !named {
		c.named[name] = h
		return nil
	}
	if a, b := reflect.ValueOf(first), reflect.ValueOf(h); !a.Comparable() || !b.Comparable() || a.Equal(b) {
		return nil
	}
	return fmt.Errorf("inbox: CQRS: two handlers have the name %q, and the second would be skipped: "+
		"give each its own", name)
}
