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

// The database gives the lock of a key to the next transaction as soon as the earlier one has
// committed. So an event may reach its lane before the relay hears how the earlier transaction
// ended. If another process then gets the earlier event, the later event must not wait for it
// forever.
func TestLaneDoesNotWaitForWhatNeverComes(t *testing.T) {
	tests := []struct {
		name   string
		fault  outboxtest.CommitFault
		outage bool
	}{
		{name: "outcome unknown", fault: outboxtest.CommitAnswerLost},
		{name: "destination stopped", outage: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
				down := &outboxtest.Publisher{}
				w, other := join(t, repo, pub, core.Config{Publisher: down}), join(t, repo, pub, core.Config{})
				for _, m := range []outboxtest.Method{outboxtest.MethodClaimHeads, outboxtest.MethodClaimKey} {
					w.faulty.Fail(outboxtest.Fault{Method: m, Times: -1}) // the other process always claims first
				}
				w.run()
				told := make(chan struct{})
				tx, err := repo.Begin(t.Context())
				must(t, err)
				tx.OnOutcome(func(core.Outcome) { <-told })
				if _, err := w.ob.Publish(t.Context(), tx, core.Event{Type: "a", Key: "k"}); err != nil {
					t.Fatal(err)
				}
				tx.FailCommit(tt.fault)
				ended := make(chan error, 1)
				go func() { ended <- tx.Commit() }()
				synctest.Wait() // the transaction has committed, and its callback was not called
				w.publish(core.Event{Type: "a", Key: "k"})
				if tt.outage {
					down.Outage("a", nil)
					w.publish(core.Event{Type: "a"})
					synctest.Wait()
				}
				close(told)
				if err := <-ended; tt.fault != 0 && !errors.Is(err, core.ErrCommitUnknown) {
					t.Fatalf("Commit: %v", err)
				}
				synctest.Wait()
				other.run()
				time.Sleep(time.Minute)
				for _, r := range repo.Rows() {
					if !r.KeyID.IsZero() && r.Status != outboxtest.StatusDone {
						t.Errorf("event %d of the key is %s, held by %s", r.KeySeq, r.Status, r.ClaimedBy)
					}
				}
				inOrder(t, pub.Accepted())
				noError(t, errors.Join(w.stop(), other.stop()))
			})
		})
	}
}

// A refusal counts once, even if the relay has to write it more than once.
func TestRefusalWhoseAnswerWasLostCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.pub.FailNext(1, errors.New("refused"))
		w.faulty.Fail(outboxtest.Fault{Method: outboxtest.MethodMarkFailed, After: true, Times: 3})
		w.run()
		w.publish(core.Event{Type: "a"})
		time.Sleep(time.Minute)
		w.atRest(1)
		equal(t, w.repo.Rows()[0].Attempts, 1, "attempts after one refusal")
	})
}

// After a full claim of one row without a key, the next poll asks for no key.
func TestUnorderedRowsAskForNoLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{KeyRun: 1})
		producer := join(t, w.repo, w.pub, core.Config{})
		producer.publish(core.Event{Type: "a"}, core.Event{Type: "a"})
		must(t, w.ob.Drain(context.Background()))
		w.atRest(2)
		equal(t, w.faulty.Calls(outboxtest.MethodClaimKey), 0, "looks at keys")
	})
}
