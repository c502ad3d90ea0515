package sqlonce

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Status of a row.
const (
	statusFree = 0
	statusHeld = 1
	statusDone = 2
)

// metaTakenOver is in result_meta of a held key that was taken over, so that a repeated Acquire has
// the answer of the first. The result of the work replaces it.
const metaTakenOver = "taken over"

// Acquire implements once.Store. A new key costs one statement. A key that is done or in progress
// costs two statements and no lock. A takeover is a transaction.
func (s *Store) Acquire(ctx context.Context, req once.Request) (once.Acquired, error) {
	if err := req.Validate(); err != nil {
		return once.Acquired{}, err
	}
	const what = "acquire"
	lease, expires := sqlstore.Micros(req.Lease), sqlstore.Micros(req.Lease+req.TTL)
	var got once.Acquired
	for range sqlstore.Vanished {
		for _, step := range []func() error{
			func() error {
				return s.db.Single(ctx, what, func(q sqlkit.Querier) (err error) {
					got, err = s.insert(ctx, q, s.sql.insert, req, lease, expires)
					return err
				})
			},
			func() error {
				return s.db.Single(ctx, what, func(q sqlkit.Querier) (err error) {
					got, err = s.look(ctx, q, req)
					return err
				})
			},
			func() error {
				return s.db.InTx(ctx, what, func(q sqlkit.Querier) (err error) {
					got, err = s.see(ctx, q, false, req, lease, expires)
					return err
				})
			},
		} {
			if err := step(); err != nil {
				return once.Acquired{}, err // perhaps only the answer to COMMIT was lost: the owner may ask again
			}
			if got.State != 0 {
				return got, nil
			}
		}
	}
	return once.Acquired{}, s.db.Wrap(what, sqlstore.ErrVanished)
}

// AcquireTx implements once.TxStore. A new key costs one statement.
func (s *Store) AcquireTx(ctx context.Context, tx core.Tx, req once.Request) (once.Acquired, error) {
	const what = "acquire in transaction"
	if err := req.ValidateTx(); err != nil {
		return once.Acquired{}, err
	}
	if err := s.db.Join(tx); err != nil {
		return once.Acquired{}, s.db.Wrap(what, err)
	}
	got, err := s.acquireTx(ctx, tx, req)
	return got, s.db.Wrap(what, sqlstore.TxError(err))
}

func (s *Store) acquireTx(ctx context.Context, tx core.Tx, req once.Request) (once.Acquired, error) {
	insert, err := s.db.InsertText(ctx, tx, s.sql.insertTx)
	if err != nil {
		return once.Acquired{}, err
	}
	for range sqlstore.Vanished {
		got, err := s.insert(ctx, tx, insert, req, sqlstore.Micros(req.TTL))
		if err != nil || got.State != 0 {
			return got, err
		}
		got, err = s.see(ctx, tx, true, req, sqlstore.Micros(req.TTL))
		if err != nil || got.State != 0 {
			return got, err
		}
	}
	return once.Acquired{}, fmt.Errorf("%w: %w", core.ErrTxAborted, sqlstore.ErrVanished)
}

// insert writes a new key. It leaves the State zero if the key exists.
func (s *Store) insert(ctx context.Context, q sqlkit.Querier, text string, req once.Request,
	times ...any,
) (once.Acquired, error) {
	args := append([]any{req.Key.Scope, req.Key.Tenant, req.Key.ID, fingerprintArg(req.Fingerprint), req.Owner},
		times...)
	n, err := q.Exec(ctx, text, args...)
	if err != nil {
		return once.Acquired{}, err
	}
	inserted, err := s.db.Inserted(n)
	if err != nil || !inserted {
		return once.Acquired{}, err
	}
	return once.Acquired{State: once.Fresh, Fence: 1, Attempt: 1}, nil
}

// row has the columns that decide about a key.
type row struct {
	status      int
	owner       string
	fence       int64
	attempts    int
	fingerprint []byte
	leaseLeft   int64 // microseconds
	expiresLeft int64
	createdLeft int64
	result      once.Result
}

// look decides without a lock. It leaves the State zero if the key may be taken or does not exist.
func (s *Store) look(ctx context.Context, q sqlkit.Querier, req once.Request) (once.Acquired, error) {
	r, found, err := s.read(ctx, q, s.sql.look, req.Key)
	if err != nil || !found {
		return once.Acquired{}, err
	}
	got, _, err := r.decide(req, false)
	if r.mayTake(got) {
		return once.Acquired{}, err
	}
	return got, err
}

