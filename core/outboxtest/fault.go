package outboxtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Method names a method of core.Repository that a FaultyRepository can make fail.
type Method string

// The methods that can fail.
const (
	MethodInsert         Method = "Insert"
	MethodClaimUnordered Method = "ClaimUnordered"
	MethodClaimHeads     Method = "ClaimHeads"
	MethodClaimKey       Method = "ClaimKey"
	MethodMarkDone       Method = "MarkDone"
	MethodMarkFailed     Method = "MarkFailed"
	MethodBeginSuspect   Method = "BeginSuspect"
	MethodRenew          Method = "Renew"
	MethodRelease        Method = "Release"
	MethodNextDue        Method = "NextDue"
	MethodBacklog        Method = "Backlog"
	MethodListDead       Method = "ListDead"
	MethodRedrive        Method = "Redrive"
	MethodDiscard        Method = "Discard"
	MethodCleanup        Method = "Cleanup"
	MethodCollectKeys    Method = "CollectKeys"
	MethodResetKeys      Method = "ResetKeys"
)

// Fault is an error that a FaultyRepository returns instead of the result of a call.
type Fault struct {
	Method Method // empty: any method
	N      int    // the n-th matching call from now on fails; 0 and 1 mean the next one
	Times  int    // how many matching calls in a row fail; 0 means 1, a negative number means all
	After  bool   // the call takes effect and its answer is lost; otherwise it has no effect
	Err    error  // the error that the caller gets; nil: a lost connection
}

type repository = core.Repository

// FaultyRepository passes calls on to another repository and makes some calls that have a Method
// fail. It is safe for use by several goroutines; make one with NewFaultyRepository.
type FaultyRepository struct {
	repository

	mu     sync.Mutex
	calls  map[Method]int
	total  int
	faults []*Fault
	hook   func(ctx context.Context, m Method) error
}

var _ core.Repository = (*FaultyRepository)(nil)

// NewFaultyRepository returns a repository that passes every call on to next.
func NewFaultyRepository(next core.Repository) *FaultyRepository {
	return &FaultyRepository{repository: next, calls: map[Method]int{}}
}

// Fail makes calls fail. If several faults match a call, the first one counts.
func (f *FaultyRepository) Fail(fault Fault) {
	fault.N, fault.Err = max(fault.N, 1), orConnectionLost(fault.Err)
	if fault.Times == 0 {
		fault.Times = 1
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &fault)
}

// Heal removes all faults and the hook.
func (f *FaultyRepository) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.hook = nil, nil
}

// Hook makes fn run before every call. No lock is held, so fn may block until ctx ends. The call
// fails with the error of fn. A nil fn removes the hook.
func (f *FaultyRepository) Hook(fn func(ctx context.Context, m Method) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = fn
}

// Calls returns how often the method was called, failed calls included. An empty method means all
// methods.
func (f *FaultyRepository) Calls(m Method) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m == "" {
		return f.total
	}
	return f.calls[m]
}

func orConnectionLost(err error) error {
	if err == nil {
		return errConnectionLost
	}
	return err
}

// match counts the call and returns the fault that matches it.
func (f *FaultyRepository) match(m Method) (hit *Fault, hook func(context.Context, Method) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[m]++
	f.total++
	kept := f.faults[:0]
	for _, fault := range f.faults {
		matches := fault.Method == "" || fault.Method == m
		if matches && fault.N > 1 {
			fault.N--
		} else if matches && hit == nil {
			hit = fault
			if fault.Times > 0 {
				fault.Times--
			}
		}
		if fault.Times != 0 {
			kept = append(kept, fault)
		}
	}
	f.faults = kept
	return hit, f.hook
}

// call runs one call of next and decides which result the caller gets.
func (f *FaultyRepository) call(ctx context.Context, m Method, run func() error) error {
	fault, hook := f.match(m)
	if hook != nil {
		if err := hook(ctx, m); err != nil {
			return err
		}
	}
	if fault != nil && !fault.After {
		return fault.Err
	}
	err := run()
	if fault != nil && (err == nil || isLocked(err)) {
		return fault.Err
	}
	return err
}

// isLocked reports whether an error is returned together with a result.
func isLocked(err error) bool {
	_, ok := errors.AsType[*core.LockedError](err)
	return ok
}

// value is call for a method with a result. A failed call does not return the result.
func value[T any](ctx context.Context, f *FaultyRepository, m Method, run func() (T, error)) (T, error) {
	var result T
	err := f.call(ctx, m, func() (err error) { result, err = run(); return err })
	if err != nil && !isLocked(err) {
		var none T
		return none, err
	}
	return result, err
}

// Insert implements core.Repository.
func (f *FaultyRepository) Insert(ctx context.Context, tx core.Tx, req core.InsertRequest) ([]core.Inserted, error) {
	return value(ctx, f, MethodInsert, func() ([]core.Inserted, error) { return f.repository.Insert(ctx, tx, req) })
}

// ClaimUnordered implements core.Repository.
func (f *FaultyRepository) ClaimUnordered(ctx context.Context, req core.ClaimRequest) ([]core.Claimed, error) {
	return value(ctx, f, MethodClaimUnordered,
		func() ([]core.Claimed, error) { return f.repository.ClaimUnordered(ctx, req) })
}

