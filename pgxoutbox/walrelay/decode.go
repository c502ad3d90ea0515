package walrelay

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/ormoutbox/ormoutbox/core"
)

// columns are the columns of outbox_event that make an event. Columns of other names are passed
// over, so that a newer table can be read.
var columns = map[string]func(r *logRow, data []byte) error{
	"id":                func(r *logRow, b []byte) error { return uuid(&r.row.ID, b) },
	"event_id":          func(r *logRow, b []byte) error { r.row.Event.ID = string(b); return nil },
	"event_type":        func(r *logRow, b []byte) error { r.row.Event.Type = r.names.text(b); return nil },
	"topic":             func(r *logRow, b []byte) error { r.row.Event.Topic = r.names.text(b); return nil },
	"aggregate_type":    func(r *logRow, b []byte) error { r.row.Event.AggregateType = r.names.text(b); return nil },
	"aggregate_id":      func(r *logRow, b []byte) error { r.row.Event.AggregateID = string(b); return nil },
	"tenant_id":         func(r *logRow, b []byte) error { r.row.Event.TenantID = r.names.text(b); return nil },
	"partition_key":     func(r *logRow, b []byte) error { r.row.Event.Key = string(b); return nil },
	"content_type":      func(r *logRow, b []byte) error { r.row.Event.ContentType = r.names.text(b); return nil },
	"aggregate_version": func(r *logRow, b []byte) error { return integer(&r.row.Event.AggregateVersion, b) },
	"schema_version":    func(r *logRow, b []byte) error { return integer(&r.row.Event.SchemaVersion, b) },
	"key_seq":           func(r *logRow, b []byte) error { return integer(&r.row.KeySeq, b) },
	"status":            func(r *logRow, b []byte) error { return integer(&r.status, b) },
	"claimed_by":        func(r *logRow, b []byte) error { r.claimedBy = r.names.text(b); return nil },
	"replay_of":         func(r *logRow, b []byte) error { return uuid(&r.row.ReplayOf, b) },
	"lane":              func(r *logRow, b []byte) error { r.readLane(b); return nil },
	"occurred_at":       func(r *logRow, b []byte) error { return r.readTime(&r.row.Event.OccurredAt, b) },
	"created_at":        func(r *logRow, b []byte) error { return r.readTime(&r.created, b) },
	"payload":           func(r *logRow, b []byte) error { r.row.Event.Payload = append([]byte{}, b...); return nil },
	"headers":           func(r *logRow, b []byte) error { return r.readHeaders(b) },
}

// logRow is a row of outbox_event while it is read.
type logRow struct {
	row       core.Claimed
	status    int64
	claimedBy string
	created   time.Time
	names     names
}

// names has texts that many events share, so that each is stored once. A nil one shares nothing.
type names map[string]string

const (
	mostNames   = 1000 // more are other texts each time
	longestName = 100
)

func (n names) text(b []byte) string {
	if len(b) == 0 || len(b) > longestName {
		return string(b)
	}
	if s, ok := n[string(b)]; ok {
		return s
	}
	s := string(b)
	if n != nil && len(n) < mostNames {
		n[s] = s
	}
	return s
}

// event returns the event of the row as a claim of the table returns it.
func (r *logRow) event(now time.Time) core.Claimed {
	c := r.row
	c.Event.Unordered = c.Event.Key != "" && c.KeySeq == 0
	if c.Event.Payload == nil {
		c.Event.Payload = []byte{}
	}
	if !r.created.IsZero() {
		c.Age = max(0, now.Sub(r.created))
	}
	return c
}

// byLog reports whether the row is for a reader of the log. A publication with the condition of
// Setup sends no others.
func (r *logRow) byLog() bool { return r.status == statusDone && r.claimedBy == core.LogReader }

// statusDone is DONE in the column status.
const statusDone = 1

// relation is the table as the log describes it.
type relation struct {
	set   []func(*logRow, []byte) error // one for each column, in the order of the log; nil: the column is ignored
	names names
}

// Errors of a table that this version cannot read.
var (
	errColumns = errors.New("walrelay: the publication does not have every column of the table of events: " +
		"make it without a list of columns")
	errUnreadable = errors.New("walrelay: the table of events has columns of types that this version cannot read")
)

// newRelation looks for the columns by their names.
func newRelation(m *pglogrepl.RelationMessage) (*relation, error) {
	r := &relation{names: names{}, set: make([]func(*logRow, []byte) error, len(m.Columns))}
	found := 0
	for i, c := range m.Columns {
		if r.set[i] = columns[c.Name]; r.set[i] != nil {
			found++
		}
	}
	if found < len(columns) {
		return nil, errColumns
	}
	return r, nil
}

// errShort: the server sent something that is no insert of pgoutput.
var errShort = errors.New("walrelay: an insert of the log is cut off")

