package relay_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// deferring keeps the rows of Publish until send is called in their transaction.
type deferring struct {
	*outboxtest.Repository
	waiting []keptInsert
	eager   int // calls of Insert
}

type keptInsert struct {
	req core.InsertRequest
	d   core.Deferral
}

func (r *deferring) Insert(ctx context.Context, tx core.Tx, req core.InsertRequest) ([]core.Inserted, error) {
	r.eager++
	return r.Repository.Insert(ctx, tx, req)
}

func (r *deferring) InsertOrDefer(
	_ context.Context, _ core.Tx, req core.InsertRequest, d core.Deferral,
) ([]core.Inserted, bool, error) {
	r.waiting = append(r.waiting, keptInsert{req, d})
	return nil, true, nil
}

// send writes the waiting rows under one claim. If places is false, it does not say where they are.
func (r *deferring) send(ctx context.Context, tx core.Tx, places bool) error {
	waiting := r.waiting
	r.waiting = nil
	for _, w := range waiting {
		w.req.ClaimNo = waiting[0].req.ClaimNo
		w.d.Sending(w.req.ClaimNo)
		got, err := r.Repository.Insert(ctx, tx, w.req)
		if !places {
			got = nil
		}
		w.d.Done(got, err)
		if err != nil {
			return err
		}
	}
	return nil
}

func newDeferring(t *testing.T, cfg core.Config) (*world, *deferring, *core.Outbox) {
	t.Helper()
	repo := &deferring{Repository: outboxtest.NewRepository()}
	w := join(t, repo.Repository, &outboxtest.Publisher{}, cfg)
	w.faulty = nil
	cfg.Repository, cfg.Publisher = repo, w.pub
	cfg.Observer = &core.Observer{Published: func(i core.PublishInfo) {
		if i.Path == core.PathHot {
			w.hot.Add(1)
		} else {
			w.cold.Add(1)
		}
	}}
	ob := newOutbox(t, cfg)
	w.ob = ob
	return w, repo, ob
}

// Rows that wait are published like others once they are sent. Their leases count from then,
// however long they have waited.
func TestDeferredEventsAreHot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, repo, ob := newDeferring(t, core.Config{Relay: relay.Config{HotLease: 10 * time.Second}})
		w.run()
		var want []string
		err := repo.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			for range 3 {
				ids, err := ob.Publish(ctx, tx, core.Event{Type: "a", Key: "k"}, core.Event{Type: "a"})
				if err != nil {
					return err
				}
				want = append(want, ids...)
			}
			time.Sleep(time.Minute)
			return repo.send(ctx, tx, true)
		})
		must(t, err)
		synctest.Wait()
		got := ids(w.pub.Accepted())
		if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) || w.hot.Load() != 6 {
			t.Errorf("published %q, %d of them hot, want %q", got, w.hot.Load(), want)
		}
		inOrder(t, w.pub.Accepted())
	})
}

// If the places are not known, the poller publishes the rows when their leases have ended.
func TestDeferredEventsWithoutPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, repo, ob := newDeferring(t, core.Config{})
		w.run()
		err := repo.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			if _, err := ob.Publish(ctx, tx, core.Event{Type: "a", Key: "k"}); err != nil {
				return err
			}
			return repo.send(ctx, tx, false)
		})
		must(t, err)
		time.Sleep(5 * time.Minute)
		if n := len(w.pub.Accepted()); n != 1 || w.hot.Load() != 0 {
			t.Errorf("published %d, %d of them hot, want 1 and 0", n, w.hot.Load())
		}
	})
}

// A rollback frees the slots of rows that were never sent.
func TestDeferredEventsAreRolledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, repo, ob := newDeferring(t, core.Config{Relay: relay.Config{HotEvents: 1}})
		w.run()
		boom := errors.New("boom")
		for range 5 {
			err := repo.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				_, err := ob.Publish(ctx, tx, core.Event{Type: "a", Key: "k"})
				repo.waiting = nil
				return errors.Join(err, boom)
			})
			if !errors.Is(err, boom) {
				t.Fatal(err)
			}
		}
		err := repo.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			_, err := ob.Publish(ctx, tx, core.Event{Type: "a", Key: "k"})
			return errors.Join(err, repo.send(ctx, tx, true))
		})
		must(t, err)
		synctest.Wait()
		if n := len(w.pub.Accepted()); n != 1 || w.hot.Load() != 1 {
			t.Errorf("published %d, %d of them hot, want 1 and 1", n, w.hot.Load())
		}
	})
}

// An Eager event is inserted by Publish. The flag is not stored.
func TestEagerEvent(t *testing.T) {
	t.Parallel()
	_, repo, ob := newDeferring(t, core.Config{})
	err := publishTx(t.Context(), repo, ob, core.Event{Type: "a"}, core.Event{Type: "a", Eager: true})
	if err != nil || repo.eager != 1 || len(repo.waiting) != 0 {
		t.Errorf("Publish: %v, %d inserts, %d wait", err, repo.eager, len(repo.waiting))
	}
	err = publishTx(t.Context(), repo, ob, core.Event{Type: "a"})
	if err != nil || repo.eager != 1 || len(repo.waiting) != 1 || repo.waiting[0].req.Rows[0].Event.Eager {
		t.Errorf("Publish: %v, %d inserts, waiting %v", err, repo.eager, repo.waiting)
	}
}
