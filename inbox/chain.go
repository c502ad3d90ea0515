package inbox

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ChainConfig names the links of a Chain by their place.
type ChainConfig struct {
	// Poison is outermost: it takes the messages that can never be processed out of the way, with
	// their payload. Give it Final as its filter, so that an outage of the database does not fill
	// it:
	//
	//	poison, err := middleware.PoisonQueueWithFilter(pub, "billing_poison", inbox.Final)
	//
	// Nil: none. Then Inbox must be an *Inbox whose Config.OnDead is AckDead, because a broker
	// would deliver a dead message for ever.
	Poison message.HandlerMiddleware
	// Retry comes next, and sees each transaction as a whole:
	//
	//	middleware.Retry{
	//		MaxRetries: 3, InitialInterval: 100 * time.Millisecond, ResetContextOnRetry: true,
	//		ShouldRetry: func(p middleware.RetryParams) bool { return !inbox.Final(p.Err) },
	//	}.Middleware
	//
	// Each of its attempts counts towards Config.MaxAttempts. Nil: none; the broker delivers again.
	Retry message.HandlerMiddleware
	// Inbox is innermost: an *Inbox or an *AtLeastOnce. Required.
	Inbox Deduplicator
}

// Deduplicator is an *Inbox or an *AtLeastOnce.
type Deduplicator interface {
	Middleware(h message.HandlerFunc) message.HandlerFunc

	// returnsDead reports whether dead messages are returned as errors.
	returnsDead() bool
}

var (
	_ Deduplicator = (*Inbox)(nil)
	_ Deduplicator = (*AtLeastOnce)(nil)
)

// returnsDead is for Chain.
func (in *Inbox) returnsDead() bool { return in.onDead == ReturnDead }

// Chain returns Poison(Retry(Inbox(handler))) as one middleware, because no other order works.
// Middleware that is added to the Router after it runs inside of the transaction: it must neither
// repeat the handler nor hide its errors.
func Chain(c ChainConfig) (message.HandlerMiddleware, error) {
	if isNil(c.Inbox) {
		return nil, errors.New("inbox: ChainConfig.Inbox is nil")
	}
	if c.Poison == nil && c.Inbox.returnsDead() {
		return nil, errors.New("inbox: ChainConfig.Poison is nil, so nobody takes dead messages from the broker: " +
			"set it, or Config.OnDead of an Inbox to AckDead")
	}
	return func(h message.HandlerFunc) message.HandlerFunc {
		h = c.Inbox.Middleware(h)
		if c.Retry != nil {
			h = c.Retry(h)
		}
		if c.Poison != nil {
			h = c.Poison(h)
		}
		return h
	}, nil
}
