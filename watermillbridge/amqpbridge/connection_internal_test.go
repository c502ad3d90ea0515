package amqpbridge

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// A topology builder that panics or ends its goroutine ends its publish, and not the process.
func TestABuilderThatPanics(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func() error{
		"panic": func() error { panic("no queue") }, "goexit": func() error { runtime.Goexit(); return nil },
	} {
		c := &connection{alarm: make(chan struct{})}
		if err := c.unlessBlocked("", send); !errors.Is(err, watermillbridge.ErrPanic) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A message that was sent before an alarm may be answered in it, or when it is over.
func TestAnswersInAnAlarm(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		over, answered bool
		want           error
	}{
		"answered":          {answered: true},
		"not answered":      {want: ErrBlocked},
		"answered after it": {over: true, answered: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, notes := &connection{alarm: make(chan struct{})}, make(chan amqp091.Blocking)
				go c.watch(notes)
				answer, got := make(chan error, 1), make(chan error, 1)
				go func() { got <- c.unlessBlocked("", func() error { return <-answer }) }()
				synctest.Wait()
				notes <- amqp091.Blocking{Active: true, Reason: "low on memory"}
				synctest.Wait()
				if tc.over {
					notes <- amqp091.Blocking{}
					synctest.Wait()
				}
				if tc.answered {
					answer <- nil
				}
				if err := <-got; !errors.Is(err, tc.want) {
					t.Errorf("err = %v, want %v", err, tc.want)
				}
				if !tc.answered {
					answer <- nil
				}
				close(notes)
			})
		})
	}
}

// The broker confirms after an alarm what it got before it. That is the answer to the next publish of
// the event, so that an alarm costs no copies.
func TestAnAlarmCostsNoCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, notes := &connection{alarm: make(chan struct{})}, make(chan amqp091.Blocking)
		go c.watch(notes)
		var sent atomic.Int32
		confirm := make(chan struct{})
		ob := outboxtest.NewOutbox(t, core.Config{Publisher: core.PublisherFunc(func(_ context.Context,
			d core.Delivery,
		) error {
			return c.unlessBlocked(d.RowID.String(), func() error {
				if sent.Add(1) == 10 {
					return core.Unavailable(amqp091.ErrClosed) // this message was lost
				}
				<-confirm
				return nil
			})
		}), Relay: relay.Config{}})
		if err := publish(t.Context(), ob, 10); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ob.Run(ctx) }()
		for sent.Load() < 10 {
			time.Sleep(10 * time.Millisecond)
		}
		for range 3 {
			notes <- amqp091.Blocking{Active: true, Reason: "low on memory"}
			time.Sleep(10 * time.Minute)
			notes <- amqp091.Blocking{}
		}
		close(confirm)
		time.Sleep(time.Minute)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		close(notes)
		b, err := ob.Backlog(t.Context())
		if err != nil || b.Pending > 0 || sent.Load() != 11 {
			t.Errorf("%d messages, want one for each of 10 events, and again for the lost one; backlog %+v, %v",
				sent.Load(), b, err)
		}
		if len(c.unheard) > 0 {
			t.Errorf("%d answers are kept", len(c.unheard))
		}
	})
}

// publish records n events.
func publish(ctx context.Context, ob *outboxtest.Outbox, n int) error {
	return ob.Transactor.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		for range n {
			if _, err := ob.Publish(ctx, tx, core.Event{Type: "t", Topic: "orders"}); err != nil {
				return err
			}
		}
		return nil
	})
}
