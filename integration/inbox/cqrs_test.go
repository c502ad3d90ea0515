package inbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// Commands and events of the tests.
type (
	pay     struct{ ID string }
	paid    struct{ ID string }
	shipped struct{ ID string }
)

var cqrsJSON = cqrs.JSONMarshaler{GenerateName: cqrs.StructName}

// cqrsMessage is the message of a command or an event.
func cqrsMessage(t *testing.T, id string, v any) *message.Message {
	t.Helper()
	msg, err := cqrsJSON.Marshal(v)
	fixture.NoError(t, err)
	msg.Metadata.Set(core.HeaderEventID, id)
	return msg
}

// does applies an effect and returns err.
func (w *inboxWorld) does(ctx context.Context, id, what string, err error) error {
	return errors.Join(w.orm.exec(ctx, "INSERT INTO effects VALUES ('"+id+"', '"+what+"')"), err)
}

// commandsOf runs a CommandProcessor that acknowledges what fails.
func (w *inboxWorld) commandsOf(m message.HandlerMiddleware, onHandle cqrs.CommandProcessorOnHandleFn,
	handlers ...cqrs.CommandHandler,
) *gochannel.GoChannel {
	w.t.Helper()
	return inboxRouter(w.t, func(r *message.Router, ps *gochannel.GoChannel) {
		if m != nil {
			r.AddMiddleware(m)
		}
		p, err := cqrs.NewCommandProcessorWithConfig(r, cqrs.CommandProcessorConfig{
			GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) {
				return "orders", nil
			},
			SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
				return ps, nil
			},
			Marshaler: cqrsJSON, AckCommandHandlingErrors: true, OnHandle: onHandle,
		})
		fixture.NoError(w.t, err)
		fixture.NoError(w.t, p.AddHandlers(handlers...))
	})
}

// groupOf runs an EventGroupProcessor that acknowledges types that it does not know.
func (w *inboxWorld) groupOf(m message.HandlerMiddleware, onHandle cqrs.EventGroupProcessorOnHandleFn,
	handlers ...cqrs.GroupEventHandler,
) *gochannel.GoChannel {
	w.t.Helper()
	return inboxRouter(w.t, func(r *message.Router, ps *gochannel.GoChannel) {
		if m != nil {
			r.AddMiddleware(m)
		}
		p, err := cqrs.NewEventGroupProcessorWithConfig(r, cqrs.EventGroupProcessorConfig{
			GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) {
				return "orders", nil
			},
			SubscriberConstructor: func(
				cqrs.EventGroupProcessorSubscriberConstructorParams,
			) (message.Subscriber, error) {
				return ps, nil
			},
			Marshaler: cqrsJSON, AckOnUnknownEvent: true, OnHandle: onHandle,
		})
		fixture.NoError(w.t, err)
		fixture.NoError(w.t, p.AddHandlersGroup("projection", handlers...))
	})
}

// onceFunc is what inbox.CQRS returns.
type onceFunc = func(msg *message.Message, name string, h interface {
	Handle(ctx context.Context, v any) error
}, v any) error

func inGroup(once onceFunc) cqrs.EventGroupProcessorOnHandleFn {
	return func(p cqrs.EventGroupProcessorOnHandleParams) error {
		return once(p.Message, p.GroupName+"."+p.EventName, p.Handler, p.Event)
	}
}

func inCommands(once onceFunc) cqrs.CommandProcessorOnHandleFn {
	return func(p cqrs.CommandProcessorOnHandleParams) error {
		return once(p.Message, p.Handler.HandlerName(), p.Handler, p.Command)
	}
}

// A processor that acknowledges what failed hides the error from middleware of the Router, which
// then commits half of the work. Inside the processor the inbox sees it.
func TestInboxInCommandProcessor(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		fails := func() cqrs.CommandHandler {
			return cqrs.NewCommandHandler("pay", func(ctx context.Context, c *pay) error {
				return w.does(ctx, c.ID, "debited", errOnce)
			})
		}
		outside := w.commandsOf(w.in.Middleware, nil, fails())
		fixture.NoError(t, outside.Publish("orders", cqrsMessage(t, "outside", pay{"outside"})))
		w.wantEffects(map[string]int{"outside debited": 1}) // so the documents say that this order must not be used

		inside := w.commandsOf(nil, inCommands(inbox.CQRS(w.in.Middleware)), fails())
		fixture.NoError(t, inside.Publish("orders", cqrsMessage(t, "inside", pay{"inside"})))
		w.wantEffects(map[string]int{"outside debited": 1})
		w.hears("failed", 1)
	})
}

