package amqpbridge

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// A topology builder that panics or ends its goroutine ends its publish, and not the process.
func TestABuilderThatPanics(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func() error{
		"panic": func() error { panic("no queue") }, "goexit": func() error { runtime.Goexit(); return nil },
	} {
		c := &connection{alarm: make(chan struct{})}
		if err := c.unlessBlocked(send); !errors.Is(err, watermillbridge.ErrPanic) {
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
				go func() { got <- c.unlessBlocked(func() error { return <-answer }) }()
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
