// Package outboxsql is shared by packages sqloutbox and sqlops: it writes statements about the
// tables of an outbox, and reads their rows.
package outboxsql

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// ID scans 16 bytes: raw, as the text of a UUID, or NULL for zero.
type ID [16]byte

// Scan implements sql.Scanner. Another value is an error, with which u is the least id behind it: a
// page of damaged rows has a place where the next one begins.
func (u *ID) Scan(src any) error {
	var b []byte
	switch v := src.(type) {
	case nil:
		*u = ID{}
		return nil
	case []byte:
		b = v
	case string:
		b = []byte(v)
	case [16]byte:
		*u = v
		return nil
	default:
		return fmt.Errorf("cannot read an id from %T", src)
	}
	if len(b) == 16 {
		copy(u[:], b)
		return nil
	}
	id, err := core.ParseRowID(string(b))
	if *u = ID(id); err == nil {
		return nil
	}
	copy(u[:], b)
	for i := len(u) - 1; len(b) > len(u) && i >= 0; i-- {
		if u[i]++; u[i] != 0 {
			break
		}
	}
	return fmt.Errorf("an id has %d bytes: %.40q", len(b), b)
}

// ScanBytes lets a Pool of pgx read an id without a conversion to text.
func (u *ID) ScanBytes(b []byte) error {
	switch {
	case b == nil:
		*u = ID{}
		return nil
	case len(b) == len(u):
		copy(u[:], b)
		return nil
	}
	return u.Scan(b)
}

// Scan reads a row into dest. If a column has a wrong value, the others are read all the same,
// and damage names the column. The columns in required must be readable.
func Scan(res core.Rows, dest []any, required ...int) (damage, err error) {
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

// Headers reads headers as other producers may have written them: numbers and booleans become
// text, and null becomes an empty text.
func Headers(text []byte) (map[string]string, error) {
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

// EventScan reads EventColumns.
type EventScan struct {
	e                                 ops.Event
	id, lane, replayOf                ID
	status                            int64
	lease, done                       *int64
	available, occurred, created, now int64
	claimNo                           int64
}

// EventColumns are the columns of an ops.Event.
const EventColumns = `e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), ` +
	`COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), ` +
	`COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), ` +
	`COALESCE(e.claimed_by,''), {us:e.lease_until}, {us:e.available_at}, {us:e.occurred_at}, {us:e.created_at}, ` +
	`{us:e.done_at}, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), ` +
	`COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, {clock}`

// LookedColumns are the columns that EventColumns and the filters need.
const LookedColumns = `e.id, e.event_id, e.event_type, e.schema_version, e.topic, e.tenant_id, e.partition_key, ` +
	`e.key_seq, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.lane, e.status, e.attempts, ` +
	`e.lost_claims, e.claimed_by, e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, ` +
	`e.last_error_code, e.last_error, e.receipt, e.error_group, e.causation_id, e.replay_of, e.claim_no`

// Scan reads a row. A column with a wrong value is left out: that is the reason why its event is
// dead.
func (s *EventScan) Scan(res core.Rows) error {
	_, err := Scan(res, []any{
		&s.id, &s.e.EventID, &s.e.Type, &s.e.SchemaVersion, &s.e.Topic, &s.e.TenantID, &s.e.Key, &s.e.KeySeq,
		&s.e.AggregateType, &s.e.AggregateID, &s.e.AggregateVersion, &s.lane, &s.status, &s.e.Attempts,
		&s.e.LostClaims, &s.e.ClaimedBy, &s.lease, &s.available, &s.occurred, &s.created, &s.done, &s.e.ErrorCode,
		&s.e.Error, &s.e.Receipt, &s.e.ErrorGroup, &s.e.CausationID, &s.replayOf, &s.claimNo, &s.now,
	}, 0)
	return err
}

// Event returns the row that was read.
func (s *EventScan) Event() ops.Event {
	e := s.e
	e.ID, e.KeyID, e.ReplayOf = core.RowID(s.id), core.KeyID(s.lane), core.RowID(s.replayOf)
	e.Status, e.Path = ops.Status(s.status), core.PathOf(s.claimNo)
	micro := func(us int64) time.Time { return time.UnixMicro(us).UTC() }
	e.AvailableAt, e.OccurredAt, e.CreatedAt = micro(s.available), micro(s.occurred), micro(s.created)
	e.ReadAt = micro(s.now)
	if s.lease != nil {
		e.LeaseUntil = micro(*s.lease)
	}
	if s.done != nil && !e.Status.Open() && e.Status != ops.StatusDead {
		e.DoneAt = micro(*s.done)
	}
	return e
}
