package redisonce

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/inbox"
)

// Middleware makes the handlers of a Watermill Router run once per message, at least once, in one
// statement:
//
//	router.AddMiddleware(redisonce.Middleware(client, "billing"))
//
// It is inbox.Leased on a Store with a Config of defaults: what it promises is in the documentation
// of this package, what it does with failures in that of inbox.AtLeastOnce. consumer is a name to
// choose once. It asks the server for its eviction policy, as New does, and panics when it is given
// nonsense, such as a nil client or a Ring.
func Middleware(client redis.UniversalClient, consumer string, opts ...inbox.Option) message.HandlerMiddleware {
	store, err := New(client, Config{})
	if err != nil {
		//nolint:forbidigo // at start, as Router.AddHandler does; New returns an error
		panic(fmt.Sprintf("redisonce.Middleware: %v", err))
	}
	return inbox.Leased(store, consumer, opts...)
}
