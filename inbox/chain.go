package inbox

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ChainConfig has the middleware of a Chain, from the outermost to the innermost.
type ChainConfig struct {
	// Poison is outermost. It takes messages that can never be processed, with their payload, so
	// that they hold up no other. Give it Final as its filter, so that an outage of the database
	// does not fill the poison queue:
	//
	//	poison, err := middleware.PoisonQueueWithFilter(pub, "billing_poison", inbox.Final)
	//
	// Nil: none. Then Inbox must be an *Inbox whose Config.OnDead is AckDead, because a broker
	// would deliver a dead message forever.
	Poison message.HandlerMiddleware
	// Retry comes next. Each of its attempts runs a whole transaction:
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

// returnsDead tells Chain whether Middleware returns dead messages as errors.
func (in *Inbox) returnsDead() bool { return in.onDead == ReturnDead }

// Chain returns Poison(Retry(Inbox(handler))) as one middleware, because no other order works.
// Middleware that is added to the Router after it runs inside the transaction. Such middleware must
// neither repeat the handler nor hide its errors.
func Chain(c ChainConfig) (message.HandlerMiddleware, error) {
	if isNil(c.Inbox) {
		return nil, errors.New("inbox: ChainConfig.Inbox is nil")
	}
	if c.Poison == nil && c.Inbox.returnsDead() {
		return nil, errors.New("inbox: ChainConfig.Poison is nil, so nobody takes dead messages from the broker: " +
			"set it, or Config.OnDead of an Inbox to AckDead")
	}
	return c.chain, nil
}

// chain is the middleware.
func (c ChainConfig) chain(h message.HandlerFunc) message.HandlerFunc {
	h = c.Inbox.Middleware(h)
	if c.Retry != nil {
		h = c.Retry(h)
	}
	if c.Poison != nil {
		h = c.Poison(h)
	}
	return h
}
