package sqlops

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// part is a part of the table that an index has in order.
type part struct {
	index       index
	first, last core.RowID // of byID; a zero last is no limit
	lane        core.KeyID // of byLane; zero: all
	topic       string     // of byTopic; empty: all
	cause       string     // of byCause
	noLane      bool       // of byDead: only events without a key
	ended       bool       // of byID: only rows that are not in the other parts of a key
	// foreign is a part that is read only if the table has ids that do not begin with their time.
	foreign bool
}

// index is an order in which events are read.
type index uint8

const (
	byID    index = iota // all rows
	byDead               // dead rows by id
	byTopic              // open rows without a key, by topic and due time
	byLane               // open and dead rows of keys, by key and number
	byCause              // rows of one cause, by id; their index has no others
)

// idSlack is how far the time in an id may be from the time at which its row was inserted.
const idSlack = time.Hour

const day = 24 * time.Hour

// partsOf returns the parts that have all events of a scan. Which parts there are depends on the
// scan alone, because a cursor has the number of one.
func partsOf(s ops.Scan) []part {
	ended := s.Has(ops.StatusDone) || s.Has(ops.StatusDiscarded)
	open := s.Has(ops.StatusNew) || s.Has(ops.StatusRetry)
	dead := s.Has(ops.StatusDead)
	switch {
	case !s.ID.IsZero():
		return []part{{index: byID, first: s.ID, last: s.ID}}
	case !s.KeyID.IsZero():
		return []part{{index: byLane, lane: s.KeyID}}
	case s.EventID != "":
		first, last, err := core.RowIDRange(s.EventID)
		if err != nil {
			return nil
		}
		return []part{{index: byID, first: first, last: last}}
	case s.Cause != "":
		return []part{{index: byCause, cause: s.Cause}}
	case dead && !open && !ended && s.Key == "":
		return []part{{index: byDead}}
	case ended && s.Key == "":
		return rangesOf(s)
	}
	var parts []part
	if open {
		parts = append(parts, part{index: byTopic, topic: s.Topic})
	}
	if s.Key == "" {
		parts = append(parts, part{index: byLane})
	} else if open || dead {
		lane := core.NewKeyID(s.TenantID, s.Topic, s.Key)
		parts = append(parts, part{index: byLane, lane: lane}, part{index: byLane, lane: core.ReplayKeyID(lane)})
	}
	if dead {
		parts = append(parts, part{index: byDead, noLane: true})
	}
	if ended {
		for _, p := range rangesOf(s) {
			p.ended = true
			parts = append(parts, p)
		}
	}
	return parts
}

// rangesOf are the parts of all rows. Ids that begin with their time come first if the scan is
// about a time.
func rangesOf(s ops.Scan) []part {
	if s.CreatedFrom.IsZero() && s.CreatedBefore.IsZero() {
		return []part{{index: byID}}
	}
	within := part{index: byID}
	var others []part
	if !s.CreatedFrom.IsZero() {
		within.first = idAt(s.CreatedFrom.Add(-idSlack))
		others = append(others, part{index: byID, last: before(within.first), foreign: true})
	}
	if !s.CreatedBefore.IsZero() {
		within.last = before(idAt(s.CreatedBefore.Add(idSlack)))
		others = append(others, part{index: byID, first: idAt(s.CreatedBefore.Add(idSlack)), foreign: true})
	}
	return append([]part{within}, others...)
}

// idAt is the least id that begins with the time.
func idAt(t time.Time) (id core.RowID) {
	ms := min(max(t.UnixMilli(), 1), 1<<48-1)
	binary.BigEndian.PutUint64(id[:8], uint64(ms)<<16)
	return id
}

// before returns the id before a result of idAt.
func before(id core.RowID) core.RowID {
	binary.BigEndian.PutUint64(id[:8], binary.BigEndian.Uint64(id[:8])-1)
	binary.BigEndian.PutUint64(id[8:], 1<<64-1)
	return id
}

// cursor is the place behind an event in the order of its part.
type cursor struct {
	Scan  uint64     `json:"s"` // a hash of the scan
	Part  int        `json:"p"`
	ID    core.RowID `json:"i"`
	Topic string     `json:"t,omitempty"`
	Due   int64      `json:"d,omitempty"`
	Key   []byte     `json:"k,omitempty"` // its KeyID
	Seq   int64      `json:"q,omitempty"`
}

func cursorAt(part int, e *ops.Event) cursor {
	c := cursor{Part: part, ID: e.ID, Topic: e.Topic, Due: e.AvailableAt.UnixMicro(), Seq: e.KeySeq}
	if !e.KeyID.IsZero() {
		c.Key = e.KeyID[:]
	}
	return c
}

// scanHash is equal for scans whose cursors are interchangeable.
func scanHash(s ops.Scan) uint64 {
	s.After, s.Limit, s.Look = "", 0, 0
	h := fnv.New64a()
	text, _ := json.Marshal(s)
	_, _ = h.Write(text)
	return h.Sum64()
}

// text returns the cursor as ops.Scanned.Next.
func (c cursor) text(s ops.Scan) string {
	c.Scan = scanHash(s)
	return sqlstore.Cursor(c)
}

func badAfter(format string) error {
	return fmt.Errorf("sqlops: %w", &core.FieldError{Err: core.ErrInvalidRequest, Format: format})
}

// readCursor returns the place after which a scan goes on.
func readCursor(s ops.Scan) (c cursor, err error) {
	if s.After == "" {
		return c, nil
	}
	err = sqlstore.ReadCursor(s.After, &c)
	if err != nil || c.Part < 0 || len(c.Key) != 0 && len(c.Key) != len(core.KeyID{}) {
		return c, badAfter("{After} is not what a page returned as Next")
	}
	if c.Scan != scanHash(s) {
		return c, badAfter("{After} is of a page with another filter or direction")
	}
	return c, nil
}
