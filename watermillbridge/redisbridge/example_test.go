package redisbridge_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

func ExampleNewPublisher() {
	options, err := redisbridge.Options("rediss://orders:secret@redis:6379/0")
	if err != nil {
		fmt.Println(err)
		return
	}
	publisher, err := redisbridge.NewPublisher(redisbridge.Config{Client: redis.NewClient(options)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close(context.Background())
	fmt.Println("nothing is connected yet")
	// Output: nothing is connected yet
}

// A client of one's own has the settings that the error names.
func ExampleConfig() {
	_, err := redisbridge.NewPublisher(redisbridge.Config{Client: redis.NewClient(&redis.Options{Addr: "redis:6379"})})
	fmt.Println(err)
	// Output:
	// redisbridge: unsafe Redis configuration:
	// ContextTimeoutEnabled is false: a publish would not end with its time; set true
	// MaxRetries is 3: a retry stores an event twice, and the relay retries anyway; set -1
}

// A process that shall not start with an unsafe server asks for it.
func ExampleCheck() {
	options, err := redisbridge.Options("redis://127.0.0.1:1/0")
	if err != nil {
		fmt.Println(err)
		return
	}
	client := redis.NewClient(options)
	defer client.Close()
	err = redisbridge.Check(context.Background(), redisbridge.Config{Client: client})
	fmt.Println(err != nil)
	// Output: true
}
