package sqlonce

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// maxBacklogChannels is how many channels Backlog looks at, each with a statement of its own.
const maxBacklogChannels = 1000

// Overdue implements once.EffectStore, in one statement that reads the index of what is due.
func (c *Commands) Overdue(ctx context.Context, channel string, grace time.Duration,
	limit int,
) (list []once.EffectRecord, err error) {
	if grace < 0 {
		return nil, fmt.Errorf("%w: grace %s is negative", once.ErrInvalidRequest, grace)
	}
	if limit <= 0 {
		return nil, nil
	}
	args := []any{channel, micros(grace), micros(grace), micros(2 * once.MaxLease), int64(min(limit, 1000))}
	err = c.s.single(ctx, "overdue commands", func(q sqlkit.Querier) error {
		list = nil
		return sqlkit.EachRow(ctx, q, c.sql["overdue"], args, func(rows core.Rows) error {
			var r commandRecord
			err := r.scan(rows)
			list = append(list, r.EffectRecord)
			return err
		})
	})
	return list, err
}

// Backlog implements once.EffectStore. It costs two short statements for each channel that has open
// effects, and one for the parked ones.
func (c *Commands) Backlog(ctx context.Context, limit int) ([]once.EffectBacklog, error) {
	const what = "backlog of commands"
	if limit <= 0 {
		return nil, fmt.Errorf("%w: limit %d is less than 1", once.ErrInvalidRequest, limit)
	}
	var list []once.EffectBacklog
	for channel := ""; len(list) < maxBacklogChannels; {
		b := once.EffectBacklog{Limit: int64(limit)}
		var found bool
		err := c.s.single(ctx, what, func(q sqlkit.Querier) (err error) {
			if found, err = sqlkit.FirstRow(ctx, q, c.sql["channel"], []any{channel}, &b.Channel); err != nil ||
				!found {
				return err
			}
			var left int64
			_, err = sqlkit.FirstRow(ctx, q, c.sql["pending"], []any{b.Channel, int64(limit)}, &b.Pending, &left)
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
		if b.Pending > 0 { // else the last one has ended meanwhile
			list = append(list, b)
		}
	}
	parked := map[string]int64{}
	err := c.s.single(ctx, what, func(q sqlkit.Querier) error {
		clear(parked)
		return sqlkit.EachRow(ctx, q, c.sql["parked"], []any{int64(limit)}, func(rows core.Rows) error {
			var channel string
			var n int64
			err := rows.Scan(&channel, &n)
			parked[channel] = n
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Parked = parked[list[i].Channel]
		delete(parked, list[i].Channel)
	}
	for channel, n := range parked {
		list = append(list, once.EffectBacklog{Channel: channel, Parked: n, Limit: int64(limit)})
	}
	slices.SortFunc(list, func(a, b once.EffectBacklog) int { return cmp.Compare(a.Channel, b.Channel) })
	return list, nil
}
