package outboxui

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

const (
	maxShown   = 256 << 10 // bytes of a payload that the page shows
	maxHexDump = 16 << 10  // bytes of a binary payload
)

// shown is the content of an event that a person has revealed.
type shown struct {
	Reason      string
	At          time.Time
	Payload     string
	Bytes       int // of the whole payload
	ContentType string
	Cut         bool // only the beginning is shown
	Hex         bool // it is no text
	Laid        bool // line breaks and blanks are the page's
	Redacted    bool // the redaction of the service has changed the payload
	Headers     []header
	Damage      string
}

type header struct {
	Name, Value string
	Hidden      bool // the redaction of the service took it away
}

// shown is what the person may see of the content.
func (v *visit) shown(e ops.Event, c ops.Content, reason string) *shown {
	seen := c
	if v.ui.cfg.Redact != nil {
		given := c
		given.Headers, given.Payload = maps.Clone(c.Headers), bytes.Clone(c.Payload)
		seen = v.ui.cfg.Redact(e, given)
	}
	s := &shown{
		Reason: reason, At: e.ReadAt, Bytes: len(c.Payload), ContentType: c.ContentType, Damage: c.Damage,
		Redacted: !bytes.Equal(seen.Payload, c.Payload),
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		value, kept := seen.Headers[name]
		s.Headers = append(s.Headers, header{name, value, !kept})
	}
	s.show(seen.Payload)
	return s
}

// show writes a payload: JSON with line breaks, other text as it is, and anything else in
// hexadecimal. Numbers keep their digits, because nothing is decoded.
func (s *shown) show(payload []byte) {
	if !utf8.Valid(payload) {
		s.Hex, s.Cut = true, len(payload) > maxHexDump
		s.Payload = hex.Dump(payload[:min(len(payload), maxHexDump)])
		return
	}
	var laid bytes.Buffer
	if len(payload) <= maxShown && json.Indent(&laid, payload, "", "  ") == nil {
		s.Laid = !bytes.Equal(laid.Bytes(), payload)
		payload = laid.Bytes()
	}
	if len(payload) > maxShown {
		payload, s.Cut = payload[:maxShown], true
		for !utf8.Valid(payload) {
			payload = payload[:len(payload)-1]
		}
	}
	lines := strings.Split(string(payload), "\n")
	for i, line := range lines {
		lines[i] = ops.Printable(strings.ReplaceAll(line, "\t", "    "))
	}
	s.Payload = strings.Join(lines, "\n")
}
