package sqloutbox

import (
	"strings"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

const maxPlain = 200

// A diagnostic (error text, error code, receipt) never stands in the way of an outcome: where the
// database refuses a text, because the character set of the connection or the width of the column
// cannot take it, the outcome is written with less of it.
type diagnostic uint8

const (
	diagnosticWhole diagnostic = iota // as it is
	diagnosticPlain                   // a short text in ASCII
	diagnosticCode                    // only the code
	diagnosticNone
)

// text is what of a text for people is stored, in at most n bytes.
func (d diagnostic) text(s string, n int) string {
	switch d {
	case diagnosticWhole:
		return clean(s, n)
	case diagnosticPlain:
		return plain(s, min(n, maxPlain))
	case diagnosticCode, diagnosticNone:
	}
	return ""
}

// code is what of an error code is stored.
func (d diagnostic) code(s string) string {
	switch d {
	case diagnosticWhole:
		return clean(s, maxCode)
	case diagnosticPlain, diagnosticCode:
		return plain(s, maxCode)
	case diagnosticNone:
	}
	return ""
}

// diagnosed calls write with less and less of the diagnostics until the database takes them.
func diagnosed(write func(d diagnostic) error) (err error) {
	for d := diagnosticWhole; d <= diagnosticNone; d++ {
		if err = write(d); !sqlerr.RefusedValue(err) {
			return err
		}
	}
	return err
}

// plain keeps of a text what every character set has.
func plain(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), n)]
}

// clean makes a diagnostic text storable in UTF-8: valid, no NUL, at most n bytes.
func clean(s string, n int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
