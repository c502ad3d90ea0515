package sqloutbox

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// CollectKeys implements core.Repository. It checks that a key is empty in a statement that begins
// after the locks were granted: the snapshot of an earlier statement may be older than an event
// that was inserted in the meantime.
func (r *Repository) CollectKeys(ctx context.Context, idle time.Duration, after core.KeyID,
	limit int,
) (deleted int, next core.KeyID, err error) {
	if limit <= 0 {
		return 0, core.KeyID{}, nil
	}
	err = r.inTx(ctx, "collect keys", func(q sqlkit.Querier) error {
		deleted, next = 0, core.KeyID{}
		locked, last, seen, err := r.database.lockIdleKeys(ctx, q, idle, after, limit)
		if err != nil {
			return err
		}
		if seen == limit {
			next = last
		}
		if len(locked) == 0 {
			return nil
		}
		deleted, err = r.database.deleteEmptyKeys(ctx, q, locked)
		return err
	})
	return deleted, next, err
}

// ResetKeys implements core.Repository.
func (r *Repository) ResetKeys(ctx context.Context) (changed int, err error) {
	err = r.single(ctx, "reset keys", func(q sqlkit.Querier) error {
		n, err := r.database.resetKeys(ctx, q)
		changed = int(n)
		return err
	})
	return changed, err
}

// ResetKeysBy implements core.KeyResetter.
func (r *Repository) ResetKeysBy(ctx context.Context, actor, reason string) (changed int, err error) {
	req := core.AdminRequest{Actor: actor, Reason: reason}
	if err := checkAdmin(req); err != nil {
		return 0, err
	}
	err = r.inTx(ctx, "reset keys", func(q sqlkit.Querier) error {
		n, err := r.database.resetKeys(ctx, q)
		if err != nil {
			return err
		}
		changed = int(n)
		return r.database.auditWhole(ctx, q, core.AuditResetKeys, "", req)
	})
	if err != nil {
		return 0, err
	}
	return changed, nil
}
