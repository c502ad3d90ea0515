package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// A failure whose lease was lost gives nothing up, because another copy may be at work. An error of
// another Runner, which the handler returns, says nothing about the lease of the message.
func TestAtLeastOnceGivesNothingUpWithoutItsLease(t *testing.T) {
	final := core.Permanent(errHandler)
	key := once.Key{Scope: once.Scope("inbox", "mailer", "mail"), ID: "e"}
	for name, tc := range map[string]struct {
		handler func(ctx context.Context, lose func()) error
		dead    bool
	}{
		"held": {func(context.Context, func()) error { return final }, true},
		"lost before the failure": {func(ctx context.Context, lose func()) error {
			lose()
			<-ctx.Done()
			return final
		}, false},
		"lost while the failure is judged": {func(_ context.Context, lose func()) error {
			lose()
			return errHandler // the classifier waits for the heartbeat
		}, false},
		"lost when the key is released": {func(_ context.Context, lose func()) error {
			lose()
			return final
		}, false},
		"another lease was lost": {func(context.Context, func()) error {
			return core.Permanent(fmt.Errorf("charge the card: %w", once.ErrLeaseLost))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := outboxtest.NewOnceStore()
				var running context.Context
				told := 0
				a := newAtLeastOnce(t, once.Config{Store: store}, inbox.AtLeastOnceConfig{
					Observer: &inbox.Observer{Dead: func(inbox.Info) { told++ }},
					Classifier: func(error) core.Class {
						<-running.Done()
						return core.ClassPermanent
					},
				})
				r := a.Process(t.Context(), message("e"), func(ctx context.Context, _ inbox.Message) error {
					running = ctx //nolint:fatcontext // the classifier waits for its end
					return tc.handler(ctx, func() {
						store.Forget(key)
						if _, err := store.Acquire(t.Context(), once.Request{
							Key: key, Owner: "another copy", Lease: time.Hour, TTL: time.Hour,
						}); err != nil {
							t.Error(err)
						}
					})
				})
				w := &world{t: t}
				if tc.dead {
					w.wants(r, inbox.Dead, inbox.ErrDead)
				} else {
					w.wants(r, inbox.Retry, once.ErrLeaseLost)
					w.wants(r, inbox.Retry, errHandler)
				}
				if dead := errors.Is(r.Err, inbox.ErrDead); dead != tc.dead || inbox.Final(r.Err) != tc.dead ||
					told != map[bool]int{true: 1}[tc.dead] {
					t.Errorf("%v: observers were told %d times that it is dead", r.Err, told)
				}
			})
		})
	}
}
