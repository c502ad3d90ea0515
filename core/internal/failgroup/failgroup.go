// Package failgroup names the group of a failure, so that relays store the name that operators see.
package failgroup

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// Len is the length of a name.
const Len = 16

// variable are the parts of an error's text that differ from event to event, in the order in which
// they are taken out.
var variable = []struct {
	part *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "<id>"},
	{regexp.MustCompile(`"[^"]*"|'[^']*'|` + "`[^`]*`"), "<text>"},
	{regexp.MustCompile(`(?i)\b0x[0-9a-f]+\b`), "<id>"},
	{regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{26}\b`), "<id>"}, // a ULID
	{regexp.MustCompile(`(?i)\b[0-9a-f]*(?:[0-9][a-f]|[a-f][0-9])[0-9a-f]*\b`), "<id>"},
	{regexp.MustCompile(`[0-9]+`), "<n>"},
}

// Of returns a hash of the error code, topic and type of an event, and of the text of its error
// without numbers, ids and quoted texts: Len hexadecimal digits. It is empty if there is no error.
func Of(code, topic, typ, message string) string {
	if code == "" && message == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{code, topic, typ, Pattern(message)}, "\x00")))
	return hex.EncodeToString(sum[:Len/2])
}

// Pattern returns the text of an error without the parts that differ from event to event.
func Pattern(text string) string {
	for _, v := range variable {
		text = v.part.ReplaceAllLiteralString(text, v.with)
	}
	return strings.Join(strings.Fields(text), " ")
}
