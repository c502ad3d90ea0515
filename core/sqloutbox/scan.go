package sqloutbox

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
)

// headerJSON returns the text of the headers, nil when there are none.
func headerJSON(h map[string]string) (any, error) {
	if len(h) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(h)
	return string(b), err
}

// eventScan has the destinations for scanning an event's columns.
type eventScan struct {
	id, lane outboxsql.ID
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
	`COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), ` +
	`e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, {us:e.occurred_at}`

// event returns the event. The error names the part that cannot be read: such an event cannot be
// published, and is returned without that part.
func (s *eventScan) event() (core.Event, error) {
	e := s.e
	err := s.damage
	if len(s.headers) > 0 && err == nil {
		e.Headers, err = outboxsql.Headers(s.headers)
	}
	e.OccurredAt = time.UnixMicro(s.occurred).UTC()
	e.Unordered = e.Key != "" && s.keySeq == 0 // a row that left its key keeps its number
	if e.Payload == nil {
		e.Payload = []byte{}
	}
	return e, err
}

// suspicious is core.Suspicious. From there on a lost claim counts only if the publish of the
// suspect had begun, which makes lost_claims negative.
const suspicious = "3"

var _ = [1]struct{}{}[core.Suspicious-3] // they are the same

// claimColumns follow eventColumns when rows are claimed.
const claimColumns = `, e.attempts, ABS(e.lost_claims), e.claim_no, e.replay_of, {us:e.created_at}, (SELECT {clock})`

// claimScan reads the rows of a claim one by one: eventColumns, claimColumns and more columns.
type claimScan struct {
	eventScan
	c            core.Claimed
	replayOf     outboxsql.ID
	created, now int64

	dests    []any
	required []int // the places of the columns that must be readable
	last     core.Event
}

// newClaimScan returns a claimScan that reads the columns behind claimColumns into more.
func newClaimScan(more ...any) *claimScan {
	s := &claimScan{}
	s.dests = append(s.dest(), &s.c.Attempts, &s.c.LostClaims, &s.c.ClaimNo, &s.replayOf, &s.created, &s.now)
	s.required = []int{0, claimNoAt}
	for i := range more {
		s.required = append(s.required, len(s.dests)+i)
	}
	s.dests = append(s.dests, more...)
	return s
}

// claimNoAt is the place of the claim number among the columns.
const claimNoAt = 18

// scan reads a row. Only its id, its claim number and the columns behind claimColumns must be
// readable. The targets still have the row before, whose texts a driver need not copy again.
func (s *claimScan) scan(res core.Rows) (err error) {
	s.damage = nil
	if err = res.Scan(s.dests...); err != nil { // a column that cannot be read must not be that row's
		s.eventScan, s.c, s.replayOf, s.created, s.now = eventScan{}, core.Claimed{}, outboxsql.ID{}, 0, 0
		s.damage, err = outboxsql.Scan(res, s.dests, s.required...)
	}
	// the rows of a claim keep one copy of each of these
	keep(&s.e.Type, &s.last.Type)
	keep(&s.e.Topic, &s.last.Topic)
	keep(&s.e.ContentType, &s.last.ContentType)
	return err
}

// claimed returns the row that was read.
func (s *claimScan) claimed() core.Claimed {
	c := &s.c
	c.Event, c.Err = s.event()
	c.ID, c.KeyID, c.KeySeq, c.ReplayOf = core.RowID(s.id), core.KeyID(s.lane), s.keySeq, core.RowID(s.replayOf)
	c.Age = time.Duration(max(0, s.now-s.created)) * time.Microsecond
	return *c
}

// keep replaces a text with the last one if they are equal.
func keep(text, last *string) {
	if *text == *last {
		*text = *last
	} else {
		*last = *text
	}
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

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// textArray writes a list as the text of an array.
func textArray(items []string) string {
	size := 2
	for _, s := range items {
		size += len(s) + 3
	}
	var b strings.Builder
	b.Grow(size)
	b.WriteByte('{')
	for i, s := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		for j := 0; j < len(s); j++ {
			if s[j] == '"' || s[j] == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(s[j])
		}
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

// textArrayOrNil is NULL for a nil list.
func textArrayOrNil(items []string) any {
	if items == nil {
		return nil
	}
	return textArray(items)
}

// column makes an array of one field of many values.
func column[T any](items []T, field func(*T) string) string {
	texts := make([]string, len(items))
	for i := range items {
		texts[i] = field(&items[i])
	}
	return textArray(texts)
}
