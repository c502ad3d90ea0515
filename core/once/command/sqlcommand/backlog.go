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
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
)

// maxBacklogChannels is how many channels Backlog looks at, each with a statement of its own.
const maxBacklogChannels = 1000

// Overdue implements command.Store, in one statement that reads the index of the due effects.
func (s *Store) Overdue(ctx context.Context, channel string, grace time.Duration,
	limit int,
) (list []command.Record, err error) {
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
	err = s.db.Single(ctx, "overdue commands", func(q sqlkit.Querier) error {
		list = nil
		return sqlkit.EachRow(ctx, q, s.sql.overdue, args, func(rows core.Rows) error {
			var r commandRecord
			err := r.scan(rows)
			list = append(list, r.Record)
			return err
		})
	})
	return list, err
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
	dead := map[string]int64{}
	err := s.db.Single(ctx, what, func(q sqlkit.Querier) error {
		clear(dead)
		return sqlkit.EachRow(ctx, q, s.sql.dead, []any{int64(limit)}, func(rows core.Rows) error {
			var channel string
			var n int64
			err := rows.Scan(&channel, &n)
			dead[channel] = n
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Dead = dead[list[i].Channel]
		delete(dead, list[i].Channel)
	}
	for channel, n := range dead {
		list = append(list, command.Backlog{Channel: channel, Dead: n, Limit: int64(limit)})
	}
	slices.SortFunc(list, func(a, b command.Backlog) int { return cmp.Compare(a.Channel, b.Channel) })
	return list, nil
}
