package sqloutbox

import (
	"bytes"
	"context"
	"encoding/hex"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// smallPage is a page so short that reading it costs about as much as the query itself.
const smallPage = 128

// laneScan visits lanes in ascending order. It reads pages of the index. If a page ends inside a
// lane, the next page begins behind that lane, so followers are not read one by one.
type laneScan struct {
	tables *rowwise
	filter filter
	most   int // lanes to visit
	bound  core.KeyID

	heads []candidate
	next  core.KeyID // where to go on; zero at the end
}

func (s *laneScan) run(ctx context.Context, q sqlkit.Querier) error {
	only, except := prefixes(s.filter.only), prefixes(s.filter.except)
	if !s.start(only) {
		return nil
	}
	page := min(2*smallPage, s.most+1)
	for visited := 0; ; {
		read, lanes, current := 0, 0, s.bound
		full := false
		err := sqlkit.EachRow(ctx, q, s.tables.sql.openPage, []any{s.bound[:], page}, func(res core.Rows) error {
			var lane, id id16
			var seq int64
			var dead bool
			if err := res.Scan(&lane, &seq, &id, &dead); err != nil {
				return err
			}
			read++
			l := core.KeyID(lane)
			if full || bytes.Compare(l[:], current[:]) <= 0 { // a follower, or jumped over
				return nil
			}
			visited++
			lanes++
			current = l
			if jump, end := jumpOver(l, only, except); end || jump != l {
				current = jump
			} else if !dead {
				s.heads = append(s.heads, candidate{id: core.RowID(id), lane: l, keySeq: seq})
			}
			full = visited >= s.most
			return nil
		})
		if err != nil {
			return err
		}
		if full {
			s.next = current
			if current == lastLane {
				s.next = core.KeyID{}
			}
			return nil
		}
		if read < page || current == lastLane {
			return nil
		}
		s.bound = current
		if lanes <= 2 { // many followers: read fewer of them
			page = smallPage
		} else {
			page = min(2*page, chunkRows)
		}
	}
}

var lastLane = core.KeyID(bytes.Repeat([]byte{0xff}, 16))

// start moves the bound to the first wanted prefix and reports whether there is one.
func (s *laneScan) start(only []string) bool {
	if s.filter.only == nil {
		return true
	}
	jump, end := jumpOver(s.bound, only, nil)
	s.bound = jump
	return !end
}

// jumpOver returns the lane behind which to go on after l: l itself if its topic is wanted, else
// the end of its prefix or the start of the next wanted one. end says that there is none.
func jumpOver(l core.KeyID, only, except []string) (jump core.KeyID, end bool) {
	prefix := hex.EncodeToString(l[:4])
	if len(only) > 0 {
		i, found := slices.BinarySearch(only, prefix)
		if found {
			return l, false
		}
		if i == len(only) {
			return lastLane, true
		}
		_, _ = hex.Decode(jump[:4], []byte(only[i]))
		return jump, false
	}
	if _, found := slices.BinarySearch(except, prefix); found {
		jump = lastLane
		copy(jump[:4], l[:4])
		return jump, false
	}
	return l, false
}
