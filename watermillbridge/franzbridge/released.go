package franzbridge

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
)

// released are the offsets of a partition whose messages have left the poison queue: all below a
// floor, and some above, between which messages were kept. A consumer group has the floor as its
// committed offset, and the others in the metadata beside it.
type released struct {
	floor int64
	above []span // ascending, apart from each other and from the floor
}

// span has the offsets from its first on, up to but not including its end.
type span struct{ first, end int64 }

func (r *released) has(offset int64) bool {
	within := func(s span) bool { return s.first <= offset && offset < s.end }
	return offset < r.floor || slices.ContainsFunc(r.above, within)
}

// add adds one span.
func (r *released) add(s span) {
	r.above = append(r.above, s)
	r.settle()
}

// raise adds all offsets below floor.
func (r *released) raise(floor int64) {
	r.floor = max(r.floor, floor)
	r.settle()
}

// merge adds the spans of o.
func (r *released) merge(o released) {
	r.above = append(r.above, o.above...)
	r.raise(o.floor)
}

// settle joins what touches.
func (r *released) settle() {
	slices.SortFunc(r.above, func(a, b span) int { return int(min(1, max(-1, a.first-b.first))) })
	var all []span
	for _, s := range r.above {
		switch last := len(all) - 1; {
		case s.first <= r.floor:
			r.floor = max(r.floor, s.end)
		case last >= 0 && s.first <= all[last].end:
			all[last].end = max(all[last].end, s.end)
		default:
			all = append(all, s)
		}
	}
	r.above = all
}

// releasedPrefix begins the metadata.
const releasedPrefix = "released:"

// text encodes the spans above the floor: each as its distance from the previous one, and its
// length.
func (r *released) text() string {
	if len(r.above) == 0 {
		return ""
	}
	var b []byte
	at := r.floor
	for _, s := range r.above {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(s.first-at)), uint64(s.end-s.first))
		at = s.end
	}
	return releasedPrefix + base64.RawStdEncoding.EncodeToString(b)
}

// readReleased decodes the metadata of a group. Metadata of other programs is ignored.
func readReleased(floor int64, metadata string) released {
	r := released{floor: floor}
	text, ours := strings.CutPrefix(metadata, releasedPrefix)
	b, err := base64.RawStdEncoding.DecodeString(text)
	if !ours || err != nil {
		return r
	}
	at := floor
	for len(b) > 0 {
		gap, n := binary.Uvarint(b)
		length, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 || gap > 1<<62 || length > 1<<62 || at > 1<<62 {
			return released{floor: floor}
		}
		s := span{first: at + int64(gap)}
		s.end = s.first + int64(length)
		r.above = append(r.above, s)
		at, b = s.end, b[n+m:]
	}
	r.settle()
	return r
}
