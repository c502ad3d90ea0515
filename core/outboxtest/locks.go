package outboxtest

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

// lockKey names a row that a transaction has locked: a key row, a row of the event table that is
// being inserted, or a key of an OnceStore.
type lockKey struct {
	event, once bool
	id          [16]byte
}

// rowLock is held by one transaction until it ends. Transactions wait on channels and never hold
// the mutex of the repository meanwhile. So a waiting goroutine counts as durably blocked in a
// bubble of testing/synctest.
type rowLock struct {
	owner   *Tx
	waiters []*waiter // in the order in which they get the lock
}

type waiter struct {
	tx    *Tx
	ready chan struct{} // closed when the lock was handed to tx
}

// lock waits until tx holds the lock. The caller does not hold r.mu.
func (r *Repository) lock(ctx context.Context, tx *Tx, key lockKey) error {
	r.mu.Lock()
	l := r.locks[key]
	switch {
	case l == nil:
		r.locks[key] = &rowLock{owner: tx}
		tx.locks = append(tx.locks, key)
		r.mu.Unlock()
		return nil
	case l.owner == tx:
		r.mu.Unlock()
		return nil
	case r.deadlock(tx, l):
		r.mu.Unlock()
		return databaseError(r.dialect, errDeadlock)
	}
	w := &waiter{tx: tx, ready: make(chan struct{})}
	l.waiters = append(l.waiters, w)
	tx.waiting = l
	r.mu.Unlock()

	select {
	case <-w.ready:
	case <-ctx.Done():
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	tx.waiting = nil
	if l.owner == tx { // even if ctx has ended at the same time: the result must not depend on chance
		return nil
	}
	for i := range l.waiters {
		if l.waiters[i] == w {
			l.waiters = append(l.waiters[:i], l.waiters[i+1:]...)
			break
		}
	}
	return ctx.Err()
}

// deadlock reports whether tx would wait for itself if it waited for l.
func (r *Repository) deadlock(tx *Tx, l *rowLock) bool {
	for l != nil {
		if l.owner == tx {
			return true
		}
		l = l.owner.waiting
	}
	return false
}

// unlock hands every lock of tx to the first transaction that waits for it. The caller holds r.mu.
func (r *Repository) unlock(tx *Tx) {
	for _, key := range tx.locks {
		l := r.locks[key]
		if len(l.waiters) == 0 {
			delete(r.locks, key)
			continue
		}
		w := l.waiters[0]
		l.waiters = l.waiters[1:]
		l.owner = w.tx
		w.tx.waiting = nil // otherwise it would seem to wait for itself until it wakes up
		w.tx.locks = append(w.tx.locks, key)
		close(w.ready)
	}
	tx.locks = nil
}

// LockRows locks rows of the table until the end of the transaction, as an UPDATE by a person does.
// Claims pass over the rows, and marks leave them out.
func (t *Tx) LockRows(ctx context.Context, ids ...core.RowID) error {
	for _, id := range ids {
		if err := t.repo.lock(ctx, t, lockKey{event: true, id: id}); err != nil {
			return err
		}
	}
	return nil
}

// locked reports whether a transaction holds the row. The caller holds r.mu.
func (r *Repository) locked(id core.RowID) bool {
	return len(r.locks) > 0 && r.locks[lockKey{event: true, id: id}] != nil
}
