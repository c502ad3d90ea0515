package redisonce

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/inbox"
)

// Middleware makes the handlers of a Watermill Router run at least once per message, and not again
// after that. It needs one statement:
//
//	router.AddMiddleware(redisonce.Middleware(client, "billing"))
//
// It is inbox.Leased on a Store with the defaults of Config. The documentation of this package says
// what it promises, and that of inbox.AtLeastOnce what it does with failures. consumer is a name to
// choose once. Middleware asks the server for its eviction policy, as New does. It panics when an
// argument is wrong, such as a nil client or a Ring.
func Middleware(client redis.UniversalClient, consumer string, opts ...inbox.Option) message.HandlerMiddleware {
	store, err := New(client, Config{})
	if err != nil {
		//nolint:forbidigo // it panics at the start of the program, like Router.AddHandler; New returns an error
		panic(fmt.Sprintf("redisonce.Middleware: %v", err))
	}
	return inbox.Leased(store, consumer, opts...)
}
