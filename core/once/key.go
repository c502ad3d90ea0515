package once

import (
	"errors"
	"fmt"
	"strings"

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

// Scope joins parts to one text for Key.Scope, with a "/" between them. It writes "/" and "%"
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
	keyUnescaper = strings.NewReplacer("%25", "%", "%7C", "|")
)

// Validate reports every problem of k at once. The error wraps ErrInvalidKey.
func (k Key) Validate() error {
	var problems []error
	for _, part := range []struct {
		name, text string
		limit      int
		required   bool
	}{{"scope", k.Scope, MaxScope, true}, {"tenant", k.Tenant, MaxTenant, false}, {"id", k.ID, MaxID, true}} {
		if p := textcheck.Problem(part.text, part.limit, part.required); p != "" {
			problems = append(problems, fmt.Errorf("%s %s", part.name, p))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("%w: %w", ErrInvalidKey, errors.Join(problems...))
	}
	return nil
}

// String returns the text form of k: scope|tenant|id, with "|" and "%" inside a part written as
// "%7C" and "%25". Different keys have different texts, so stores without three columns can use the
// text as their key. ParseKey reads it back.
func (k Key) String() string {
	return keyEscaper.Replace(k.Scope) + "|" + keyEscaper.Replace(k.Tenant) + "|" + keyEscaper.Replace(k.ID)
}

// ParseKey reads a text that Key.String wrote. It refuses any other text.
func ParseKey(s string) (Key, error) {
	parts := strings.Split(s, "|")
	if len(parts) != 3 {
		return Key{}, fmt.Errorf("%w: want scope|tenant|id", ErrInvalidKey)
	}
	k := Key{
		Scope: keyUnescaper.Replace(parts[0]), Tenant: keyUnescaper.Replace(parts[1]),
		ID: keyUnescaper.Replace(parts[2]),
	}
	if k.String() != s {
		return Key{}, fmt.Errorf("%w: a %% that is not part of %%25 or %%7C", ErrInvalidKey)
	}
	return k, k.Validate()
}
