package cloudevents

import (
	"errors"
	"net/url"
	"strings"
	"unicode/utf8"
)

var errEncoding = errors.New("is not percent-encoded UTF-8")

// percentEncode encodes the value of a header of HTTP or NATS: blanks, double quotes, percent signs
// and all that is not printable ASCII.
func percentEncode(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c > ' ' && c <= '~' && c != '"' && c != '%' {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}

// percentDecode takes the quotes of an older producer away, and decodes the value once.
func percentDecode(s string) (string, error) {
	s, err := url.PathUnescape(unquote(strings.Trim(s, " \t")))
	if err != nil || !utf8.ValidString(s) {
		return "", errEncoding
	}
	return s, nil
}

// unquote returns the content of a quoted string of RFC 7230, or s if it is not quoted.
func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	var b strings.Builder
	for i := 1; i < len(s)-1; i++ {
		if s[i] == '\\' && i+1 < len(s)-1 {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
