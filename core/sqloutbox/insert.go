package sqloutbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// Insert implements core.Repository. Statements run in tx once and are never repeated: after a
// deadlock MariaDB has rolled back the whole transaction, and a repeated INSERT would commit on its
// own.
//
// The limits of the database apply: MySQL and MariaDB refuse a payload larger than
// max_allowed_packet.
func (r *Repository) Insert(ctx context.Context, tx core.Tx, req core.InsertRequest) ([]core.Inserted, error) {
	b, err := r.prepare(tx, req)
	if b == nil || err != nil {
		return nil, err
	}
	if err := r.database.insert(ctx, tx, b); err != nil {
		return nil, insertError(err)
	}
	return b.places, nil
}

// prepare returns the batch of an insert, nil if it has no rows.
func (r *Repository) prepare(tx core.Tx, req core.InsertRequest) (*batch, error) {
	if len(req.Rows) == 0 {
		return nil, nil
	}
	switch {
	case tx == nil:
		return nil, core.ErrNoTransaction
	case tx.Dialect() != r.dialect:
		return nil, fmt.Errorf("sqloutbox: insert: the transaction speaks %q and the repository %q", tx.Dialect(),
			r.dialect)
	}
	if slices.ContainsFunc(req.Rows, func(r core.NewRow) bool { return r.Hot }) &&
		(req.Node == "" || req.ClaimNo <= 0) {
		return nil, fmt.Errorf("sqloutbox: insert: hot rows need a Node and a ClaimNo greater than 0, not %q and %d",
			req.Node, req.ClaimNo)
	}
	if err := tx.Err(); err != nil {
		return nil, err
	}
	return newBatch(req)
}

func insertError(err error) error {
	switch {
	case errors.Is(err, core.ErrTxAborted) || errors.Is(err, core.ErrDuplicateEvent):
	case sqlerr.UniqueViolation(err):
		err = errtext.Errorf("%w: %w", core.ErrDuplicateEvent, err)
	case sqlerr.Retryable(err) || sqlerr.State(err) == "25P02":
		err = errtext.Errorf("%w: %w", core.ErrTxAborted, err)
	case sqlerr.MissingTable(err):
		err = errtext.Errorf("%w: %w (%s)", core.ErrNoTables, err, howToCreate)
	}
	return errtext.Errorf("sqloutbox: insert: %w", err)
}

// occurredText writes a time that every database reads the same in any time zone of the session.
func occurredText(t time.Time, layout string) string { return t.UTC().Format(layout) }

// bytesOf returns the bytes of an id. It is nil for the zero id, which is stored as NULL.
func bytesOf[T core.RowID | core.KeyID | outboxsql.ID](v T) any {
	a := [16]byte(v)
	if a == [16]byte{} {
		return nil
	}
	return a[:]
}

// shape is the set of a row's parts.
type shape int

const (
	shapeHot shape = 1 << iota
	shapeDelayed
	shapeOrdered
	shapeByLog
	shapeOptional // of the first of optionalColumns; the others' bits follow
)

func (s shape) has(part shape) bool { return s&part != 0 }

// byLog is core.LogReader as a constant of SQL.
const byLog = "'" + core.LogReader + "'"

// optionalColumns are the columns that an event may lack.
var optionalColumns = [...]string{
	"schema_version", "aggregate_type", "aggregate_id", "aggregate_version", "tenant_id", "partition_key",
	"content_type", "headers",
}

// shapeOf returns the shape of a row, and its arguments. id and occurred are as the database wants
// them, and place is the place of a row that has a key.
func shapeOf(row *core.NewRow, req *core.InsertRequest, headers, id, occurred any, place ...any) (s shape, args []any) {
	e := &row.Event
	args = make([]any, 0, 12+len(optionalColumns))
	args = append(args, id, e.ID, e.Type, e.Topic, notNil(e.Payload), occurred)
	if row.Hot {
		s |= shapeHot
		args = append(args, req.ClaimNo, req.Node, micros(req.Lease))
	}
	if row.ByLog {
		s |= shapeByLog
	}
	if e.Delay > 0 {
		s |= shapeDelayed
		args = append(args, micros(e.Delay))
	}
	if !row.KeyID.IsZero() {
		s |= shapeOrdered
		args = append(args, place...)
	}
	for i, v := range [...]any{
		orNil(e.SchemaVersion), orNil(e.AggregateType), orNil(e.AggregateID), orNil(e.AggregateVersion),
		orNil(e.TenantID), orNil(e.Key), orNil(e.ContentType), headers,
	} {
		if v != nil {
			s |= shapeOptional << i
			args = append(args, v)
		}
	}
	return s, args
}