// A command is handled once, and its handler is the key.
func TestInboxInProcessorsOnce(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		commands := w.commandsOf(nil, inCommands(inbox.CQRS(w.in.Middleware)),
			cqrs.NewCommandHandler("pay", func(ctx context.Context, c *pay) error {
				return w.does(ctx, c.ID, "paid", nil)
			}))
		for range 3 {
			fixture.NoError(t, commands.Publish("orders", cqrsMessage(t, "c", pay{"c"})))
		}
		once := inbox.CQRS(w.in.Middleware)
		events := inboxRouter(t, func(r *message.Router, ps *gochannel.GoChannel) {
			p, err := cqrs.NewEventProcessorWithConfig(r, cqrs.EventProcessorConfig{
				GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) {
					return "orders", nil
				},
				SubscriberConstructor: func(
					cqrs.EventProcessorSubscriberConstructorParams,
				) (message.Subscriber, error) {
					return ps, nil
				},
				OnHandle: func(p cqrs.EventProcessorOnHandleParams) error {
					return once(p.Message, p.Handler.HandlerName(), p.Handler, p.Event)
				},
				Marshaler: cqrsJSON,
			})
			fixture.NoError(t, err)
			fixture.NoError(t, p.AddHandlers(
				cqrs.NewEventHandler("mail", func(ctx context.Context, e *paid) error {
					return w.does(ctx, e.ID, "mailed", nil)
				}),
				cqrs.NewEventHandler("book", func(ctx context.Context, e *paid) error {
					return w.does(ctx, e.ID, "booked", nil)
				}),
			))
		})
		for range 3 {
			fixture.NoError(t, events.Publish("orders", cqrsMessage(t, "e", paid{"e"})))
		}
		w.wantEffects(map[string]int{"c paid": 1, "e mailed": 1, "e booked": 1})
	})
}

// A type that no handler of a group knows is not remembered: when a later version knows it, a
// replay handles it, and skips the types that were handled.
func TestInboxInGroupRemembersWhatItHandled(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		onPaid := cqrs.NewGroupEventHandler(func(ctx context.Context, e *paid) error {
			return w.does(ctx, e.ID, "paid", nil)
		})
		onShipped := cqrs.NewGroupEventHandler(func(ctx context.Context, e *shipped) error {
			return w.does(ctx, e.ID, "shipped", nil)
		})
		deploy := func(handlers ...cqrs.GroupEventHandler) {
			ps := w.groupOf(nil, inGroup(inbox.CQRS(w.in.Middleware)), handlers...)
			fixture.NoError(t, ps.Publish("orders", cqrsMessage(t, "1", paid{"1"})))
			fixture.NoError(t, ps.Publish("orders", cqrsMessage(t, "2", shipped{"2"})))
		}
		deploy(onPaid)
		w.wantEffects(map[string]int{"1 paid": 1})
		deploy(onPaid, onShipped)
		w.wantEffects(map[string]int{"1 paid": 1, "2 shipped": 1})
	})
}

// Two handlers of one type need two names. One name for both would skip the second, silently.
func TestInboxInGroupRefusesOneNameForTwo(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		once := inbox.CQRS(w.in.Middleware)
		h := func(what string) cqrs.GroupEventHandler {
			return cqrs.NewGroupEventHandler(func(ctx context.Context, e *paid) error {
				return w.does(ctx, e.ID, what, nil)
			})
		}
		msg := cqrsMessage(t, "1", paid{"1"})
		a, b := h("a"), h("b")
		fixture.NoError(t, once(msg, "projection.paid", a, &paid{"1"}))
		fixture.NoError(t, once(msg, "projection.paid", a, &paid{"1"}))
		if err := once(msg, "projection.paid", b, &paid{"1"}); err == nil ||
			!strings.Contains(err.Error(), "give each its own") {
			t.Errorf("a second handler under one name: %v", err)
		}
		fixture.NoError(t, once(msg, "projection.paid.b", b, &paid{"1"}))
		if err := once(msg, "", b, &paid{"1"}); err == nil {
			t.Error("a handler without a name was not refused")
		}
		w.wantEffects(map[string]int{"1 a": 1, "1 b": 1})
	})
}

// What a handler of a group gives up is parked under the name of that handler.
func TestInboxInGroupParks(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		var parked deadLetters
		m := inbox.Middleware(w.orm.transactor, "billing", inbox.Poison(&parked, "poison"))
		ps := w.groupOf(nil, inGroup(inbox.CQRS(m)),
			cqrs.NewGroupEventHandler(func(context.Context, *paid) error { return core.Permanent(errOnce) }))
		fixture.NoError(t, ps.Publish("orders", cqrsMessage(t, "1", paid{"1"})))
		dead, err := w.in.ListDead(t.Context(), coreinbox.DeadQuery{Handler: "projection.paid"})
		fixture.NoError(t, err)
		if len(dead) != 1 || len(parked.msgs) != 1 ||
			parked.msgs[0].Metadata.Get("handler_poisoned") != "projection.paid" {
			t.Errorf("dead: %v, parked: %v", dead, parked.msgs)
		}
	})
}
