package sqlonce

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// metaErased is the result_meta of a key whose answer was erased. Package httpkey answers a
// repetition of its request as one whose response was not kept.
const metaErased = `{"not_kept":true}`

// EraseResults erases the stored results of the keys with this id, in every scope and of every
// tenant if those are empty. A key that is done stays done, until it expires: its work is not done
// again, and a repeated request gets an empty result. Package httpkey then answers that the
// response was not kept. held counts the keys whose work is going on: erase them when it has ended.
// Results that are erased already are not counted. With dryRun it changes nothing. Without a scope
// it reads the whole table.
func (s *Store) EraseResults(ctx context.Context, scope, tenant, id string, dryRun bool,
) (erased, held int, err error) {
	const what = "erase results"
	keys, err := sqlstore.List(ctx, s.db, what, s.sql.erasable, []any{id, scope, scope, tenant, tenant},
		func(rows core.Rows) (k erasable, err error) {
			var status, content int64
			err = rows.Scan(&k.Scope, &k.Tenant, &k.ID, &status, &content)
			k.held, k.done = status == statusHeld, status == statusDone && content == 1
			return k, err
		})
	if err != nil {
		return 0, 0, err
	}
	for _, k := range keys {
		switch {
		case k.held:
			held++
		case !k.done:
		case dryRun:
			erased++
		default:
			var n int64
			err := s.db.Single(ctx, what, func(q sqlkit.Querier) (err error) {
				n, err = q.Exec(ctx, s.sql.erase, k.Scope, k.Tenant, k.ID)
				return err
			})
			if err != nil {
				return erased, held, err
			}
			erased += int(n)
		}
	}
	return erased, held, nil
}

// erasable is a key with the columns that EraseResults needs.
type erasable struct {
	once.Key
	held, done bool
}
