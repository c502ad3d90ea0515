package once_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// Completed effects are archived and then deleted, in the order of their completion. If the archive
// fails, they are not deleted.
func TestEffectArchive(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		worker := w.worker(sent)
		var want []string
		for _, key := range []string{"1", "2", "3"} {
			e := w.mustEnqueue(mail(key))
			fixture.NoError(t, worker.Publish(t.Context(), w.delivery(e, 1)))
			want = append(want, e.ID)
		}
		open := w.mustEnqueue(mail("open"))
		broken := errors.New("the disk is full")
		var got []string
		archive := func(err error) (int, error) {
			take := func(_ context.Context, effects []command.Record) error {
				for _, e := range effects {
					if err == nil {
						got = append(got, e.ID)
					}
					if e.Status != command.StatusCompleted || string(e.Payload) != string(mail("1").Payload) {
						t.Errorf("archived %+v", e)
					}
				}
				return err
			}
			return w.store.Archive(t.Context(), -time.Minute, 2, take)
		}
		if n, err := archive(broken); n != 0 || !errors.Is(err, broken) {
			t.Errorf("%d effects were deleted, %v", n, err)
		}
		for _, deleted := range []int{2, 1, 0} {
			if n, err := archive(nil); n != deleted || err != nil {
				t.Errorf("%d effects were deleted, %v, want %d", n, err, deleted)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		left, err := w.queue.List(t.Context(), command.Query{})
		fixture.Check(t, err == nil && len(left) == 1 && left[0].ID == open.ID && slices.Equal(got, want),
			"archived %q, want %q; left %+v, %v", got, want, left, err)
	})
}
