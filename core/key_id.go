package core

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// KeyID identifies events that are published in order: the events of one tenant, topic and key. It
// is four bytes of a hash of the topic and twelve bytes of a hash of tenant, topic and key. It is
// binary, has one size, and depends on no collation. All KeyIDs of one topic are neighbours, so
// that a scan can jump over a stopped topic. The zero value means "unordered".
type KeyID [16]byte

// IsZero reports whether k is the zero value.
func (k KeyID) IsZero() bool { return k == KeyID{} }

// MarshalText returns k in hexadecimal digits.
func (k KeyID) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(k[:])), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *KeyID) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(k) {
		return fmt.Errorf("outbox: %q is no KeyID: it has 32 hexadecimal digits", errtext.Clip(string(text), 64))
	}
	copy(k[:], b)
	return nil
}

// NewKeyID returns the KeyID of a key.
func NewKeyID(tenant, topic, key string) KeyID {
	var k KeyID
	prefix := KeyIDPrefix(topic)
	copy(k[:], prefix[:])
	buf := make([]byte, 0, 256)
	// each part is preceded by its length, so that no two triples share their bytes
	for _, s := range [...]string{tenant, topic, key} {
		buf = binary.AppendUvarint(buf, uint64(len(s)))
		buf = append(buf, s...)
	}
	sum := sha256.Sum256(buf)
	copy(k[4:], sum[:12])
	return k
}

// ReplayKeyID returns the KeyID under which replayed events of k are published: in order among
// themselves, apart from new events. It stays within the topic of k.
func ReplayKeyID(k KeyID) KeyID {
	r := k
	sum := sha256.Sum256(append([]byte("replay"), k[:]...))
	copy(r[4:], sum[:12])
	return r
}

// KeyIDPrefix returns the first four bytes of all KeyIDs of a topic.
func KeyIDPrefix(topic string) [4]byte {
	sum := sha256.Sum256([]byte(topic))
	return [4]byte(sum[:4])
}
