package sqlcommand

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
)

// Claim implements command.Store, in two statements without a transaction. The owner's name is
// unique, so the second statement finds by it whether the first took the row. This also works if
// the first statement was repeated because its answer was lost.
func (s *Store) Claim(ctx context.Context, id, owner string, lease time.Duration) (command.Claimed, error) {
	const what = "claim command"
	if err := once.CheckLease(lease); err != nil {
		return command.Claimed{}, err
	}
	if p := textcheck.Problem(owner, once.MaxOwner, true); p != "" {
		return command.Claimed{}, fmt.Errorf("%w: owner %s", once.ErrInvalidRequest, p)
	}
	err := s.db.Single(ctx, what, func(q sqlkit.Querier) error {
		_, err := q.Exec(ctx, s.sql.claim, owner, sqlstore.Micros(lease), id, sqlstore.Micros(2*once.MaxLease))
		return err
	})
	if err != nil {
		return command.Claimed{}, err
	}
	r, err := s.get(ctx, what, s.sql.get, id)
	if err != nil {
		return command.Claimed{}, err
	}
	got := command.Claimed{Record: r.Record}
	if r.Status == command.StatusProcessing {
		if r.owner == owner {
			got.Fresh, got.Fence = true, r.fence
		} else {
			got.RetryAfter = max(r.left, 0)
		}
	}
	return got, nil
}

// Extend implements command.Store.
func (s *Store) Extend(ctx context.Context, claim command.Claim, lease time.Duration) error {
	if err := once.CheckLease(lease); err != nil {
		return err
	}
	return s.db.Single(ctx, "extend command", func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, s.sql.extend, sqlstore.Micros(lease), claim.ID, claim.Owner, claim.Fence)
		if err == nil && n == 0 {
			err = once.ErrLeaseLost
		}
		return err
	})
}

// Complete implements command.Store. At most 1024 bytes of externalRef are kept.
func (s *Store) Complete(ctx context.Context, claim command.Claim, externalRef string) error {
	return s.end(ctx, "complete command", s.sql.complete, claim, command.StatusCompleted,
		sqlstore.Column(externalRef, 1024))
}

// Fail implements command.Store. At most 64 bytes of the code and 2 KiB of the text are kept.
func (s *Store) Fail(ctx context.Context, claim command.Claim, f command.Failure) error {
	to, attempts := command.StatusFailed, 1
	if f.Dead {
		to = command.StatusDead
	}
	if f.Free {
		attempts = 0
	}
	return s.end(ctx, "fail command", s.sql.fail, claim, to, int(to), attempts, sqlstore.Column(f.Code, 64),
		sqlstore.Column(f.Text, 2048))
}

// end runs a statement that ends a claim. If the statement changes nothing, end returns the reason.
func (s *Store) end(ctx context.Context, what, text string, claim command.Claim, to command.Status,
	args ...any,
) error {
	return s.db.Single(ctx, what, func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, text, append(args, claim.ID, claim.Owner, claim.Fence)...)
		if err != nil || n > 0 {
			return err
		}
		var status command.Status
		var code, owner string
		var fence int64
		found, err := sqlkit.FirstRow(ctx, q, s.sql.who, []any{claim.ID}, &status, &code, &owner, &fence)
		status = statusOf(status, code)
		switch {
		case err != nil:
			return err
		case found && status == to && owner == claim.Owner && fence == claim.Fence:
			// The row has its status already, because the answer of the first call was lost.
			return nil
		case found && status == command.StatusCompleted:
			return once.ErrAlreadyDone
		}
		return once.ErrLeaseLost
	})
}

// maxBacklogChannels is how many channels Backlog looks at, each with a statement of its own.
const maxBacklogChannels = 1000

// Overdue implements command.Store, in one statement that reads the index of the due effects.
func (s *Store) Overdue(ctx context.Context, channel string, grace time.Duration,
	limit int,
) ([]command.Record, error) {
	if grace < 0 {
		return nil, fmt.Errorf("%w: grace %s is negative", once.ErrInvalidRequest, grace)
	}
	if limit <= 0 {
		return nil, nil
	}
	args := []any{
		channel, sqlstore.Micros(grace), sqlstore.Micros(grace), sqlstore.Micros(2 * once.MaxLease),
		int64(min(limit, 1000)),
	}
	return sqlstore.List(ctx, s.db, "overdue commands", s.sql.overdue, args, scanRecord)
}

// Backlog implements command.Store. It runs two short statements for each channel that has open
// effects, and one for the dead effects.
func (s *Store) Backlog(ctx context.Context, limit int) ([]command.Backlog, error) {
	const what = "backlog of commands"
	if limit <= 0 {
		return nil, fmt.Errorf("%w: limit %d is less than 1", once.ErrInvalidRequest, limit)
	}
	var list []command.Backlog
	for channel := ""; len(list) < maxBacklogChannels; {
		b := command.Backlog{Limit: int64(limit)}
		var found bool
		err := s.db.Single(ctx, what, func(q sqlkit.Querier) (err error) {
			if found, err = sqlkit.FirstRow(ctx, q, s.sql.channel, []any{channel}, &b.Channel); err != nil ||
				!found {
				return err
			}
			var left int64
			_, err = sqlkit.FirstRow(ctx, q, s.sql.pending, []any{b.Channel, int64(limit)}, &b.Pending, &left)
			b.OldestAge = max(0, -time.Duration(left)*time.Microsecond)
			return err
		})
		if err != nil {
			return nil, err
		}
		if !found {
			break
		}
		channel = b.Channel
		if b.Pending > 0 { // otherwise the last effect has ended meanwhile
			list = append(list, b)
		}
	}
	dead, err := sqlstore.List(ctx, s.db, what, s.sql.dead, []any{int64(limit)},
		func(rows core.Rows) (command.Backlog, error) {
			b := command.Backlog{Limit: int64(limit)}
			err := rows.Scan(&b.Channel, &b.Dead)
			return b, err
		})
	if err != nil {
		return nil, err
	}
	for _, d := range dead {
		if i := slices.IndexFunc(list, func(b command.Backlog) bool { return b.Channel == d.Channel }); i >= 0 {
			list[i].Dead = d.Dead
		} else {
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b command.Backlog) int { return cmp.Compare(a.Channel, b.Channel) })
	return list, nil
}
