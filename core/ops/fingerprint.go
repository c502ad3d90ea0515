package ops

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

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

// Fingerprint names the failure of an event: a hash of its error code, topic, type, and the text of
// its error without numbers, ids and quoted texts. Events that failed alike have the same one. It
// is empty if the event has no error.
func (e *Event) Fingerprint() string {
	if e.ErrorCode == "" && e.Error == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{e.ErrorCode, e.Topic, e.Type, pattern(e.Error)}, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// pattern returns the text of an error without the parts that differ from event to event.
func pattern(text string) string {
	for _, v := range variable {
		text = v.part.ReplaceAllLiteralString(text, v.with)
	}
	return strings.Join(strings.Fields(text), " ")
}
