package once

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

// MaxMeta is how many bytes Result.Meta may have.
const MaxMeta = 16 << 10

// Result is the part of finished work that is kept and returned to later calls. Use the zero Result
// if callers need to know only that the work is done.
type Result struct {
	// Data is opaque. Its limit is Config.MaxResult. Empty and nil are the same.
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
// The error wraps ErrResultTooLarge or ErrInvalidResult.
func (r Result) Validate(maxData int) error {
	if len(r.Data) > maxData {
		return fmt.Errorf("%w: %d bytes, more than %d: store it elsewhere and keep a reference", ErrResultTooLarge,
			len(r.Data), maxData)
	}
	if len(r.Meta) > MaxMeta {
		return fmt.Errorf("%w: meta has %d bytes, more than %d", ErrResultTooLarge, len(r.Meta), MaxMeta)
	}
	if !utf8.ValidString(r.Meta) || strings.ContainsRune(r.Meta, 0) {
		return fmt.Errorf("%w: meta is not valid UTF-8 without NUL", ErrInvalidResult)
	}
	if p := textcheck.Problem(r.ContentType, 127, false); p != "" {
		return fmt.Errorf("%w: content type %s", ErrInvalidResult, p)
	}
	return nil
}
