package once

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Fingerprint tells whether two uses of one key are for the same work. The zero Fingerprint matches
// every other.
type Fingerprint [sha256.Size]byte

// FingerprintOf returns the SHA-256 of the parts with their lengths, so that ("ab", "c") and ("a",
// "bc") differ.
func FingerprintOf(parts ...[]byte) Fingerprint {
	h := sha256.New()
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	return Fingerprint(h.Sum(nil))
}

// IsZero reports whether f is the zero Fingerprint.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }

// Matches reports whether f and g are the same, or one of them is zero.
func (f Fingerprint) Matches(g Fingerprint) bool { return f == g || f.IsZero() || g.IsZero() }

// String returns f in hexadecimal digits, and "" for the zero Fingerprint.
func (f Fingerprint) String() string {
	if f.IsZero() {
		return ""
	}
	return hex.EncodeToString(f[:])
}
