package inbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// CQRS puts an inbox between a processor of Watermill's package cqrs and its handlers. Outside of
// the processor, as middleware of the Router, an inbox gets what the processor makes of a
// handler's error: AckCommandHandlingErrors turns it into a success, whose half of the work would
// be committed, and AckOnUnknownEvent has a type that nobody handles remembered as processed.
//
//	once := inbox.NewCQRS(inbox.SQL(db, "billing", inbox.CreateTables()))
//
//	cqrs.CommandProcessorConfig{
//		OnHandle: func(p cqrs.CommandProcessorOnHandleParams) error {
//			return once.Handle(p.Message, p.Handler.HandlerName(), p.Handler, p.Command)
//		},
//	}
//	cqrs.EventProcessorConfig{
//		OnHandle: func(p cqrs.EventProcessorOnHandleParams) error {
//			return once.Handle(p.Message, p.Handler.HandlerName(), p.Handler, p.Event)
//		},
//	}
//	cqrs.EventGroupProcessorConfig{
//		OnHandle: func(p cqrs.EventGroupProcessorOnHandleParams) error {
//			return once.Handle(p.Message, p.GroupName+"."+p.EventName, p.Handler, p.Event)
//		},
//	}
//
// Make one with NewCQRS; it is safe for use by several goroutines.
type CQRS struct {
	m message.HandlerMiddleware

	mu    sync.Mutex
	named map[string]CQRSHandler
}

// CQRSHandler is a CommandHandler, an EventHandler or a GroupEventHandler of Watermill.
type CQRSHandler interface {
	Handle(ctx context.Context, v any) error
}

// NewCQRS returns a CQRS of any middleware of this package: that of Middleware, SQL, Leased or
// Chain, redisonce.Middleware, or the method of an Inbox.
func NewCQRS(m message.HandlerMiddleware) *CQRS {
	return &CQRS{m: m, named: map[string]CQRSHandler{}}
}

// Handle has h handle v, the command or event of msg, unless the handler with this name has
// processed msg before. name is the handler in the key of the event: see Config.Handler, which is
// not asked. Choose it once. Each handler needs a name of its own: another h under a name that was
// used is refused, because it would count as the one that has processed the message.
func (c *CQRS) Handle(msg *message.Message, name string, h CQRSHandler, v any) error {
	if name == "" {
		return errors.New("inbox: CQRS.Handle needs the name of the handler")
	}
	if err := c.own(name, h); err != nil {
		return err
	}
	ctx := msg.Context()
	defer msg.SetContext(ctx)
	msg.SetContext(context.WithValue(ctx, handlerName{}, name))
	_, err := c.m(func(msg *message.Message) ([]*message.Message, error) {
		return nil, h.Handle(msg.Context(), v)
	})(msg)
	return err
}

// own gives the name to h.
func (c *CQRS) own(name string, h CQRSHandler) error {
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
	return fmt.Errorf("inbox: CQRS.Handle: two handlers have the name %q, and the second would be skipped: "+
		"give each its own", name)
}

// handlerName is the key of the name that CQRS.Handle has put into a context.
type handlerName struct{}

// handlerNameFromCtx returns the name of the handler of a message: that of CQRS.Handle, else the
// name in the Router.
func handlerNameFromCtx(ctx context.Context) string {
	if name, ok := ctx.Value(handlerName{}).(string); ok {
		return name
	}
	return message.HandlerNameFromCtx(ctx)
}
