package core

import (
	"crypto/sha256"
	"encoding/binary"
)

// Lane identifies a sequence of events that are published in order: one tenant, topic and key. It
// is four bytes of a hash of the topic and twelve bytes of a hash of tenant, topic and key: binary,
// of one size, free of collations, and all lanes of one topic are neighbours, so that a scan can
// jump over a stopped topic. The zero value means "unordered".
type Lane [16]byte

// IsZero reports whether l is the zero value.
func (l Lane) IsZero() bool { return l == Lane{} }

// NewLane returns the lane of a key.
func NewLane(tenant, topic, key string) Lane {
	var l Lane
	prefix := LanePrefix(topic)
	copy(l[:], prefix[:])
	buf := make([]byte, 0, 256)
	for _, s := range [...]string{tenant, topic, key} { // length-prefixed: no two triples share their bytes
		buf = binary.AppendUvarint(buf, uint64(len(s)))
		buf = append(buf, s...)
	}
	sum := sha256.Sum256(buf)
	copy(l[4:], sum[:12])
	return l
}

// ReplayLane returns the lane in which replayed events of l travel: ordered among themselves, apart
// from new events. It stays within the topic of l.
func ReplayLane(l Lane) Lane {
	r := l
	sum := sha256.Sum256(append([]byte("replay"), l[:]...))
	copy(r[4:], sum[:12])
	return r
}

// LanePrefix returns the first four bytes of all lanes of a topic.
func LanePrefix(topic string) [4]byte {
	sum := sha256.Sum256([]byte(topic))
	return [4]byte(sum[:4])
}
