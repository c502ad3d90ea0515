package sqlcommand

import (
	"context"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

const (
	eraseLook  = 10_000 // effects that one call of EraseEffects looks at
	eraseChunk = 500    // effects that one transaction changes
)

// erasable is an effect with the columns that EraseEffects needs.
type erasable struct {
	id, tenant, eventID, businessKey string
	ended, content                   bool
}

// EraseEffects erases the content of effects that match: the payload is empty, there are no headers
// and no content type, and the text of the last error is "erased". Ids, key, fingerprint and status
// stay. It looks at the 10,000 effects with ids behind after, which is empty for the first ones.
// next is the place where the next call goes on, or empty after the last effect. Effects that are
// not completed, dead or discarded are left alone, and counted in left; effects that are erased
// already are not counted. With dryRun it changes nothing. It changes up to 500 effects in a
// transaction, and can be repeated. A dead effect that is redriven after that is executed without
// its payload.
//
// With it a Store is an ops.EffectEraser.
func (s *Store) EraseEffects(ctx context.Context, after string, dryRun bool,
	match func(tenant, eventID, businessKey string) bool,
) (erased, left int, next string, err error) {
	const what = "erase commands"
	all, err := sqlstore.List(ctx, s.db, what, s.sql.erasable, []any{after, int64(eraseLook)},
		func(rows core.Rows) (e erasable, err error) {
			var ended, content int64
			err = rows.Scan(&e.id, &e.tenant, &e.eventID, &e.businessKey, &ended, &content)
			e.ended, e.content = ended == 1, content == 1
			return e, err
		})
	if err != nil {
		return 0, 0, after, err
	}
	var ids []string
	for _, e := range all {
		switch {
		case !e.content || !match(e.tenant, e.eventID, e.businessKey):
		case e.ended:
			ids = append(ids, e.id)
		default:
			left++
		}
	}
	if len(all) == eraseLook {
		next = all[len(all)-1].id
	}
	if dryRun {
		return len(ids), left, next, nil
	}
	for chunk := range slices.Chunk(ids, eraseChunk) {
		n := 0
		err := s.db.InTx(ctx, what, func(q sqlkit.Querier) error {
			n = 0
			for _, id := range chunk {
				changed, err := q.Exec(ctx, s.sql.erase, []byte{}, id)
				if err != nil {
					return err
				}
				n += int(changed)
			}
			return nil
		})
		if err != nil {
			return erased, left, after, err
		}
		erased += n
	}
	return erased, left, next, nil
}
