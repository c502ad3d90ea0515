// Package demo ends the examples that consume from a broker. A service does not end by itself.
package demo

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

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
