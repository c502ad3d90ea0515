package outboxtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// OnceStore is a once.Store and once.TxStore in memory. It passes TestOnceStore and
// TestOnceTxStore. Its transaction form joins the transactions of a Repository, so that the test of
// an application has events and keys in one transaction. It is safe for use by several goroutines.
// Make one with NewOnceStore or Repository.OnceStore.
type OnceStore struct {
	repo *Repository
	rows map[once.Key]*onceRow // guarded by repo.mu; a transaction has locked the rows that it changed
}

var (
	_ once.Store    = (*OnceStore)(nil)
	_ once.TxStore  = (*OnceStore)(nil)
	_ once.Archiver = (*OnceStore)(nil)
)

// onceRow is one key.
type onceRow struct {
	status      onceStatus
	claim       once.Claim
	fingerprint once.Fingerprint
	attempts    int
	since       time.Time // when the first attempt began
	leaseUntil  time.Time
	expiresAt   time.Time
	doneAt      time.Time
	takenOver   bool // by the present holder
	result      once.Result
}

type onceStatus uint8

const (
	onceFree onceStatus = iota
	onceHeld
	onceDone
)

// NewOnceStore returns an empty store with a clock of its own.
func NewOnceStore(opts ...Option) *OnceStore { return NewRepository(opts...).OnceStore() }

// OnceStore returns an empty store that joins the transactions of r and has its clock.
func (r *Repository) OnceStore() *OnceStore {
	return &OnceStore{repo: r, rows: map[once.Key]*onceRow{}}
}

// ShiftClock moves the clock of the store and of its Repository by d from now on.
func (s *OnceStore) ShiftClock(d time.Duration) { s.repo.ShiftClock(d) }

// Keys returns how many keys the store has. Expired keys count until Cleanup deletes them.
func (s *OnceStore) Keys() int {
	s.repo.mu.Lock()
	defer s.repo.mu.Unlock()
	return len(s.rows)
}

// Forget removes a key, as a server does that evicts it or restarts without it.
func (s *OnceStore) Forget(key once.Key) {
	s.repo.mu.Lock()
	defer s.repo.mu.Unlock()
	delete(s.rows, key)
}

// Acquire implements once.Store.
func (s *OnceStore) Acquire(ctx context.Context, req once.Request) (got once.Acquired, err error) {
	if err := req.Validate(); err != nil {
		return once.Acquired{}, err
	}
	err = s.alone(ctx, req.Key, func(now time.Time) error {
		row := s.rows[req.Key]
		if row != nil && row.status == onceHeld && row.claim.Owner == req.Owner && row.leaseUntil.After(now) {
			got = row.again(now) // the first answer was lost
			return nil
		}
		if got, row = s.decide(req, now); row != nil {
			row.status, row.leaseUntil, row.expiresAt = onceHeld, now.Add(req.Lease), now.Add(req.Lease+req.TTL)
			s.rows[req.Key] = row
		}
		return nil
	})
	return got, err
}

// again is the answer that the holder of the key got.
func (r *onceRow) again(now time.Time) once.Acquired {
	got := once.Acquired{State: once.Fresh, Fence: r.claim.Fence, Attempt: r.attempts, TakenOver: r.takenOver}
	if r.attempts > 1 {
		got.Age = now.Sub(r.since)
	}
	return got
}

// Extend implements once.Store.
func (s *OnceStore) Extend(ctx context.Context, c once.Claim, lease time.Duration) error {
	if err := once.CheckLease(lease); err != nil {
		return err
	}
	return s.alone(ctx, c.Key, func(now time.Time) error {
		row := s.rows[c.Key]
		if row == nil { // the store forgot the key, so no other holder took it
			row = &onceRow{
				status: onceHeld, claim: c, attempts: 1, since: now,
				expiresAt: now.Add(lease + once.ForgottenTTL),
			}
			s.rows[c.Key] = row
		}
		if row.claim != c || row.status != onceHeld {
			return fmt.Errorf("outboxtest: extend: %w", once.ErrLeaseLost)
		}
		row.leaseUntil = now.Add(lease)
		if row.expiresAt.Before(row.leaseUntil) {
			row.expiresAt = row.leaseUntil
		}
		return nil
	})
}

// Complete implements once.Store.
func (s *OnceStore) Complete(ctx context.Context, c once.Claim, res once.Result, ttl time.Duration) error {
	if err := once.CheckTTL(ttl); err != nil {
		return err
	}
	return s.alone(ctx, c.Key, func(now time.Time) error {
		if s.rows[c.Key] == nil { // the store forgot the key, but the work is done
			s.rows[c.Key] = &onceRow{status: onceHeld, claim: c, attempts: 1}
		}
		row, err := s.held(c, onceDone)
		if row != nil {
			row.status, row.result, row.doneAt, row.expiresAt = onceDone, cloneResult(res), now, now.Add(ttl)
		}
		return err
	})
}

