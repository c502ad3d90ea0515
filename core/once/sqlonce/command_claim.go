package sqlonce

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Claim implements once.EffectStore, in two statements without a transaction: the second tells by
// the owner, whose name is unique, whether the first took the row, also when it was repeated
// because its answer was lost.
func (c *Commands) Claim(ctx context.Context, id, owner string, lease time.Duration) (once.EffectClaimed, error) {
	const what = "claim command"
	if err := once.CheckLease(lease); err != nil {
		return once.EffectClaimed{}, err
	}
	if p := textProblem(owner, once.MaxOwner, true); p != "" {
		return once.EffectClaimed{}, fmt.Errorf("%w: owner %s", once.ErrInvalidRequest, p)
	}
	err := c.s.single(ctx, what, func(q sqlkit.Querier) error {
		_, err := q.Exec(ctx, c.sql["claim"], owner, micros(lease), id, micros(2*once.MaxLease))
		return err
	})
	if err != nil {
		return once.EffectClaimed{}, err
	}
	r, err := c.get(ctx, what, "get", id)
	if err != nil {
		return once.EffectClaimed{}, err
	}
	got := once.EffectClaimed{EffectRecord: r.EffectRecord}
	if r.Status == once.EffectProcessing {
		if r.owner == owner {
			got.Fresh, got.Fence = true, r.fence
		} else {
			got.RetryAfter = max(r.left, 0)
		}
	}
	return got, nil
}

// Extend implements once.EffectStore.
func (c *Commands) Extend(ctx context.Context, claim once.EffectClaim, lease time.Duration) error {
	if err := once.CheckLease(lease); err != nil {
		return err
	}
	return c.s.single(ctx, "extend command", func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, c.sql["extend"], micros(lease), claim.ID, claim.Owner, claim.Fence)
		if err == nil && n == 0 {
			err = once.ErrLeaseLost
		}
		return err
	})
}

// Complete implements once.EffectStore. At most 1024 bytes of externalRef are kept.
func (c *Commands) Complete(ctx context.Context, claim once.EffectClaim, externalRef string) error {
	return c.end(ctx, "complete", claim, once.EffectCompleted, column(externalRef, 1024))
}

// Fail implements once.EffectStore. At most 64 bytes of the code and 2 KiB of the text are kept.
func (c *Commands) Fail(ctx context.Context, claim once.EffectClaim, f once.EffectFailure) error {
	to, attempts := once.EffectFailed, 1
	if f.Park {
		to = once.EffectParked
	}
	if f.Free {
		attempts = 0
	}
	return c.end(ctx, "fail", claim, to, int(to), attempts, column(f.Code, 64), column(f.Text, 2048))
}

// end runs the statement of that name, which ends a claim, and says why when it changes nothing.
func (c *Commands) end(ctx context.Context, name string, claim once.EffectClaim, to once.EffectStatus,
	args ...any,
) error {
	return c.s.single(ctx, name+" command", func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, c.sql[name], append(args, claim.ID, claim.Owner, claim.Fence)...)
		if err != nil || n > 0 {
			return err
		}
		var status once.EffectStatus
		var owner string
		var fence int64
		found, err := sqlkit.FirstRow(ctx, q, c.sql["who"], []any{claim.ID}, &status, &owner, &fence)
		switch {
		case err != nil:
			return err
		case found && status == to && owner == claim.Owner && fence == claim.Fence:
			// the answer of the first time was lost
			return nil
		case found && status == once.EffectCompleted:
			return once.ErrAlreadyDone
		}
		return once.ErrLeaseLost
	})
}