// ClaimHeads implements core.Repository.
func (f *FaultyRepository) ClaimHeads(ctx context.Context, req core.ClaimRequest,
	after core.KeyID,
) (rows []core.Claimed, next core.KeyID, err error) {
	rows, err = value(ctx, f, MethodClaimHeads, func() (rows []core.Claimed, err error) {
		rows, next, err = f.repository.ClaimHeads(ctx, req, after)
		return rows, err
	})
	if err != nil {
		next = core.KeyID{}
	}
	return rows, next, err
}

// ClaimKey implements core.Repository.
func (f *FaultyRepository) ClaimKey(ctx context.Context, req core.ClaimRequest,
	lane core.KeyID,
) ([]core.Claimed, error) {
	return value(ctx, f, MethodClaimKey, func() ([]core.Claimed, error) {
		return f.repository.ClaimKey(ctx, req, lane)
	})
}

// MarkDone implements core.Repository.
func (f *FaultyRepository) MarkDone(ctx context.Context, done []core.Done, deleteRows bool) (int, error) {
	return value(ctx, f, MethodMarkDone, func() (int, error) { return f.repository.MarkDone(ctx, done, deleteRows) })
}

// MarkFailed implements core.Repository.
func (f *FaultyRepository) MarkFailed(ctx context.Context, node string, failures []core.Failure) ([]bool, error) {
	return value(ctx, f, MethodMarkFailed, func() ([]bool, error) {
		return f.repository.MarkFailed(ctx, node, failures)
	})
}

// BeginSuspect implements core.Repository.
func (f *FaultyRepository) BeginSuspect(ctx context.Context, node string, wait time.Duration,
	claims []core.ClaimRef,
) ([]bool, error) {
	return value(ctx, f, MethodBeginSuspect, func() ([]bool, error) {
		return f.repository.BeginSuspect(ctx, node, wait, claims)
	})
}

// Renew implements core.Repository.
func (f *FaultyRepository) Renew(ctx context.Context, node string, lease time.Duration,
	claims []core.ClaimRef,
) ([]bool, error) {
	return value(ctx, f, MethodRenew, func() ([]bool, error) { return f.repository.Renew(ctx, node, lease, claims) })
}

// Release implements core.Repository.
func (f *FaultyRepository) Release(ctx context.Context, node string, claims []core.ClaimRef) (int, error) {
	return value(ctx, f, MethodRelease, func() (int, error) { return f.repository.Release(ctx, node, claims) })
}

// NextDue implements core.Repository.
func (f *FaultyRepository) NextDue(ctx context.Context, req core.ClaimRequest) (d time.Duration, ok bool, err error) {
	d, err = value(ctx, f, MethodNextDue, func() (d time.Duration, err error) {
		d, ok, err = f.repository.NextDue(ctx, req)
		return d, err
	})
	return d, ok && err == nil, err
}

// Backlog implements core.Repository.
func (f *FaultyRepository) Backlog(ctx context.Context, limit int) (core.Backlog, error) {
	return value(ctx, f, MethodBacklog, func() (core.Backlog, error) { return f.repository.Backlog(ctx, limit) })
}

// ListDead implements core.Repository.
func (f *FaultyRepository) ListDead(ctx context.Context, q core.DeadQuery) ([]core.DeadEvent, error) {
	return value(ctx, f, MethodListDead, func() ([]core.DeadEvent, error) { return f.repository.ListDead(ctx, q) })
}

// Redrive implements core.Repository.
func (f *FaultyRepository) Redrive(ctx context.Context, req core.AdminRequest) (int, error) {
	return value(ctx, f, MethodRedrive, func() (int, error) { return f.repository.Redrive(ctx, req) })
}

// Discard implements core.Repository.
func (f *FaultyRepository) Discard(ctx context.Context, req core.AdminRequest) (int, error) {
	return value(ctx, f, MethodDiscard, func() (int, error) { return f.repository.Discard(ctx, req) })
}

// Cleanup implements core.Repository.
func (f *FaultyRepository) Cleanup(ctx context.Context, req core.CleanupRequest) (deleted int, more bool, err error) {
	deleted, err = value(ctx, f, MethodCleanup, func() (deleted int, err error) {
		deleted, more, err = f.repository.Cleanup(ctx, req)
		return deleted, err
	})
	return deleted, more && err == nil, err
}

// CollectKeys implements core.Repository.
func (f *FaultyRepository) CollectKeys(ctx context.Context, idle time.Duration, after core.KeyID,
	limit int,
) (deleted int, next core.KeyID, err error) {
	deleted, err = value(ctx, f, MethodCollectKeys, func() (deleted int, err error) {
		deleted, next, err = f.repository.CollectKeys(ctx, idle, after, limit)
		return deleted, err
	})
	if err != nil {
		next = core.KeyID{}
	}
	return deleted, next, err
}

// ResetKeys implements core.Repository.
func (f *FaultyRepository) ResetKeys(ctx context.Context, actor, reason string) (int, error) {
	return value(ctx, f, MethodResetKeys, func() (int, error) { return f.repository.ResetKeys(ctx, actor, reason) })
}