// see locks the row of a key, decides, and takes the key if possible. It leaves the State zero if
// there is no row.
func (s *Store) see(ctx context.Context, q sqlkit.Querier, inTx bool, req once.Request,
	times ...any,
) (once.Acquired, error) {
	r, found, err := s.read(ctx, q, s.sql.see, req.Key)
	if err != nil || !found {
		return once.Acquired{}, err
	}
	got, fp, err := r.decide(req, inTx)
	if err != nil || !r.mayTake(got) {
		return got, err
	}
	take, args := s.sql.takeTx, []any{fingerprintArg(fp), req.Owner, got.Attempt, got.Attempt}
	if !inTx {
		var meta any
		if got.TakenOver {
			meta = metaTakenOver
		}
		take, args = s.sql.take, append(args, meta)
	}
	n, err := q.Exec(ctx, take, append(append(args, times...), keyArgs(req.Key)...)...)
	if err == nil && n != 1 {
		err = fmt.Errorf("%w: the row of the key was not there any more", core.ErrTxAborted)
	}
	return got, err
}

func (s *Store) read(ctx context.Context, q sqlkit.Querier, text string, key once.Key) (r row, found bool, err error) {
	found, err = sqlkit.FirstRow(ctx, q, text, []any{key.Scope, key.Tenant, key.ID}, &r.status, &r.owner, &r.fence,
		&r.attempts, &r.fingerprint,
		&r.leaseLeft, &r.expiresLeft, &r.createdLeft, &r.result.Data, &r.result.ContentType, &r.result.Meta)
	return r, found, err
}

// decide returns the answer to a request. If the key may be taken, it also returns the fingerprint
// to write. inTx is the transaction form.
func (r *row) decide(req once.Request, inTx bool) (once.Acquired, once.Fingerprint, error) {
	var stored once.Fingerprint
	switch len(r.fingerprint) {
	case 0:
	case len(stored):
		stored = once.Fingerprint(r.fingerprint)
	default:
		return once.Acquired{}, stored, fmt.Errorf("fingerprint of %s has %d bytes", req.Key, len(r.fingerprint))
	}
	left := time.Duration(r.leaseLeft) * time.Microsecond
	// A lease that ends much later than any valid lease was written by a clock that jumped. A
	// little later is valid: this statement uses the time of its begin, and the lease may have been
	// extended while the statement waited for the row.
	held := r.status == statusHeld && left > 0 && left <= 2*once.MaxLease
	fresh := once.Acquired{State: once.Fresh, Fence: r.fence + 1, Attempt: r.attempts + 1}
	switch {
	case r.expiresLeft <= 0 && !held:
		fresh.Attempt = 1
		return fresh, req.Fingerprint, nil
	case r.status == statusFree:
		fresh.Age = r.age(fresh.Attempt)
		return fresh, req.Fingerprint, nil
	case !stored.Matches(req.Fingerprint):
		return once.Acquired{State: once.Mismatch}, stored, nil
	case r.status == statusDone:
		return once.Acquired{State: once.Done, Result: r.result}, stored, nil
	case held && !inTx && r.owner == req.Owner: // the first answer was lost
		return once.Acquired{
			State: once.Fresh, Fence: r.fence, Attempt: r.attempts, Age: r.age(r.attempts),
			TakenOver: r.result.Meta == metaTakenOver,
		}, stored, nil
	case held:
		return once.Acquired{State: once.InProgress, RetryAfter: left}, stored, nil
	case req.RefuseStale:
		return once.Acquired{State: once.Abandoned}, stored, nil
	}
	fresh.TakenOver, fresh.Age = true, r.age(fresh.Attempt)
	if !req.Fingerprint.IsZero() {
		stored = req.Fingerprint
	}
	return fresh, stored, nil
}

// mayTake reports whether the caller is to take the key, and has not taken it yet.
func (r *row) mayTake(got once.Acquired) bool { return got.State == once.Fresh && got.Fence != r.fence }

// age returns the time since the first of the attempts began.
func (r *row) age(attempt int) time.Duration {
	if attempt <= 1 {
		return 0
	}
	return time.Duration(max(-r.createdLeft, 0)) * time.Microsecond
}

func fingerprintArg(f once.Fingerprint) any {
	if f.IsZero() {
		return nil
	}
	return f[:]
}
