package sqloutbox

import (
	"strings"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

const maxPlain = 200

// diagnostic says how much of the texts for people (error text, error code, receipt) is written.
// They never prevent a mark. If the database refuses a text, because the character set of the
// connection or the width of the column does not allow it, the mark is written with less text.
type diagnostic uint8

const (
	diagnosticWhole diagnostic = iota // unchanged
	diagnosticPlain                   // a short text in ASCII
	diagnosticCode                    // only the code
	diagnosticNone
)

// text returns the part of a text for people that is stored, at most n bytes.
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

// code returns the part of an error code that is stored.
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

// group returns the part of the group of a failure that is stored.
func (d diagnostic) group(s string) string {
	if d == diagnosticNone {
		return ""
	}
	return plain(s, maxGroup)
}

// diagnosed calls write with less and less diagnostics until the database accepts them.
func diagnosed(write func(d diagnostic) error) (err error) {
	for d := diagnosticWhole; d <= diagnosticNone; d++ {
		if err = write(d); !sqlerr.RefusedValue(err) {
			return err
		}
	}
	return err
}

// plain keeps the characters that every character set has.
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
