package sqloutbox

import (
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
)

// shape says which parts a row has.
type shape int

const (
	shapeHot shape = 1 << iota
	shapeDelayed
	shapeOrdered
	shapeByLog
	shapeOptional // of the first of optionalColumns; those of the others follow
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