// Release implements once.Store.
func (s *OnceStore) Release(ctx context.Context, c once.Claim, attempts int) error {
	return s.alone(ctx, c.Key, func(time.Time) error {
		row, err := s.held(c, onceFree)
		if row != nil {
			row.status, row.attempts = onceFree, attempts
		}
		return err
	})
}

// held returns the row of a claim that is about to get the status to. It returns nil and nil if the
// row has that status already.
func (s *OnceStore) held(c once.Claim, to onceStatus) (*onceRow, error) {
	row := s.rows[c.Key]
	switch {
	case row != nil && row.claim == c && row.status == onceHeld:
		return row, nil
	case row != nil && row.claim == c && row.status == to:
		return nil, nil
	case row != nil && row.status == onceDone:
		return nil, fmt.Errorf("outboxtest: %w", once.ErrAlreadyDone)
	}
	return nil, fmt.Errorf("outboxtest: %w", once.ErrLeaseLost)
}

// Cleanup implements once.Store.
func (s *OnceStore) Cleanup(ctx context.Context, limit int) (deleted int, err error) {
	if err := s.repo.begin(ctx); err != nil {
		return 0, err
	}
	defer s.repo.mu.Unlock()
	for _, k := range s.expired(limit) {
		delete(s.rows, k)
		deleted++
	}
	return deleted, nil
}

// expired returns the keys that Cleanup deletes. The caller holds the mutex.
func (s *OnceStore) expired(limit int) []once.Key {
	now := s.repo.now()
	var expired []once.Key
	for k, row := range s.rows {
		_, locked := s.repo.locks[onceLock(k)]
		if !locked && row.expiresAt.Before(now) { // no lease ends after expiresAt
			expired = append(expired, k)
		}
	}
	slices.SortFunc(expired, func(a, b once.Key) int { return s.rows[a].expiresAt.Compare(s.rows[b].expiresAt) })
	return expired[:min(limit, len(expired))]
}

// Archive implements once.Archiver.
func (s *OnceStore) Archive(ctx context.Context, limit int,
	fn func(ctx context.Context, keys []once.ArchivedKey) error,
) (deleted int, err error) {
	if err := s.repo.begin(ctx); err != nil {
		return 0, err
	}
	var keys []once.ArchivedKey
	seen := map[once.Key]onceRow{}
	for _, k := range s.expired(limit) {
		row := s.rows[k]
		seen[k] = *row
		a := once.ArchivedKey{
			Key: k, Fingerprint: row.fingerprint, Owner: row.claim.Owner, Fence: row.claim.Fence,
			Attempts: row.attempts, CreatedAt: row.since, ExpiresAt: row.expiresAt,
		}
		if row.status == onceDone {
			a.Done, a.Result, a.DoneAt = true, cloneResult(row.result), row.doneAt
		}
		keys = append(keys, a)
	}
	s.repo.mu.Unlock()
	if len(keys) == 0 {
		return 0, nil
	}
	if err := fn(ctx, keys); err != nil {
		return 0, err
	}
	if err := s.repo.begin(ctx); err != nil {
		return 0, err
	}
	defer s.repo.mu.Unlock()
	for k, was := range seen {
		row, locked := s.rows[k], s.repo.locks[onceLock(k)] != nil
		if row != nil && !locked && row.claim == was.claim && row.status == was.status &&
			row.expiresAt.Equal(was.expiresAt) {
			delete(s.rows, k)
			deleted++
		}
	}
	return deleted, nil
}

