package core_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// Two processes on one table: a service that only publishes, and a relay that polls once an hour. A
// channel carries the wake-ups here. With a database, package sqloutbox does.
func ExampleWakePolicy() {
	table := outboxtest.NewRepository()
	bell := make(chan struct{}, 1)
	service, _ := core.New(core.Config{
		Repository: table,
		Wake: core.WakePolicy{Notify: func(context.Context) error {
			select {
			case bell <- struct{}{}:
			default: // a wake-up waits already
			}
			return nil
		}},
	})
	published, hears := make(chan string), make(chan struct{})
	relay, _ := core.New(core.Config{
		Repository: table,
		Relay:      relay.Config{PollInterval: time.Hour, MaxPollInterval: time.Hour},
		Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			published <- d.Type
			return nil
		}),
		Wake: core.WakePolicy{Listen: func(ctx context.Context, wake func()) error {
			wake() // the relay hears wake-ups from here on
			close(hears)
			for {
				select {
				case <-bell:
					wake()
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = relay.Run(ctx) })
	<-hears

	if err := table.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := service.Publish(ctx, tx, core.Event{Type: "order.placed"})
		return err
	}); err != nil {
		panic(err)
	}
	fmt.Println(<-published)
	cancel()
	wg.Wait()
	// Output: order.placed
}
