package watermillbridge_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	bridge "github.com/ormoutbox/ormoutbox/watermillbridge"
)

// The difference between Publish and Direct is the cost of the bridge. Direct makes the same
// message and calls the publisher itself.
func BenchmarkPublisher(b *testing.B) {
	nop := func(string, ...*message.Message) error { return nil }
	d := delivery("orders")
	b.Run("Direct", func(b *testing.B) {
		_, fake := newPublisher(b, nop, bridge.Config{})
		ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
		defer cancel()
		b.ReportAllocs()
		for b.Loop() {
			must(b, fake.Publish(d.Topic, bridge.NewMessage(ctx, d)))
		}
	})
	b.Run("Publish", func(b *testing.B) {
		p, _ := newPublisher(b, nop, bridge.Config{})
		ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
		defer cancel()
		b.ReportAllocs()
		for b.Loop() {
			must(b, p.Publish(ctx, d))
		}
	})
}
