package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

const (
	childCommand = "child" // first argument of the program that makes it the shop
	childFailed  = 3       // exit code of a child that failed by itself
)

// Words that a child writes to its standard output, one on a line.
const (
	sayTaken      = "taken" // and how many orders there were when this life began
	sayCommitted  = "committed"
	sayRolledBack = "rolled-back"
	sayClosed     = "closed" // all orders are taken
	sayDelivered  = "delivered"
	sayHot        = "hot"  // published by the fast path
	sayCold       = "cold" // published by the poller
)

// childMain is the program when it was started with: child DIR ORDERS.
func childMain(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	signal.Ignore(os.Interrupt) // a terminal sends it to both processes; the parent decides
	ctx, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	go func() {
		io.Copy(io.Discard, stdin)
		fail(errors.New("the parent has gone"))
	}()
	err := errors.New("usage: child DIR ORDERS")
	if len(args) == 2 {
		var orders int
		if orders, err = strconv.Atoi(args[1]); err == nil {
			err = openShop(ctx, fail, args[0], orders, reporter{stdout}, stderr)
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, "child:", err)
		return childFailed
	}
	return 0
}

// reporter reports each step to the parent: each word is one small write to a pipe.
type reporter struct{ out io.Writer }

func (r reporter) say(word string) { io.WriteString(r.out, word+"\n") }

// outboxConfig has short leases, so that the rows of a killed child come back within a second.
func outboxConfig(c *gormoutbox.Config) {
	c.Relay.PublishTimeout = 400 * time.Millisecond
	c.Relay.LeaseMargin = 50 * time.Millisecond
	c.Relay.HotLease = 900 * time.Millisecond
	c.Relay.ClaimLease = 900 * time.Millisecond
	c.Relay.PollInterval = 50 * time.Millisecond
	c.Relay.MaxPollInterval = 200 * time.Millisecond
	c.Relay.Breaker.ProbeInterval = 50 * time.Millisecond
	c.Relay.Breaker.MaxProbeInterval = 200 * time.Millisecond
	c.Relay.Workers = 8          // the channel takes the messages of a topic one after the other anyway
	c.Relay.MaxCrashes = 1 << 30 // these kills come from outside, and no event causes them
}

// openShop takes orders, relays and consumes, until all orders are taken and delivered. It may be
// killed at any point.
func openShop(ctx context.Context, fail context.CancelCauseFunc, dir string, orders int, report reporter,
	stderr io.Writer,
) error {
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	db, err := openOrders(ctx, filepath.Join(dir, ordersFile))
	if err != nil {
		return err
	}
	book, err := openLedger(ctx, filepath.Join(dir, ledgerFile))
	if err != nil {
		return err
	}

	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	// Without a subscriber, and when the subscriber's context or the channel itself is closed,
	// Publish returns nil although no consumer has handled the message. The relay would then mark
	// the event as done. So the subscription begins before the relay and never ends before it:
	// neither this function's context nor an error closes it.
	messages, err := channel.Subscribe(context.WithoutCancel(ctx), topic)
	if err != nil {
		return err
	}
	publisher, err := watermillbridge.NewPublisher(channel, watermillbridge.Config{Logger: logger})
	if err != nil {
		return err
	}
	cfg := gormoutbox.Config{
		Publisher: publisher, AutoCreate: true, Logger: logger,
		Observer: &core.Observer{Published: func(p core.PublishInfo) {
			if p.Result == core.PublishDone {
				report.say(string(p.Path))
			}
		}},
	}
	outboxConfig(&cfg)
	ob := gormoutbox.Plugin(cfg)
	if err := db.Use(ob); err != nil {
		return err
	}

	consumed, relayed := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(consumed)
		if err := consume(messages, book, report); err != nil {
			fail(err) // no further message is acknowledged
		}
	}()
	relay, stopRelay := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRelay()
	go func() { relayed <- ob.Run(relay) }()

	if err := takeOrders(ctx, db, orders, report); err != nil {
		return err
	}
	report.say(sayClosed)
	if err := waitUntilPublished(ctx, ob); err != nil {
		return err
	}
	// The relay ends while the consumer is still there; only then may the channel close, and with
	// it the consumer.
	stopRelay()
	if err := <-relayed; err != nil {
		return err
	}
	if err := publisher.Close(ctx); err != nil {
		return err
	}
	<-consumed
	return errors.Join(context.Cause(ctx), book.close())
}

// waitUntilPublished returns when the outbox has no open events.
func waitUntilPublished(ctx context.Context, ob *gormoutbox.Outbox) error {
	for {
		b, err := ob.Backlog(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case b.Dead > 0:
			return fmt.Errorf("%d events were given up", b.Dead)
		case b.Pending == 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