// read reads an insert message of pgoutput. It does what pglogrepl.Parse does, without a copy of
// each byte and of each column.
func (r *relation) read(insert []byte) (row logRow, err error) {
	if len(insert) < 8 || insert[5] != 'N' {
		return row, errShort
	}
	row.names = r.names
	n, rest := int(binary.BigEndian.Uint16(insert[6:])), insert[8:]
	if n > len(r.set) {
		return row, fmt.Errorf("walrelay: an insert has %d columns, and its table %d", n, len(r.set))
	}
	for i := range n {
		if len(rest) == 0 {
			return row, errShort
		}
		kind := rest[0]
		if rest = rest[1:]; kind == pglogrepl.TupleDataTypeNull || kind == pglogrepl.TupleDataTypeToast {
			continue
		}
		if len(rest) < 4 || len(rest)-4 < int(binary.BigEndian.Uint32(rest)) {
			return row, errShort
		}
		size := int(binary.BigEndian.Uint32(rest))
		data := rest[4 : 4+size]
		rest = rest[4+size:]
		if r.set[i] == nil {
			continue
		}
		if kind != pglogrepl.TupleDataTypeBinary {
			return row, fmt.Errorf("%w: column %d has the format %q, not the binary one", errUnreadable, i+1, kind)
		}
		if err := r.set[i](&row, data); err != nil {
			return row, fmt.Errorf("%w: column %d: %w", errUnreadable, i+1, err)
		}
	}
	return row, nil
}

func uuid(to *core.RowID, b []byte) error {
	if len(b) != len(to) {
		return fmt.Errorf("an id of %d bytes", len(b))
	}
	copy(to[:], b)
	return nil
}

// readLane reads the column lane. A lane that another program wrote may be anything: such an event
// cannot be published.
func (r *logRow) readLane(b []byte) {
	if len(b) != len(r.row.KeyID) {
		r.row.Err = fmt.Errorf("a lane of %d bytes", len(b))
		return
	}
	copy(r.row.KeyID[:], b)
}

func integer[T ~int | ~int64](to *T, b []byte) error {
	switch len(b) {
	case 2:
		*to = T(int16(binary.BigEndian.Uint16(b)))
	case 4:
		*to = T(int32(binary.BigEndian.Uint32(b)))
	case 8:
		*to = T(int64(binary.BigEndian.Uint64(b)))
	default:
		return fmt.Errorf("an integer of %d bytes", len(b))
	}
	return nil
}

// epoch is the year 2000, with which times of PostgreSQL begin, in microseconds since 1970.
const epoch = 946684800 * 1_000_000

// readTime reads a time. Another program may have written infinity: such an event cannot be
// published.
func (r *logRow) readTime(to *time.Time, b []byte) error {
	var us int64
	if err := integer(&us, b); err != nil {
		return err
	}
	if us == math.MaxInt64 || us == math.MinInt64 {
		r.row.Err = errInfinite
		return nil
	}
	*to = time.UnixMicro(us + epoch).UTC()
	return nil
}

var errInfinite = errors.New("a time is infinite")

// readHeaders reads a jsonb as the claims of the table do: numbers and booleans become text, and
// null becomes an empty text. An event with unreadable headers cannot be published.
func (r *logRow) readHeaders(b []byte) error {
	if len(b) == 0 || b[0] != 1 { // the version of the format
		return errors.New("a jsonb of an unknown version")
	}
	r.setHeaders(b[1:])
	return nil
}

func (r *logRow) setHeaders(text []byte) {
	headers, ok := r.names.plainHeaders(text)
	if ok {
		r.row.Event.Headers = headers
		return
	}
	headers, err := headersOf(text)
	if r.row.Event.Headers = headers; err != nil {
		r.row.Err = err
	}
}

// plainHeaders reads headers that are texts without escapes, as PostgreSQL writes them. It is
// several times as fast as a parser of JSON.
func (n names) plainHeaders(text []byte) (map[string]string, bool) {
	if len(text) < 2 || text[0] != '{' || text[len(text)-1] != '}' {
		return nil, false
	}
	headers := make(map[string]string, bytes.Count(text, []byte(`": "`)))
	for rest := text[1 : len(text)-1]; len(rest) > 0; {
		name, after, ok := plainText(rest)
		if !ok || len(after) < 2 || after[0] != ':' || after[1] != ' ' {
			return nil, false
		}
		value, after, ok := plainText(after[2:])
		if !ok {
			return nil, false
		}
		headers[n.text(name)] = string(value)
		if rest = after; len(rest) == 0 {
			break
		}
		if len(rest) < 3 || rest[0] != ',' || rest[1] != ' ' {
			return nil, false
		}
		rest = rest[2:]
	}
	return headers, true
}

// plainText cuts off a text of JSON without escapes.
func plainText(b []byte) (text, rest []byte, ok bool) {
	if len(b) < 2 || b[0] != '"' {
		return nil, nil, false
	}
	for i, c := range b[1:] {
		switch c {
		case '"':
			return b[1 : i+1], b[i+2:], true
		case '\\':
			return nil, nil, false
		}
	}
	return nil, nil, false
}

// headersOf reads headers as other producers may have written them: numbers and booleans become
// text, and null becomes an empty text. It is a copy of core/sqloutbox's (docs/design/rooms.md,
// "Code that stands twice").
func headersOf(text []byte) (map[string]string, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("headers are no JSON object: %w", err)
	}
	headers := make(map[string]string, len(raw))
	for name, value := range raw {
		switch value[0] {
		case '"':
			var s string
			if err := json.Unmarshal(value, &s); err != nil {
				return nil, fmt.Errorf("header %q: %w", name, err)
			}
			headers[name] = s
		case '{', '[':
			return nil, fmt.Errorf("header %q is neither a text nor a number: %.64s", name, value)
		case 'n':
			headers[name] = ""
		default:
			headers[name] = string(value)
		}
	}
	return headers, nil
}
