package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// The first message of a new handler holds up no other, however long its transaction takes and
// however often it fails.
func TestInboxNewHandlerHoldsUpNobody(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		if w.db.Dialect == core.SQLite {
			t.Log("SQLite has one writer at a time")
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		begun, done := make(chan struct{}), make(chan error, 1)
		slow := w.routed("slow")
		other := w.routed("other")
		release := make(chan struct{})
		go func() {
			_, err := w.in.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				close(begun)
				<-release
				return w.handler(msg)
			})(slow)
			done <- err
		}()
		<-begun
		quick, stop := context.WithTimeout(other.Context(), 5*time.Second)
		defer stop()
		other.SetContext(quick)
		_, err := w.another().Middleware(w.handler)(other) // another process
		close(release)
		fixture.NoError(t, err)
		select {
		case err = <-done:
			fixture.NoError(t, err)
		case <-ctx.Done():
			t.Fatal("the slow one never ended")
		}
		w.wantEffects(map[string]int{"slow handled": 1, "other handled": 1})
	})
}
