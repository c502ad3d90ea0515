package cloudevents

import (
	"errors"
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
	s = unquote(strings.Trim(s, " \t"))
	if strings.IndexByte(s, '%') < 0 {
		if !utf8.ValidString(s) {
			return "", errEncoding
		}
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", errEncoding
		}
		high, low := unhex(s[i+1]), unhex(s[i+2])
		if high > 15 || low > 15 {
			return "", errEncoding
		}
		b = append(b, high<<4|low)
		i += 2
	}
	if !utf8.Valid(b) {
		return "", errEncoding
	}
	return string(b), nil
}

// unquote returns the content of a quoted string of RFC 7230, or s if it is none.
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

// unhex returns the value of a hexadecimal digit, or 255.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}
