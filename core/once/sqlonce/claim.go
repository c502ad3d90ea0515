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

// Extend implements once.Store.
func (s *Store) Extend(ctx context.Context, c once.Claim, lease time.Duration) error {
	if err := once.CheckLease(lease); err != nil {
		return err
	}
	return s.db.Single(ctx, "extend", func(q sqlkit.Querier) error {
		for range sqlstore.Vanished {
			n, err := q.Exec(ctx, s.sql.extend, claimArgs(c, sqlstore.Micros(lease), sqlstore.Micros(lease))...)
			if err != nil || n > 0 {
				return err
			}
			if _, _, _, found, err := s.who(ctx, q, c.Key); err != nil {
				return err
			} else if found {
				return once.ErrLeaseLost
			}
			n, err = q.Exec(ctx, s.sql.hold, append(keyArgs(c.Key), c.Owner, c.Fence, sqlstore.Micros(lease),
				sqlstore.Micros(lease+once.ForgottenTTL))...)
			if err != nil || n == 1 {
				return err
			}
		}
		return sqlstore.ErrVanished
	})
}

// Complete implements once.Store.
func (s *Store) Complete(ctx context.Context, c once.Claim, res once.Result, ttl time.Duration) error {
	if err := once.CheckTTL(ttl); err != nil {
		return err
	}
	args := append(resultArgs(res), sqlstore.Micros(ttl))
	return s.db.Single(ctx, "complete", func(q sqlkit.Querier) error {
		for range sqlstore.Vanished {
			found, err := s.change(ctx, q, s.sql.complete, statusDone, c, args...)
			if err != nil || found {
				return err
			}
			// No other holder took the key, so the work of this one counts.
			n, err := q.Exec(ctx, s.sql.done, append(append(keyArgs(c.Key), c.Owner, c.Fence), args...)...)
			if err != nil || n == 1 {
				return err
			}
		}
		return sqlstore.ErrVanished
	})
}

// Release implements once.Store.
func (s *Store) Release(ctx context.Context, c once.Claim, attempts int) error {
	return s.db.Single(ctx, "release", func(q sqlkit.Querier) error {
		found, err := s.change(ctx, q, s.sql.release, statusFree, c, attempts)
		if err == nil && !found {
			err = once.ErrLeaseLost
		}
		return err
	})
}

// change runs a statement that moves a claim to a status. If the statement changes nothing, change
// returns the reason. found is false if the key does not exist.
func (s *Store) change(ctx context.Context, q sqlkit.Querier, text string, to int, c once.Claim,
	args ...any,
) (found bool, err error) {
	n, err := q.Exec(ctx, text, claimArgs(c, args...)...)
	if err != nil || n > 0 {
		return true, err
	}
	status, owner, fence, found, err := s.who(ctx, q, c.Key)
	switch ours := owner == c.Owner && fence == c.Fence; {
	case err != nil || !found:
		return found, err
	case ours && status == to: // the answer of the first call was lost
		return true, nil
	case status == statusDone:
		return true, once.ErrAlreadyDone
	}
	return true, once.ErrLeaseLost
}

// who reads which claim of a key is the latest.
func (s *Store) who(ctx context.Context, q sqlkit.Querier,
	key once.Key,
) (status int, owner string, fence int64, found bool, err error) {
	found, err = sqlkit.FirstRow(ctx, q, s.sql.who, keyArgs(key), &status, &owner, &fence)
	return status, owner, fence, found, err
}

func keyArgs(k once.Key) []any { return []any{k.Scope, k.Tenant, k.ID} }

// CompleteTx implements once.TxStore.
func (s *Store) CompleteTx(ctx context.Context, tx core.Tx, c once.Claim, res once.Result) error {
	return s.changeTx(ctx, tx, "complete", s.sql.completeTx, c, resultArgs(res)...)
}

// ReleaseTx implements once.TxStore.
func (s *Store) ReleaseTx(ctx context.Context, tx core.Tx, c once.Claim) error {
	return s.changeTx(ctx, tx, "release", s.sql.releaseTx, c)
}

func (s *Store) changeTx(ctx context.Context, tx core.Tx, what, text string, c once.Claim, args ...any) error {
	what += " in transaction"
	if err := s.db.Join(tx); err != nil {
		return s.db.Wrap(what, err)
	}
	n, err := tx.Exec(ctx, text, claimArgs(c, args...)...)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: the transaction holds no such key; was a savepoint rolled back?", once.ErrLeaseLost)
	}
	return s.db.Wrap(what, sqlstore.TxError(err))
}

// claimArgs returns args and then the arguments of claimIs.
func claimArgs(c once.Claim, args ...any) []any {
	return append(args, c.Key.Scope, c.Key.Tenant, c.Key.ID, c.Owner, c.Fence)
}

func resultArgs(r once.Result) []any {
	var data any
	if len(r.Data) > 0 {
		data = r.Data
	}
	return []any{data, sqlstore.OrNil(r.ContentType), sqlstore.OrNil(r.Meta)}
}
