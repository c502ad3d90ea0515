package sqlonce

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Extend implements once.Store.
func (s *Store) Extend(ctx context.Context, c once.Claim, lease time.Duration) error {
	if err := once.CheckLease(lease); err != nil {
		return err
	}
	return s.single(ctx, "extend", func(q querier) error {
		n, err := q.Exec(ctx, s.sql["extend"], claimArgs(c, micros(lease), micros(lease))...)
		if err == nil && n == 0 {
			err = once.ErrLeaseLost
		}
		return err
	})
}

// Complete implements once.Store.
func (s *Store) Complete(ctx context.Context, c once.Claim, res once.Result, ttl time.Duration) error {
	if err := once.CheckTTL(ttl); err != nil {
		return err
	}
	return s.change(ctx, "complete", statusDone, c, append(resultArgs(res), micros(ttl))...)
}

// Release implements once.Store.
func (s *Store) Release(ctx context.Context, c once.Claim) error {
	return s.change(ctx, "release", statusFree, c)
}

// change runs the statement of that name, which moves a claim to a status, and says why when it changes nothing.
func (s *Store) change(ctx context.Context, name string, to int, c once.Claim, args ...any) error {
	return s.single(ctx, name, func(q querier) error {
		n, err := q.Exec(ctx, s.sql[name], claimArgs(c, args...)...)
		if err != nil || n > 0 {
			return err
		}
		var status int
		var owner string
		var fence int64
		found, err := queryRow(ctx, q, s.sql["who"], []any{c.Key.Scope, c.Key.Tenant, c.Key.ID}, &status, &owner, &fence)
		switch ours := owner == c.Owner && fence == c.Fence; {
		case err != nil:
			return err
		case found && ours && status == to: // the answer of the first time was lost
			return nil
		case found && status == statusDone:
			return once.ErrAlreadyDone
		}
		return once.ErrLeaseLost
	})
}

// CompleteTx implements once.TxStore.
func (s *Store) CompleteTx(ctx context.Context, tx core.Tx, c once.Claim, res once.Result) error {
	return s.changeTx(ctx, tx, "complete", "complete_tx", c, resultArgs(res)...)
}

// ReleaseTx implements once.TxStore.
func (s *Store) ReleaseTx(ctx context.Context, tx core.Tx, c once.Claim) error {
	return s.changeTx(ctx, tx, "release", "release_tx", c)
}

func (s *Store) changeTx(ctx context.Context, tx core.Tx, what, name string, c once.Claim, args ...any) error {
	what += " in transaction"
	if err := s.join(tx); err != nil {
		return wrap(what, err)
	}
	n, err := tx.Exec(ctx, s.sql[name], claimArgs(c, args...)...)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: the transaction holds no such key; was a savepoint rolled back?", once.ErrLeaseLost)
	}
	return wrap(what, txError(err))
}

// claimArgs returns args followed by those of claimIs.
func claimArgs(c once.Claim, args ...any) []any {
	return append(args, c.Key.Scope, c.Key.Tenant, c.Key.ID, c.Owner, c.Fence)
}

func resultArgs(r once.Result) []any {
	var data any
	if len(r.Data) > 0 {
		data = r.Data
	}
	return []any{data, orNil(r.ContentType), orNil(r.Meta)}
}
