package sqloutbox

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// id16 scans 16 bytes: raw, as the text of a UUID, or NULL for zero.
type id16 [16]byte

// Scan implements sql.Scanner.
func (u *id16) Scan(src any) error {
	var b []byte
	switch v := src.(type) {
	case nil:
		*u = id16{}
		return nil
	case []byte:
		b = v
	case string:
		b = []byte(v)
	case [16]byte:
		*u = v
		return nil
	default:
		return fmt.Errorf("sqloutbox: cannot read an id from %T", src)
	}
	if len(b) == 16 {
		copy(u[:], b)
		return nil
	}
	id, err := core.ParseRowID(string(b))
	*u = id16(id)
	return err
}

// headerJSON returns the text of the headers, nil when there are none.
func headerJSON(h map[string]string) (any, error) {
	if len(h) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(h)
	return string(b), err
}

// eventScan holds what the columns of an event are scanned into.
type eventScan struct {
	id, lane id16
	e        core.Event
	headers  []byte
	keySeq   int64
	occurred int64
	damage   error // a column could not be read
}

// dest returns the targets of eventColumns, in their order.
func (s *eventScan) dest() []any {
	return []any{
		&s.id, &s.e.ID, &s.e.Type, &s.e.SchemaVersion, &s.e.Topic, &s.e.AggregateType, &s.e.AggregateID,
		&s.e.AggregateVersion, &s.e.TenantID, &s.e.Key, &s.lane, &s.keySeq, &s.e.Payload, &s.e.ContentType, &s.headers,
		&s.occurred,
	}
}

// eventColumns is read into an eventScan. {us:...} makes microseconds, so that no driver's idea of
// time zones matters.
const eventColumns = `e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), ` +
	`COALESCE(e.aggregate_id,''), ` +
	`e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), ` +
	`e.payload, ` +
	`COALESCE(e.content_type,''), e.headers, {us:e.occurred_at}`

// event returns the event. The error names the part that cannot be read: such an event cannot be
// published, and is returned without that part.
func (s *eventScan) event() (core.Event, error) {
	e := s.e
	err := s.damage
	if len(s.headers) > 0 && err == nil {
		e.Headers, err = headersOf(s.headers)
	}
	e.OccurredAt = time.UnixMicro(s.occurred).UTC()
	e.Unordered = e.Key != "" && s.keySeq == 0 // a row that left its key keeps its number
	if e.Payload == nil {
		e.Payload = []byte{}
	}
	return e, err
}

// headersOf reads headers as other producers may have written them: numbers and booleans become
// text, and null becomes an empty text.
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

// suspicious is core.Suspicious. From there on a lost claim counts only if the publish of the
// suspect had begun, which makes lost_claims negative.
const suspicious = "3"

var _ = [1]struct{}{}[core.Suspicious-3] // they are the same

// scanRow reads a row into dest. If a column has a wrong value, the others are read all the same,
// and damage names the column. The columns in required must be readable.
func scanRow(res core.Rows, dest []any, required ...int) (damage, err error) {
	if err := res.Scan(dest...); err == nil {
		return nil, nil
	}
	for i := range dest {
		one := make([]any, len(dest))
		for k := range one {
			one[k] = new(any)
		}
		one[i] = dest[i]
		if err := res.Scan(one...); err != nil {
			if slices.Contains(required, i) {
				return nil, err
			}
			damage = err
		}
	}
	return damage, nil
}

// claimColumns follow eventColumns when rows are claimed.
const claimColumns = `, e.attempts, ABS(e.lost_claims), e.claim_no, e.replay_of, {us:e.created_at}, (SELECT {clock})`

// claimScan reads eventColumns and claimColumns.
type claimScan struct {
	eventScan
	c            core.Claimed
	replayOf     id16
	created, now int64
}

func (s *claimScan) claimDest() []any {
	return append(s.dest(), &s.c.Attempts, &s.c.LostClaims, &s.c.ClaimNo, &s.replayOf, &s.created, &s.now)
}

// claimNoAt is the place of the claim number among claimDest.
const claimNoAt = 18

// scan reads a row. Only its id, its claim number and the columns after claimDest must be readable.
func (s *claimScan) scan(res core.Rows, more ...any) (err error) {
	dest := append(s.claimDest(), more...)
	required := []int{0, claimNoAt}
	for i := range more {
		required = append(required, len(dest)-1-i)
	}
	s.damage, err = scanRow(res, dest, required...)
	return err
}

func (s *claimScan) claimed() core.Claimed {
	e, err := s.event()
	c := s.c
	c.Err = err
	c.ID, c.Event, c.KeyID, c.KeySeq, c.ReplayOf = core.RowID(s.id), e, core.KeyID(s.lane), s.keySeq,
		core.RowID(s.replayOf)
	c.Age = time.Duration(max(0, s.now-s.created)) * time.Microsecond
	return c
}

// orNil makes NULL of a zero value.
func orNil[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

// untilDue converts a time until a row is due: 0 if it is over, and the longest duration if it is
// longer than any.
func untilDue(us int64) time.Duration {
	return time.Duration(max(0, min(us, math.MaxInt64/1000))) * time.Microsecond
}

// micros converts a duration for the database.
func micros(d time.Duration) int64 { return d.Microseconds() }