// shaped is a statement whose text depends on the shape of its row.
type shaped struct {
	build func(s shape) string
	kept  sync.Map // by shape
}

// newShaped makes a shaped of a function that builds its text, and expands its words.
func newShaped(n names, build func(s shape) string) *shaped {
	return &shaped{build: func(s shape) string { return n.expand(build(s)) }}
}

func (t *shaped) text(s shape) string {
	if text, ok := t.kept.Load(s); ok {
		return text.(string)
	}
	text := t.build(s)
	t.kept.Store(s, text)
	return text
}

const (
	// Rows of one INSERT: 18 parameters for each stay below every database's limit.
	chunkRows  = 1000
	chunkLanes = 1000    // lanes of one upsert
	chunkBytes = 4 << 20 // payload of one INSERT, below the smallest default of max_allowed_packet
)

// batch is one call of Insert.
type batch struct {
	req    core.InsertRequest
	places []core.Inserted
	lanes  []laneUse // ascending, so that two calls never wait for each other in a circle
	// rows in the order of writing: by lane, and within a lane in the order of the call
	order  []int
	header []any // encoded headers
	byLog  bool  // a reader of the log publishes some of the rows
}

// laneUse is the request of a call for one key row, and its result.
type laneUse struct {
	lane   core.KeyID
	rows   []int // in the order of the call
	last   core.RowID
	opened bool
	// The row before the first one, and the number of the last one.
	prev    core.RowID
	lastSeq int64
}

func newBatch(req core.InsertRequest) (*batch, error) {
	b := &batch{
		req: req, places: make([]core.Inserted, len(req.Rows)), header: make([]any, len(req.Rows)),
		order: make([]int, len(req.Rows)),
	}
	ordered := 0
	for i := range req.Rows {
		h, err := headerJSON(req.Rows[i].Event.Headers)
		if err != nil {
			return nil, fmt.Errorf("%w: headers: %w", core.ErrInvalidEvent, err)
		}
		b.header[i], b.order[i] = h, i
		b.byLog = b.byLog || req.Rows[i].ByLog
		if !req.Rows[i].KeyID.IsZero() {
			ordered++
		}
	}
	if ordered == 0 {
		return b, nil
	}
	slices.SortStableFunc(b.order,
		func(i, j int) int { return bytes.Compare(req.Rows[i].KeyID[:], req.Rows[j].KeyID[:]) })
	for _, i := range b.order {
		row := &req.Rows[i]
		if row.KeyID.IsZero() {
			continue
		}
		if n := len(b.lanes); n == 0 || b.lanes[n-1].lane != row.KeyID {
			b.lanes = append(b.lanes, laneUse{lane: row.KeyID})
		}
		use := &b.lanes[len(b.lanes)-1]
		use.rows, use.last = append(use.rows, i), row.ID
	}
	return b, nil
}

// use returns the entry of a lane.
func (b *batch) use(lane core.KeyID) *laneUse {
	i, _ := slices.BinarySearchFunc(b.lanes, lane,
		func(u laneUse, l core.KeyID) int { return bytes.Compare(u.lane[:], l[:]) })
	return &b.lanes[i]
}

// number gives the rows of a lane their places once its key row is read back.
func (b *batch) number(use *laneUse, firstSeq int64) {
	start := use.lastSeq - int64(len(use.rows)) + 1
	use.opened = start == firstSeq
	prev, opened := use.prev, use.opened
	for i, row := range use.rows {
		b.places[row] = core.Inserted{KeySeq: start + int64(i), Prev: prev, Opened: opened}
		prev, opened = b.req.Rows[row].ID, false
	}
}

// chunks splits the rows so that no statement becomes too large.
func (b *batch) chunks(fn func(rows []int) error) error {
	start, size := 0, 0
	for i, row := range b.order {
		n := len(b.req.Rows[row].Event.Payload)
		if i > start && (i-start == chunkRows || size+n > chunkBytes) {
			if err := fn(b.order[start:i]); err != nil {
				return err
			}
			start, size = i, 0
		}
		size += n
	}
	return fn(b.order[start:])
}
