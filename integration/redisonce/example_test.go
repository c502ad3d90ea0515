package redisonce_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
)

// This consumer sends a mail. The mail is sent at least once, and exactly once if nothing fails.
func Example_redisOnce() {
	opts, err := redis.ParseURL(os.Getenv("OUTBOX_TEST_REDIS"))
	if err != nil {
		panic(err)
	}
	client := redis.NewClient(opts)
	defer client.Close()
	store, err := redisonce.New(client, redisonce.Config{Prefix: "example-" + rand.Text() + ":"})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	if err := store.Check(ctx); err != nil { // for example, the server evicts keys
		panic(err)
	}
	// The time to live is longer than the time in which the broker can deliver a message again. Wait
	// is short here so that the example is.
	runner, err := once.New(once.Config{
		Store: store, Lease: 30 * time.Second, TTL: 7 * 24 * time.Hour, Wait: 50 * time.Millisecond,
	})
	if err != nil {
		panic(err)
	}

	key := once.Key{Scope: once.Scope("inbox", "mailer", "welcome"), Tenant: "acme", ID: "018f-event-id"}
	handle := func(mail error) {
		_, replayed, err := runner.Do(ctx, key, once.Fingerprint{}, func(ctx context.Context) (once.Result, error) {
			// Meanwhile a second consumer gets the same message.
			_, _, again := runner.Do(ctx, key, once.Fingerprint{}, nothingOnce)
			fmt.Println("sending; elsewhere in progress:", errors.Is(again, once.ErrInProgress))
			return once.Result{}, mail
		})
		fmt.Println("acknowledge:", err == nil, "replayed:", replayed)
	}
	handle(errors.New("mail server is down"))
	handle(nil)
	handle(nil)

	_ = client.Del(ctx, store.Name(key)).Err() // only so that the example leaves nothing behind
	// Output:
	// sending; elsewhere in progress: true
	// acknowledge: false replayed: false
	// sending; elsewhere in progress: true
	// acknowledge: true replayed: false
	// acknowledge: true replayed: true
}

// A cache has ids that the inbox's table has recorded. It goes into inbox.Config.Cache.
func Example_redisCache() {
	opts, err := redis.ParseURL(os.Getenv("OUTBOX_TEST_REDIS"))
	if err != nil {
		panic(err)
	}
	client := redis.NewClient(opts)
	defer client.Close()
	cache, err := redisonce.NewCache(client, redisonce.CacheConfig{
		Prefix: "example-" + rand.Text() + ":", TTL: time.Hour, // less than the retention of the table
		Timeout: 5 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	key := once.Key{Scope: once.Scope("inbox", "billing", "invoice"), ID: "018f"}.String()

	seen, err := cache.Seen(ctx, key)
	fmt.Println(seen, err) // ask the table
	fmt.Println(cache.Remember(ctx, key))
	seen, err = cache.Seen(ctx, key)
	fmt.Println(seen, err) // acknowledge
	fmt.Printf("%+v\n", cache.Stats())
	fmt.Println(cache.Forget(ctx, key))
	// Output:
	// false <nil>
	// <nil>
	// true <nil>
	// {Hits:1 Misses:1 Errors:0}
	// <nil>
}
