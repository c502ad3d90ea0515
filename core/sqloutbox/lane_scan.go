package sqloutbox

import (
	"bytes"
	"context"
	"encoding/hex"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// smallPage is a page so short that reading it costs about as much as the query itself.
const smallPage = 128

// laneScan visits lanes in ascending order. It reads pages of the index. If a page ends inside a
// lane, the next page begins behind that lane, so followers are not read one by one. All rows of a
// lane come from one page, that is from one view of the lane.
type laneScan struct {
	tables *rowwise
	filter filter
	most   int // lanes to visit
	bound  core.KeyID
	// depth is how many rows of a lane are wanted at most, its head included. 0 and 1: its head.
	depth int
	// enough ends the scan when it has found so many rows, counting at most short of each lane. 0:
	// never.
	enough, short int

	heads  []candidate
	behind map[core.KeyID][]candidate // the rows behind the head, in their order
	next   core.KeyID                 // where to go on; zero at the end

	visited int // lanes
	found   int // rows
}

func (s *laneScan) run(ctx context.Context, q sqlkit.Querier) error {
	only, except := prefixes(s.filter.only), prefixes(s.filter.except)
	if !s.start(only) {
		return nil
	}
	s.behind = map[core.KeyID][]candidate{}
	limit := max(s.depth, min(2*smallPage, s.most+1))
	for {
		p, err := s.page(ctx, q, limit, only, except)
		if err != nil {
			return err
		}
		s.bound = p.last
		switch cut := p.read == limit && !p.full && p.last == p.lane && s.rowsOf(p.lane) < s.depth; {
		case p.last == lastLane:
			return nil
		case cut && p.lanes > 1 && !s.hasEnough():
			s.dropLast() // it comes again, as the first of the next page
			s.bound = p.before
		case p.full || p.read == limit && s.full():
			s.next = p.last
			return nil
		case p.read < limit:
			return nil
		}
		if p.lanes <= 2 { // many followers: read fewer of them
			limit = max(s.depth, smallPage)
		} else {
			limit = max(s.depth, min(2*limit, chunkRows))
		}
	}
}

// full reports whether the scan has what it wants.
func (s *laneScan) full() bool { return s.visited >= s.most || s.hasEnough() }

func (s *laneScan) hasEnough() bool { return s.enough > 0 && s.found >= s.enough }

// rowsOf is the number of rows of a visited lane.
func (s *laneScan) rowsOf(lane core.KeyID) int { return 1 + len(s.behind[lane]) }

// dropLast forgets the lane that was visited last.
func (s *laneScan) dropLast() {
	lane := s.heads[len(s.heads)-1].lane
	s.visited--
	s.found -= min(s.rowsOf(lane), max(1, s.short))
	s.heads = s.heads[:len(s.heads)-1]
	delete(s.behind, lane)
}

// lanePage is what one page had.
type lanePage struct {
	read         int        // rows
	lanes        int        // that were visited
	lane, before core.KeyID // the last lane of which rows were taken, and the position before it
	last         core.KeyID // the last position: a lane, or an unwanted part of the lanes
	full         bool       // the scan has enough, and there are more lanes
}

// page reads one page.
func (s *laneScan) page(ctx context.Context, q sqlkit.Querier, limit int, only, except []string,
) (p lanePage, err error) {
	p.last = s.bound
	err = sqlkit.EachRow(ctx, q, s.tables.sql.lanePage, []any{s.bound[:], limit}, func(res core.Rows) error {
		var c candidate
		if err := res.Scan((*outboxsql.ID)(&c.lane), &c.keySeq, (*outboxsql.ID)(&c.id)); err != nil {
			return err
		}
		p.read++
		l := c.lane
		switch {
		case p.full || l != p.lane && bytes.Compare(l[:], p.last[:]) <= 0: // not wanted, or jumped over
		case l == p.lane:
			if n := s.rowsOf(l); n < s.depth {
				s.behind[l] = append(s.behind[l], c)
				if n < s.short {
					s.found++
				}
			}
		case s.full():
			p.full = true
		default:
			s.visited++
			p.lanes++
			before := p.last
			p.last = l
			if jump, end := jumpOver(l, only, except); end || jump != l {
				p.last = jump
				return nil
			}
			p.lane, p.before = l, before
			s.heads = append(s.heads, c)
			s.found++
		}
		return nil
	})
	return p, err
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
// the end of its prefix or the start of the next wanted one. end is true if there is none.
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
