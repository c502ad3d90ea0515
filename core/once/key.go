package once

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

// Limits of the parts of a Key, in bytes.
const (
	MaxScope  = 255
	MaxTenant = 64
	MaxID     = 255
)

// Key names one piece of work. Two keys are the same only if all their bytes are the same: case,
// white space and Unicode forms count. Keys are comparable with ==. Every part is valid UTF-8
// without control characters.
type Key struct {
	// Scope names the kind of work: the consumer and its handler, the method and route of a
	// request, the type of a command. Required, at most MaxScope bytes. It is stored: choose it
	// once and do not derive it from the name of a Go type. Use the function Scope to join several
	// parts.
	Scope string
	// Tenant separates customers that may use the same ID. At most MaxTenant bytes; may be empty.
	Tenant string
	// ID names the work within Scope and Tenant: the event's id, the client's Idempotency-Key, the
	// id of an order. Required, at most MaxID bytes.
	ID string
}

// Scope joins parts to one text for [Key.Scope], with a "/" between them. It writes "/" and "%"
// inside a part as "%2F" and "%25". Different parts never make the same text.
func Scope(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = scopeEscaper.Replace(p)
	}
	return strings.Join(escaped, "/")
}

var (
	scopeEscaper = strings.NewReplacer("%", "%25", "/", "%2F")
	keyEscaper   = strings.NewReplacer("%", "%25", "|", "%7C")
)

// Validate reports every problem of k at once. The error wraps [ErrInvalidKey].
func (k Key) Validate() error {
	if err := textcheck.Check(
		textcheck.Part{Name: "scope", Text: k.Scope, Limit: MaxScope, Required: true},
		textcheck.Part{Name: "tenant", Text: k.Tenant, Limit: MaxTenant},
		textcheck.Part{Name: "id", Text: k.ID, Limit: MaxID, Required: true},
	); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidKey, err)
	}
	return nil
}

// String returns the text form of k: scope|tenant|id, with "|" and "%" inside a part written as
// "%7C" and "%25". Different keys have different texts, so stores without three columns can use the
// text as their key.
func (k Key) String() string {
	return keyEscaper.Replace(k.Scope) + "|" + keyEscaper.Replace(k.Tenant) + "|" + keyEscaper.Replace(k.ID)
}

// Fingerprint identifies the work for which a key is used. The zero Fingerprint matches every
// other.
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

// Matches reports whether f and g are equal, or one of them is zero.
func (f Fingerprint) Matches(g Fingerprint) bool { return f == g || f.IsZero() || g.IsZero() }

// String returns f in hexadecimal digits, and "" for the zero Fingerprint.
func (f Fingerprint) String() string {
	if f.IsZero() {
		return ""
	}
	return hex.EncodeToString(f[:])
}

// MaxMeta is how many bytes [Result.Meta] may have.
const MaxMeta = 16 << 10

// Result is the part of finished work that is kept and returned to later calls. Use the zero Result
// if callers need no result.
type Result struct {
	// Data is opaque. Its limit is [Config.MaxResult]. Empty and nil are the same.
	Data []byte
	// ContentType describes Data. At most 127 bytes; may be empty.
	ContentType string
	// Meta is a small text of the caller, for example a status and headers. At most MaxMeta bytes
	// of UTF-8 without NUL.
	Meta string
}

// IsZero reports whether the Result is empty.
func (r Result) IsZero() bool { return len(r.Data) == 0 && r.ContentType == "" && r.Meta == "" }

// Validate refuses a Result that no store could keep, or whose Data has more than maxData bytes.
// The error wraps [ErrInvalidResult].
func (r Result) Validate(maxData int) error {
	if len(r.Data) > maxData {
		return fmt.Errorf("%w: %d bytes, more than %d: store it elsewhere and keep a reference", ErrInvalidResult,
			len(r.Data), maxData)
	}
	if len(r.Meta) > MaxMeta {
		return fmt.Errorf("%w: meta has %d bytes, more than %d", ErrInvalidResult, len(r.Meta), MaxMeta)
	}
	if !utf8.ValidString(r.Meta) || strings.ContainsRune(r.Meta, 0) {
		return fmt.Errorf("%w: meta is not valid UTF-8 without NUL", ErrInvalidResult)
	}
	if p := textcheck.Problem(r.ContentType, 127, false); p != "" {
		return fmt.Errorf("%w: content type %s", ErrInvalidResult, p)
	}
	return nil
}
