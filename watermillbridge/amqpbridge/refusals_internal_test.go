package amqpbridge

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
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

// Topics may be made of user data, and be used once.
func TestRefusingTopicsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		for i := range 2*maxRefusing + 1 {
			if i%1000 == 0 {
				time.Sleep(firstPause)
			}
			_ = r.nack(strconv.Itoa(i))
		}
		if n := len(r.byTopic); n > maxRefusing {
			t.Errorf("%d topics are remembered, want at most %d", n, maxRefusing)
		}
		if last := strconv.Itoa(2 * maxRefusing); r.err(last) == nil {
			t.Error("the pause of a topic was forgotten before its end")
		}
	})
}

// A relay tries nothing in a pause, and goes on when it is over.
func TestARelayKeepsThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		var unsent, nacks int
		var took time.Duration
		full := time.Now().Add(10 * time.Minute)
		ob := outboxtest.NewOutbox(
			t,
			core.Config{Relay: relay.Config{Workers: 1}, Publisher: core.PublisherFunc(func(_ context.Context,
				d core.Delivery,
			) error {
				if err := r.err(d.Topic); err != nil {
					unsent++
					return err
				}
				if time.Now().Before(full) {
					nacks++
					return r.nack(d.Topic)
				}
				r.ack(d.Topic)
				took = time.Since(full)
				return nil
			})},
		)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ob.Run(ctx) }()
		if err := publish(ctx, ob, 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Minute)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if unsent > 0 || nacks < 20 || took == 0 || took > longestPause+time.Second {
			t.Errorf("%d tries without a message, %d nacks; published %s after the queue had room", unsent, nacks, took)
		}
	})
}
