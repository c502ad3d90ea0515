package redisonce_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
)

// newRedis starts a Redis in this process, so that the Examples need no server.
func newRedis() (client *redis.Client, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	client = redis.NewClient(&redis.Options{Addr: server.Addr()})
	return client, func() { client.Close(); server.Close() }
}

// Work that runs once for each key. The second call gets the result of the first.
func ExampleNew() {
	client, stop := newRedis()
	defer stop()
	store, err := redisonce.New(client, redisonce.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	runner, err := once.New(once.Config{Store: store, Lease: 30 * time.Second, TTL: 7 * 24 * time.Hour})
	if err != nil {
		panic(err)
	}
	key := once.Key{Scope: once.Scope("mailer", "welcome"), ID: "018f"}
	for range 2 {
		result, replayed, err := runner.Do(context.Background(), key, once.Fingerprint{},
			func(context.Context) (once.Result, error) {
				fmt.Println("sending the mail")
				return once.Result{Data: []byte("message-id-7")}, nil
			})
		fmt.Println(string(result.Data), replayed, err)
	}
	// Output:
	// sending the mail
	// message-id-7 false <nil>
	// message-id-7 true <nil>
}

// A plain Router whose handlers run once for each event.
func ExampleMiddleware() {
	client, stop := newRedis()
	defer stop()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		panic(err)
	}
	router.AddMiddleware(redisonce.Middleware(client, "mailer", inbox.TTL(14*24*time.Hour)))
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router.AddConsumerHandler("welcome", "customer.registered", channel, func(msg *message.Message) error {
		fmt.Println("sending the mail of event", msg.UUID)
		return nil
	})
	go router.Run(context.Background())
	<-router.Running()

	for range 3 { // the broker delivers the event three times
		if err := channel.Publish("customer.registered", message.NewMessage("018f", nil)); err != nil {
			panic(err)
		}
	}
	fmt.Println("all three are acknowledged:", router.Close())
	// Output:
	// sending the mail of event 018f
	// all three are acknowledged: <nil>
}

// A cache that spares the inbox of a database the transaction of a duplicate. It goes into
// Config.Cache of package inbox.
func ExampleNewCache() {
	client, stop := newRedis()
	defer stop()
	cache, err := redisonce.NewCache(client, redisonce.CacheConfig{TTL: time.Hour})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	key := once.Key{Scope: once.Scope("inbox", "billing", "invoice"), ID: "018f"}.String()
	fmt.Println(cache.Seen(ctx, key)) // the table has to be asked
	fmt.Println(cache.Remember(ctx, key))
	fmt.Println(cache.Seen(ctx, key)) // a duplicate
	// Output:
	// false <nil>
	// <nil>
	// true <nil>
}

// Watermill's Deduplicator remembers its keys in Redis: an event that another process has seen is
// seen here too.
func ExampleNewExpiringKeys() {
	client, stop := newRedis()
	defer stop()
	keys, err := redisonce.NewExpiringKeys(client, time.Minute, "")
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	fmt.Println(keys.IsDuplicate(ctx, "018f"))
	fmt.Println(keys.IsDuplicate(ctx, "018f"))
	// Output:
	// false <nil>
	// true <nil>
}
