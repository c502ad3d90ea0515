package outboxtest

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
)

// table holds the committed rows with the indexes that a database would have. Rows are visited in
// sorted order, so that the same calls give the same answers.
type table struct {
	rows      map[core.RowID]*Row
	lanes     map[core.KeyID][]*Row // open and dead rows in ascending KeySeq
	laneOrder []core.KeyID          // ids of the keys, ascending
	unordered []*Row                // open and dead rows without a key, or that left it, by AvailableAt and id
	ended     []*Row                // done and discarded rows, by DoneAt and id
}

func newTable() table {
	return table{rows: map[core.RowID]*Row{}, lanes: map[core.KeyID][]*Row{}}
}

// change removes row from the indexes, runs fn on it and inserts it at its new position.
func (t *table) change(row *Row, fn func()) {
	t.unindex(row)
	fn()
	t.index(row)
}

func (t *table) insert(row *Row) {
	t.rows[row.ID] = row
	t.index(row)
}

func (t *table) delete(row *Row) {
	t.unindex(row)
	delete(t.rows, row.ID)
}

func (t *table) index(row *Row) {
	switch {
	case row.Status == StatusDone || row.Status == StatusDiscarded:
		t.ended = insertSorted(t.ended, row, byDone)
	case row.KeyID.IsZero() || row.leftKey:
		t.unordered = insertSorted(t.unordered, row, byDue)
	default:
		if len(t.lanes[row.KeyID]) == 0 {
			t.laneOrder = insertSorted(t.laneOrder, row.KeyID, compareLanes)
		}
		t.lanes[row.KeyID] = insertSorted(t.lanes[row.KeyID], row, bySeq)
	}
}

func (t *table) unindex(row *Row) {
	switch {
	case row.Status == StatusDone || row.Status == StatusDiscarded:
		t.ended = removeSorted(t.ended, row, byDone)
	case row.KeyID.IsZero() || row.leftKey:
		t.unordered = removeSorted(t.unordered, row, byDue)
	default:
		t.lanes[row.KeyID] = removeSorted(t.lanes[row.KeyID], row, bySeq)
		if len(t.lanes[row.KeyID]) == 0 {
			delete(t.lanes, row.KeyID)
			t.laneOrder = removeSorted(t.laneOrder, row.KeyID, compareLanes)
		}
	}
}

// lanesAfter returns the keys with open or dead rows that sort after l.
func (t *table) lanesAfter(l core.KeyID) []core.KeyID {
	i, found := slices.BinarySearchFunc(t.laneOrder, l, compareLanes)
	if found {
		i++
	}
	return t.laneOrder[i:]
}

// pending calls fn for every open or dead row: first the unordered ones, then rows with a key, in
// order.
func (t *table) pending(fn func(*Row)) {
	for _, row := range t.unordered {
		fn(row)
	}
	for _, l := range t.laneOrder {
		for _, row := range t.lanes[l] {
			fn(row)
		}
	}
}

func compareLanes(a, b core.KeyID) int { return bytes.Compare(a[:], b[:]) }
func compareIDs(a, b core.RowID) int   { return bytes.Compare(a[:], b[:]) }
func byID(a, b *Row) int               { return compareIDs(a.ID, b.ID) }
func bySeq(a, b *Row) int              { return cmp.Or(cmp.Compare(a.KeySeq, b.KeySeq), byID(a, b)) }

func byDue(a, b *Row) int  { return cmp.Or(a.AvailableAt.Compare(b.AvailableAt), byID(a, b)) }
func byDone(a, b *Row) int { return cmp.Or(a.DoneAt.Compare(b.DoneAt), byID(a, b)) }

func insertSorted[T any](s []T, v T, compare func(a, b T) int) []T {
	i, _ := slices.BinarySearchFunc(s, v, compare)
	return slices.Insert(s, i, v)
}

func removeSorted[T any](s []T, v T, compare func(a, b T) int) []T {
	if i, found := slices.BinarySearchFunc(s, v, compare); found {
		return slices.Delete(s, i, i+1)
	}
	return s
}
