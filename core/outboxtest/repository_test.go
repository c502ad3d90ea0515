package outboxtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// insert writes one ordered row for the key and returns its place.
func insert(ctx context.Context, r *outboxtest.Repository, tx core.Tx, key string) (core.Inserted, error) {
	e := core.Event{ID: core.NewEventID(), Type: "t", Topic: "topic", Key: key, OccurredAt: time.Now()}
	id, err := core.NewRowID(e.ID, e.Topic)
	if err != nil {
		return core.Inserted{}, err
	}
	places, err := r.Insert(ctx, tx, core.InsertRequest{Rows: []core.NewRow{{ID: id, Event: e, Lane: core.NewLane("", e.Topic, key)}}})
	if err != nil {
		return core.Inserted{}, err
	}
	return places[0], nil
}

func begin(t *testing.T, r *outboxtest.Repository) *outboxtest.Tx {
	t.Helper()
	tx, err := r.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func TestKeyLockIsHeldUntilTheEndInsideABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := outboxtest.NewRepository()
		first := begin(t, r)
		a, err := insert(t.Context(), r, first, "k")
		if err != nil {
			t.Fatal(err)
		}
		type result struct {
			at  core.Inserted
			err error
		}
		done := make(chan result, 1)
		second := begin(t, r)
		go func() {
			at, err := insert(t.Context(), r, second, "k")
			done <- result{at, err}
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("the second transaction did not wait for the key")
		default:
		}
		if err := first.Commit(); err != nil {
			t.Fatal(err)
		}
		b := <-done
		if b.err != nil || b.at.KeySeq != a.KeySeq+1 || b.at.Opened {
			t.Fatalf("second place %+v, %v; first %+v", b.at, b.err, a)
		}
		if err := second.Rollback(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWaitingForAKeyEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := outboxtest.NewRepository()
		first := begin(t, r)
		if _, err := insert(t.Context(), r, first, "k"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := insert(ctx, r, begin(t, r), "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("insert while the key is locked: %v", err)
		}
	})
}

func TestDeadlockHasAVictim(t *testing.T) {
	for _, d := range []core.Dialect{core.Postgres, core.MySQL, core.SQLite} {
		t.Run(string(d), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := outboxtest.NewRepository(outboxtest.WithDialect(d))
				one, two := begin(t, r), begin(t, r)
				for tx, key := range map[*outboxtest.Tx]string{one: "a", two: "b"} {
					if _, err := insert(t.Context(), r, tx, key); err != nil {
						t.Fatal(err)
					}
				}
				done := make(chan error, 1)
				go func() {
					_, err := insert(t.Context(), r, one, "b")
					done <- err
				}()
				synctest.Wait()
				if _, err := insert(t.Context(), r, two, "a"); err == nil {
					t.Fatal("no victim")
				}
				if _, err := insert(t.Context(), r, two, "c"); err == nil {
					t.Fatal("the victim goes on")
				}
				_ = two.Rollback()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if err := one.Commit(); err != nil {
					t.Fatal(err)
				}
				if n := len(r.Rows()); n != 2 {
					t.Fatalf("%d rows, want those of the winner", n)
				}
			})
		})
	}
}

func TestCommitFaults(t *testing.T) {
	for _, tt := range []struct {
		fault   outboxtest.CommitFault
		outcome core.Outcome
		unknown bool
		rows    int
	}{
		{outboxtest.CommitSucceeds, core.Committed, false, 1},
		{outboxtest.CommitRefused, core.RolledBack, false, 0},
		{outboxtest.CommitAnswerLost, core.Unknown, true, 1},
		{outboxtest.CommitNotSent, core.Unknown, true, 0},
	} {
		for _, d := range []core.Dialect{core.Postgres, core.MySQL, core.SQLite} {
			r := outboxtest.NewRepository(outboxtest.WithDialect(d))
			r.FailCommit(tt.fault)
			tx := begin(t, r)
			if _, err := insert(t.Context(), r, tx, "k"); err != nil {
				t.Fatal(err)
			}
			var heard []core.Outcome
			tx.OnOutcome(func(o core.Outcome) { heard = append(heard, o) })
			err := tx.Commit()
			if (err == nil) != (tt.fault == outboxtest.CommitSucceeds) || errors.Is(err, core.ErrCommitUnknown) != tt.unknown {
				t.Errorf("%s, fault %d: Commit: %v", d, tt.fault, err)
			}
			if len(heard) != 1 || heard[0] != tt.outcome {
				t.Errorf("%s, fault %d: heard %v, want %s once", d, tt.fault, heard, tt.outcome)
			}
			if n := len(r.Rows()); n != tt.rows {
				t.Errorf("%s, fault %d: %d rows, want %d", d, tt.fault, n, tt.rows)
			}
		}
	}
}
