package core_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// A publisher can put an event off. The event comes back at the time that the publisher gave,
// spends no attempt, and holds up no other event of its topic.
func TestPutOff(t *testing.T) {
	if core.PutOff(nil, time.Second) != nil {
		t.Error("nil is an error")
	}
	for d, within := range map[time.Duration][2]time.Duration{
		7 * time.Second:  {7 * time.Second, 9 * time.Second},
		0:                {time.Millisecond, 3 * time.Second}, // the same as UnavailableForKey
		-time.Hour:       {time.Millisecond, 3 * time.Second},
		1000 * time.Hour: {24 * time.Hour, 25 * time.Hour},
	} {
		t.Run(d.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				type try struct {
					after   time.Duration
					attempt int
				}
				tries := make(chan try, 10)
				others := make(chan struct{}, 10)
				start := time.Now()
				n := 0
				repo := outboxtest.NewRepository()
				ob := newOutbox(t, core.Config{
					Repository: repo,
					Publisher: core.PublisherFunc(func(_ context.Context, d2 core.Delivery) error {
						if d2.Type == "other" {
							others <- struct{}{}
							return nil
						}
						tries <- try{time.Since(start), d2.Attempt}
						if n++; n == 1 {
							return core.PutOff(core.Unavailable(errors.New("closed on Sundays")), d)
						}
						return nil
					}),
				})
				must(t, publishTx(t.Context(), repo.Transactor(), ob, core.Event{Type: "first", Topic: "t", Unordered: true},
					core.Event{Type: "other", Topic: "t", Unordered: true}))
				ctx, stop := context.WithTimeout(context.Background(), within[1])
				defer stop()
				noError(t, ob.Run(ctx))
				if len(tries) != 2 || len(others) != 1 {
					t.Fatalf("%d tries, %d of the other", len(tries), len(others))
				}
				first, second := <-tries, <-tries
				if d := second.after - first.after; d < within[0] || second.attempt != 1 {
					t.Errorf("back after %s, attempt %d", d, second.attempt)
				}
			})
		})
	}
}
