package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/lease"
)

// The reason why the end of the work cannot be written is what the store says, and not that the time
// for it is over.
func TestRecordKeepsTheReason(t *testing.T) {
	t.Parallel()
	refused := errors.New("permission denied")
	k := lease.Keeper{Timeout: time.Second, Over: func(error) bool { return false }}
	for name, reason := range map[string]error{"refused": refused, "no answer at all": context.DeadlineExceeded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				writes := 0
				err := k.Record(t.Context(), func(ctx context.Context) error {
					if writes++; writes < 3 && errors.Is(reason, refused) {
						return refused
					}
					<-ctx.Done()
					return ctx.Err()
				})
				if !errors.Is(err, reason) {
					t.Errorf("%v, want %v", err, reason)
				}
			})
		})
	}
}
