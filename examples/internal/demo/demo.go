// Package demo has the parts of the examples that no service copies: their beginning, what they are
// asked to do, and their end.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// Main runs an example on the database of DATABASE_URL, or on SQLite in a temporary folder.
func Main(name string, run func(ctx context.Context, out io.Writer, dsn string) error) {
	dir, err := os.MkdirTemp("", "outbox-"+name+"-")
	if err == nil {
		err = run(context.Background(), os.Stdout,
			cmp.Or(os.Getenv("DATABASE_URL"), "file:"+filepath.Join(dir, name+".db")))
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// Orders is the service of the examples gorm, ent, bun and sql.
type Orders interface {
	Place(ctx context.Context, customer string, cents int) (id string, err error)
	Pay(ctx context.Context, id string) error
	PlaceAndFail(ctx context.Context, customer string, cents int) (id string, err error)
}

// Serve places and pays one order, and another order is refused.
func Serve(ctx context.Context, out io.Writer, service Orders) error {
	id, err := service.Place(ctx, "ada", 4200)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "placed %s for ada: 4200 cents\n", id)
	if err := service.Pay(ctx, id); err != nil {
		return err
	}
	fmt.Fprintln(out, "paid", id)
	_, err = service.PlaceAndFail(ctx, "bob", 100)
	fmt.Fprintln(out, "refused:", err)
	return nil
}

// Consume prints every event until the channel closes. Delivery is at least once: a consumer that
// must not do its work twice records event.ID, as examples/consumer does.
func Consume(out io.Writer, messages <-chan *message.Message) (problems error) {
	count, refused := 0, "none"
	for msg := range messages {
		event, err := watermillbridge.EventFromMessage(msg)
		problems = errors.Join(problems, err)
		fmt.Fprintf(out, "consumer: %s %s %s\n", event.Type, event.AggregateID, event.Payload)
		count++
		if event.AggregateID != "order-1" {
			refused = "some"
		}
		msg.Ack() // only after this is the event done
	}
	fmt.Fprintf(out, "%d events, %s of the refused order\n", count, refused)
	return problems
}

// Run runs router until it has acknowledged n messages. It fails if that takes longer than a
// minute. A service calls router.Run instead.
func Run(ctx context.Context, router *message.Router, n int) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	var received, acknowledged atomic.Int64
	router.AddSubscriberDecorators(message.MessageTransformSubscriberDecorator(func(msg *message.Message) {
		received.Add(1)
		go func() {
			select {
			case <-msg.Acked():
				if acknowledged.Add(1) == int64(n) {
					stop()
				}
			case <-msg.Nacked():
			}
		}()
	}))
	if err := router.Run(ctx); err != nil {
		return err
	}
	if got := acknowledged.Load(); got < int64(n) {
		return fmt.Errorf("%d of %d messages were acknowledged within a minute, and the broker delivered %d",
			got, n, received.Load())
	}
	return nil
}
