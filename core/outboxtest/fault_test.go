package outboxtest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// calls returns a call of every method of core.Repository.
func calls(ctx context.Context, r core.Repository, tx core.Tx) map[outboxtest.Method]func() error {
	e := core.Event{ID: core.NewEventID(), Type: "t", Topic: "t"}
	id, _ := core.NewRowID(e.ID, e.Topic)
	return map[outboxtest.Method]func() error{
		outboxtest.MethodInsert: func() error {
			_, err := r.Insert(ctx, tx, core.InsertRequest{Rows: []core.NewRow{{ID: id, Event: e}}})
			return err
		},
		outboxtest.MethodClaimUnordered: func() error {
			_, err := r.ClaimUnordered(ctx, core.ClaimRequest{})
			return err
		},
		outboxtest.MethodClaimHeads: func() error {
			_, _, err := r.ClaimHeads(ctx, core.ClaimRequest{}, core.KeyID{})
			return err
		},
		outboxtest.MethodClaimKey: func() error {
			_, err := r.ClaimKey(ctx, core.ClaimRequest{}, core.KeyID{})
			return err
		},
		outboxtest.MethodMarkDone:     func() error { _, err := r.MarkDone(ctx, nil, false); return err },
		outboxtest.MethodMarkFailed:   func() error { _, err := r.MarkFailed(ctx, "", nil); return err },
		outboxtest.MethodBeginSuspect: func() error { _, err := r.BeginSuspect(ctx, "", 0, nil); return err },
		outboxtest.MethodRenew:        func() error { _, err := r.Renew(ctx, "", 0, nil); return err },
		outboxtest.MethodRelease:      func() error { _, err := r.Release(ctx, "", nil); return err },
		outboxtest.MethodNextDue:      func() error { _, _, err := r.NextDue(ctx, core.ClaimRequest{}); return err },
		outboxtest.MethodBacklog:      func() error { _, err := r.Backlog(ctx, 1); return err },
		outboxtest.MethodListDead:     func() error { _, err := r.ListDead(ctx, core.DeadQuery{}); return err },
		outboxtest.MethodRedrive:      func() error { _, err := r.Redrive(ctx, core.AdminRequest{}); return err },
		outboxtest.MethodDiscard:      func() error { _, err := r.Discard(ctx, core.AdminRequest{}); return err },
		outboxtest.MethodCleanup: func() error {
			_, _, err := r.Cleanup(ctx, core.CleanupRequest{Limit: 1})
			return err
		},
		outboxtest.MethodCollectKeys: func() error { _, _, err := r.CollectKeys(ctx, 0, core.KeyID{}, 1); return err },
		outboxtest.MethodResetKeys:   func() error { _, err := r.ResetKeys(ctx, "a", "r"); return err },
	}
}

func TestFaultyRepositoryFailsEachMethod(t *testing.T) {
	r := outboxtest.NewRepository()
	f := outboxtest.NewFaultyRepository(r)
	tx := begin(t, r)
	reason := errors.New("reason")
	total := 0
	for m, call := range calls(t.Context(), f, tx) {
		f.Fail(outboxtest.Fault{Method: m, N: 2, Err: reason})
		for i, want := range []error{nil, reason, nil} {
			if m == outboxtest.MethodInsert && i == 2 {
				break // the first call has inserted the row
			}
			wantErr(t, call(), want, "%s, call %d", m, i+1)
			total++
		}
		if n := f.Calls(m); n != 3 && m != outboxtest.MethodInsert {
			t.Errorf("%s: %d calls", m, n)
		}
	}
	equal(t, f.Calls(""), total, "calls")
}

func TestFaultyRepositoryBeforeAndAfter(t *testing.T) {
	for _, after := range []bool{false, true} {
		r := outboxtest.NewRepository()
		f := outboxtest.NewFaultyRepository(r)
		f.Fail(outboxtest.Fault{After: after})
		tx := begin(t, r)
		if err := calls(t.Context(), f, tx)[outboxtest.MethodInsert](); err == nil {
			t.Error("no error")
		}
		must(t, tx.Commit())
		if n := len(r.Rows()); (n == 1) != after {
			t.Errorf("after %t: %d rows", after, n)
		}
	}
}

func TestFaultyRepositoryTimesHookAndHeal(t *testing.T) {
	f := outboxtest.NewFaultyRepository(outboxtest.NewRepository())
	backlog := func() error { _, err := f.Backlog(t.Context(), 1); return err }
	one, two := errors.New("one"), errors.New("two")
	f.Fail(outboxtest.Fault{Method: outboxtest.MethodBacklog, Times: 2, Err: one})
	f.Fail(outboxtest.Fault{N: 4, Times: -1, Err: two})
	for i, want := range []error{one, one, nil, two, two} {
		wantErr(t, backlog(), want, "call %d", i+1)
	}
	f.Heal()
	var seen []outboxtest.Method
	f.Hook(func(_ context.Context, m outboxtest.Method) error {
		seen = append(seen, m)
		return one
	})
	if err := backlog(); !errors.Is(err, one) || len(seen) != 1 || seen[0] != outboxtest.MethodBacklog {
		t.Errorf("with a hook: %v, seen %v", err, seen)
	}
	f.Hook(nil)
	noError(t, backlog())
}
