package core

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// RowID identifies one row of the outbox table: one event for one destination. A broker may
// deduplicate by it. Consumers deduplicate by Event.ID instead. The zero value means "none".
type RowID [16]byte

// String returns the canonical text form of a UUID.
func (id RowID) String() string { return formatUUID(id) }

// IsZero reports whether id is the zero value.
func (id RowID) IsZero() bool { return id == RowID{} }

// MarshalText implements encoding.TextMarshaler.
func (id RowID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *RowID) UnmarshalText(text []byte) error {
	v, err := ParseRowID(string(text))
	if err == nil {
		*id = v
	}
	return err
}

// ParseRowID parses the text form of a row id.
func ParseRowID(s string) (RowID, error) {
	u, ok := parseUUID(s)
	if !ok {
		return RowID{}, fmt.Errorf("outbox: %q is not a row id", errtext.Clip(s, 64))
	}
	return u, nil
}

// NewRowID returns the row id of an event for one topic. It is a UUIDv8. Its first eight bytes are
// copied from the event id. So row ids keep the time order of UUIDv7 and ULID, and the rows of an
// event form a range of the primary key (see RowIDRange). Its other eight bytes are a hash of event
// id and topic. So the primary key refuses the same event for the same topic, and nothing else.
func NewRowID(eventID, topic string) (RowID, error) {
	bits, _, err := parseEventID(eventID)
	if err != nil {
		return RowID{}, err
	}
	return deriveRowID(bits, []byte(topic)), nil
}

// FreshRowID returns a row id for one more row of an event that has a row for the topic already. A
// redriven event that is appended at the end of its key needs one.
func FreshRowID(eventID string) (RowID, error) {
	bits, _, err := parseEventID(eventID)
	if err != nil {
		return RowID{}, err
	}
	var fresh [16]byte
	rand.Read(fresh[:])
	return deriveRowID(bits, fresh[:]), nil
}

// RowIDRange returns the smallest and the largest row id that rows of an event can have.
func RowIDRange(eventID string) (first, last RowID, err error) {
	bits, _, err := parseEventID(eventID)
	if err != nil {
		return RowID{}, RowID{}, err
	}
	copy(first[:8], bits[:8])
	first[6] = first[6]&0x0f | 0x80
	last = first
	first[8] = 0x80
	last[8] = 0xbf
	for i := 9; i < 16; i++ {
		last[i] = 0xff
	}
	return first, last, nil
}

func deriveRowID(event [16]byte, salt []byte) RowID {
	var buf [16 + 256]byte
	sum := sha256.Sum256(append(append(buf[:0], event[:]...), salt...))
	var id RowID
	copy(id[:8], event[:8])
	copy(id[8:], sum[:8])
	id[6] = id[6]&0x0f | 0x80 // version 8
	id[8] = id[8]&0x3f | 0x80 // variant
	return id
}

// NewEventID returns a new UUIDv7 (RFC 9562). The twelve bits after the version hold the fraction
// of the millisecond. So the ids of one process sort by time, even within one microsecond.
func NewEventID() string {
	var u [16]byte
	rand.Read(u[6:])
	t := nextTick()
	binary.BigEndian.PutUint64(u[:8], t>>12<<16|t&0x0fff|0x7000)
	u[8] = u[8]&0x3f | 0x80
	return formatUUID(u)
}

// lastTick is the latest time that an id has. It counts milliseconds, and holds the fraction in the
// lower twelve bits.
var lastTick atomic.Uint64

// nextTick returns the time. If lastTick is ahead by less than a millisecond, it returns the tick
// after lastTick. A clock that was set back further is believed.
func nextTick() uint64 {
	for {
		now := time.Now()
		ms := now.UnixMilli()
		t, last := uint64(ms)<<12|uint64((now.UnixMicro()-ms*1000)*4096/1000), lastTick.Load()
		if t <= last && last-t < 1<<12 {
			t = last + 1
		}
		if lastTick.CompareAndSwap(last, t) {
			return t
		}
	}
}

// DeriveEventID returns the event id of an identity in another form, such as an order number or the
// id of a foreign message. The id is a UUIDv8 of a hash, the same for the same text. Derived ids do
// not sort by time, so inserting them touches more pages of the table than inserting others does.
func DeriveEventID(identity string) string {
	sum := sha256.Sum256([]byte("ormoutbox event id\x00" + identity))
	var u [16]byte
	copy(u[:], sum[:])
	u[6] = u[6]&0x0f | 0x80 // version 8
	u[8] = u[8]&0x3f | 0x80 // variant
	return formatUUID(u)
}

// parseEventID accepts a UUID or a ULID in text form and returns its 128 bits and its canonical
// text: lower case for a UUID, upper case for a ULID. So one identity has one spelling.
func parseEventID(s string) (bits [16]byte, canonical string, err error) {
	if u, ok := parseUUID(s); ok {
		return u, formatUUID(u), nil
	}
	if u, ok := parseULID(s); ok {
		return u, formatULID(u), nil
	}
	return bits, "", fmt.Errorf("event id %q is neither a UUID nor a ULID", errtext.Clip(s, 64))
}

func formatUUID(u [16]byte) string {
	var b [36]byte
	hex.Encode(b[0:8], u[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], u[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], u[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], u[8:10])
	b[23] = '-'
	hex.Encode(b[24:36], u[10:16])
	return string(b[:])
}

func parseUUID(s string) (u [16]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, false
	}
	var h [32]byte
	n := 0
	for i := 0; i < len(s); i++ {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			continue
		}
		h[n] = s[i]
		n++
	}
	if _, err := hex.Decode(u[:], h[:]); err != nil {
		return [16]byte{}, false
	}
	return u, true
}

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

func parseULID(s string) (u [16]byte, ok bool) {
	if len(s) != 26 || s[0] > '7' { // 26 letters hold 130 bits, the first two must be zero
		return u, false
	}
	var hi, lo uint64
	for i := 0; i < len(s); i++ {
		c := s[i]
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		d := -1
		for j := range len(crockford) {
			if crockford[j] == c {
				d = j
				break
			}
		}
		if d < 0 {
			return u, false
		}
		hi = hi<<5 | lo>>59
		lo = lo<<5 | uint64(d)
	}
	binary.BigEndian.PutUint64(u[:8], hi)
	binary.BigEndian.PutUint64(u[8:], lo)
	return u, true
}

func formatULID(u [16]byte) string {
	hi, lo := binary.BigEndian.Uint64(u[:8]), binary.BigEndian.Uint64(u[8:])
	var b [26]byte
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(b[:])
}
