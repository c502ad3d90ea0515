package amqpbridge

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// A topic whose messages are refused pauses for longer each time, until a message is taken.
func TestRefusalsPauseForLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		pause := func() time.Duration {
			for range 3 { // two were on their way when the first was refused
				if class, _ := core.ClassOf(r.nack("orders")); class != core.ClassUnavailable {
					t.Errorf("class %v", class)
				}
			}
			began := time.Now()
			for r.err("orders") != nil {
				if !errors.Is(r.err("orders"), ErrNack) || r.err("mails") != nil {
					t.Fatalf("%v, and of another topic %v", r.err("orders"), r.err("mails"))
				}
				time.Sleep(10 * time.Millisecond)
			}
			return time.Since(began).Round(time.Second)
		}
		var got []time.Duration
		for range 7 {
			got = append(got, pause()/time.Second)
		}
		if want := []time.Duration{1, 2, 4, 8, 16, 30, 30}; !slices.Equal(got, want) {
			t.Errorf("pauses %d s, want %d", got, want)
		}
		r.ack("orders")
		if got := pause(); got != time.Second {
			t.Errorf("after a message was taken: %s", got)
		}
	})
}
