package inbox_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
)

// Errors of well-known clients that say that a service cannot be used now are outages, with the
// libraries that make them.
func TestOutagesOfClients(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"open breaker": gobreaker.ErrOpenState, "half open breaker": gobreaker.ErrTooManyRequests,
		"gRPC unavailable": status.Error(codes.Unavailable, "down"),
		"gRPC throttled":   status.Error(codes.ResourceExhausted, "slow down"),
		"redis pool":       fmt.Errorf("charge: %w", redis.ErrPoolTimeout),
	} {
		if c := core.DefaultClassifier(err); c != core.ClassUnavailable {
			t.Errorf("%s: %s", name, c)
		}
	}
	for name, err := range map[string]error{
		"gRPC not found": status.Error(codes.NotFound, "no such order"), "redis nil": redis.Nil,
		"own text": errors.New("the circuit breaker of the house is open"),
	} {
		if c := core.DefaultClassifier(err); c != core.ClassTransient {
			t.Errorf("%s: %s", name, c)
		}
	}
}

// An open circuit breaker inside of the inbox is an outage: it spends no attempt of the events that
// it refuses.
func TestInboxBreakerInsideSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		var handled atomic.Int64
		breaker := middleware.NewCircuitBreaker(gobreaker.Settings{
			Timeout:     time.Hour,
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.TotalFailures > 0 },
		})
		h := w.in.Middleware(breaker.Middleware(func(*message.Message) ([]*message.Message, error) {
			handled.Add(1)
			return nil, core.Unavailable(errors.New("the bank is down"))
		}))
		for _, id := range []string{"a", "b"} {
			msg := w.routed(id)
			for range 5 {
				if _, err := h(msg); err == nil || coreinbox.Final(err) {
					t.Errorf("%s: %v", id, err)
				}
			}
			if status, attempts := w.status(id); status == 4 || attempts > 0 {
				t.Errorf("%s: status %d, attempts %d", id, status, attempts)
			}
		}
		if handled.Load() != 1 {
			t.Errorf("the handler ran %d times", handled.Load())
		}
		w.hears("dead", 0)
	}, func(c *coreinbox.Config) { c.MaxAttempts = 3 })
}
