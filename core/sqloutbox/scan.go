package sqloutbox

import (
	"encoding/json"
	"fmt"
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
}

// dest returns the targets of eventColumns, in their order.
func (s *eventScan) dest() []any {
	return []any{
		&s.id, &s.e.ID, &s.e.Type, &s.e.SchemaVersion, &s.e.Topic, &s.e.AggregateType, &s.e.AggregateID, &s.e.AggregateVersion,
		&s.e.TenantID, &s.e.Key, &s.lane, &s.keySeq, &s.e.Payload, &s.e.ContentType, &s.headers, &s.occurred,
	}
}

// eventColumns is read into an eventScan. {us:...} makes microseconds, so that no driver's idea of time zones matters.
const eventColumns = `e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), ` +
	`e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, ` +
	`COALESCE(e.content_type,''), e.headers, {us:e.occurred_at}`

func (s *eventScan) event() (core.Event, error) {
	e := s.e
	if len(s.headers) > 0 {
		if err := json.Unmarshal(s.headers, &e.Headers); err != nil {
			return e, fmt.Errorf("headers of row %s: %w", core.RowID(s.id), err)
		}
	}
	e.OccurredAt = time.UnixMicro(s.occurred).UTC()
	e.Unordered = e.Key != "" && s.lane == id16{}
	if e.Payload == nil {
		e.Payload = []byte{}
	}
	return e, nil
}

// claimColumns follow eventColumns when rows are claimed.
const claimColumns = `, e.attempts, e.lost_claims, e.claim_no, e.replay_of, {us:e.created_at}, (SELECT {clock})`

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

func (s *claimScan) claimed() (core.Claimed, error) {
	e, err := s.event()
	c := s.c
	c.ID, c.Event, c.Lane, c.KeySeq, c.ReplayOf = core.RowID(s.id), e, core.Lane(s.lane), s.keySeq, core.RowID(s.replayOf)
	c.Age = time.Duration(max(0, s.now-s.created)) * time.Microsecond
	return c, err
}

// orNil makes NULL of an empty text.
func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// micros is how durations travel to the database.
func micros(d time.Duration) int64 { return d.Microseconds() }