// decide returns the answer for req. If the answer is Fresh, row is the row to write, without
// status and times. The caller holds the mutex and the lock of the key.
func (s *OnceStore) decide(req once.Request, now time.Time) (got once.Acquired, row *onceRow) {
	old := s.rows[req.Key]
	got = once.Acquired{State: once.Fresh, Fence: 1, Attempt: 1}
	fp := req.Fingerprint
	if old != nil {
		left := old.leaseUntil.Sub(now)
		held := old.status == onceHeld && left > 0 && left <= 2*once.MaxLease
		got.Fence = old.claim.Fence + 1
		switch {
		case !held && !old.expiresAt.After(now):
		case old.status == onceFree:
			got.Attempt = old.attempts + 1
		case !old.fingerprint.Matches(fp):
			return once.Acquired{State: once.Mismatch}, nil
		case old.status == onceDone:
			return once.Acquired{State: once.Done, Result: cloneResult(old.result)}, nil
		case held:
			return once.Acquired{State: once.InProgress, RetryAfter: left}, nil
		case req.RefuseStale:
			return once.Acquired{State: once.Abandoned}, nil
		default:
			got.Attempt, got.TakenOver = old.attempts+1, true
			if fp.IsZero() {
				fp = old.fingerprint
			}
		}
	}
	since := now
	if got.Attempt > 1 {
		since = old.since
		got.Age = now.Sub(since)
	}
	return got, &onceRow{
		claim: once.Claim{Key: req.Key, Owner: req.Owner, Fence: got.Fence}, fingerprint: fp, attempts: got.Attempt,
		since: since, takenOver: got.TakenOver,
	}
}

// alone runs fn in a short transaction that has locked one key.
func (s *OnceStore) alone(ctx context.Context, key once.Key, fn func(now time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	tx := &Tx{repo: s.repo}
	err := s.repo.lock(ctx, tx, onceLock(key))
	s.repo.mu.Lock()
	defer s.repo.mu.Unlock()
	defer s.repo.unlock(tx)
	if err != nil {
		return err
	}
	return fn(s.repo.now())
}

func onceLock(k once.Key) lockKey {
	sum := sha256.Sum256([]byte(k.String()))
	return lockKey{once: true, id: [16]byte(sum[:16])}
}

func cloneResult(r once.Result) once.Result {
	r.Data = slices.Clone(r.Data)
	return r
}

// AcquireTx implements once.TxStore.
func (s *OnceStore) AcquireTx(ctx context.Context, tx core.Tx, req once.Request) (got once.Acquired, err error) {
	if err := req.ValidateTx(); err != nil {
		return once.Acquired{}, err
	}
	err = s.within(ctx, tx, req.Key, func(t *Tx, now time.Time) error {
		var row *onceRow
		if got, row = s.decide(req, now); row != nil {
			row.status, row.doneAt, row.expiresAt = onceDone, now, now.Add(req.TTL)
			s.put(t, req.Key, row)
		}
		return nil
	})
	return got, err
}

// CompleteTx implements once.TxStore.
func (s *OnceStore) CompleteTx(ctx context.Context, tx core.Tx, c once.Claim, res once.Result) error {
	return s.changeTx(ctx, tx, c, func(row *onceRow) { row.result = cloneResult(res) })
}

// ReleaseTx implements once.TxStore.
func (s *OnceStore) ReleaseTx(ctx context.Context, tx core.Tx, c once.Claim) error {
	return s.changeTx(ctx, tx, c, func(row *onceRow) { row.status, row.result = onceFree, once.Result{} })
}

func (s *OnceStore) changeTx(ctx context.Context, tx core.Tx, c once.Claim, change func(*onceRow)) error {
	return s.within(ctx, tx, c.Key, func(t *Tx, _ time.Time) error {
		old := s.rows[c.Key]
		if old == nil || old.claim != c || old.status != onceDone {
			return fmt.Errorf("outboxtest: %w", once.ErrLeaseLost)
		}
		row := *old
		change(&row)
		s.put(t, c.Key, &row)
		return nil
	})
}

// put writes a row in a transaction that has locked the key of the row.
func (s *OnceStore) put(t *Tx, key once.Key, row *onceRow) {
	old, existed := s.rows[key]
	s.rows[key] = row
	t.undo = append(t.undo, func() {
		if existed {
			s.rows[key] = old
		} else {
			delete(s.rows, key)
		}
	})
}

// within runs fn as a statement of tx that has locked one key until the end of tx.
func (s *OnceStore) within(ctx context.Context, tx core.Tx, key once.Key, fn func(t *Tx, now time.Time) error) error {
	if tx == nil {
		return fmt.Errorf("outboxtest: %w", core.ErrNoTransaction)
	}
	t, err := s.repo.txOf(tx)
	if err != nil {
		return err
	}
	if err := t.Err(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.repo.mu.Lock()
	state := t.state
	s.repo.mu.Unlock()
	if state != txOpen {
		return fmt.Errorf("%w: %w", core.ErrTxAborted, databaseError(s.repo.dialect, errTxAborted))
	}
	err = s.repo.lock(ctx, t, onceLock(key))
	s.repo.mu.Lock()
	defer s.repo.mu.Unlock()
	if err != nil {
		t.abort()
		t.tracker.Observe("INSERT INTO idempotency_key", err)
		return err
	}
	return fn(t, s.repo.now())
}
