// Package textdiff describes the difference between two payloads, for people and for the audit.
package textdiff

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limit is how many bytes a difference has at most.
const Limit = 8 << 10

const (
	context  = 3   // equal lines that are shown around a change
	mostRows = 400 // lines of a changed part that are compared one by one
)

// Payloads returns the difference between two payloads: lines with "- " were removed, lines with "+
// " added, and lines with two spaces are equal. JSON is compared member by member. Of binary
// payloads it has only sizes and hashes. It is empty for equal payloads. A longer difference than
// Limit is cut, and ends with a line about that.
func Payloads(before, after []byte) string {
	if bytes.Equal(before, after) {
		return ""
	}
	if !readable(before) || !readable(after) {
		return "- " + about(before) + "\n+ " + about(after) + "\n"
	}
	old, now := indented(before), indented(after)
	if old == now { // JSON with other spaces
		old, now = string(before), string(after)
	}
	return Clip(lines(strings.Split(old, "\n"), strings.Split(now, "\n")))
}

// Clip cuts a difference after the last whole line within Limit.
func Clip(diff string) string {
	const cut = "… the rest of the difference is left out\n"
	if len(diff) <= Limit {
		return diff
	}
	head := diff[:Limit-len(cut)]
	if end := strings.LastIndexByte(head, '\n'); end >= 0 {
		return head[:end+1] + cut
	}
	return strings.ToValidUTF8(head[:len(head)-1], "") + "\n" + cut
}

func about(b []byte) string { return fmt.Sprintf("%d bytes, SHA-256 %x", len(b), sha256.Sum256(b)) }

// readable reports whether b is a text without control characters.
func readable(b []byte) bool {
	return utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r'
	})
}

// indented returns JSON with a line for each member, and its numbers as they are written. Other
// texts stay as they are.
func indented(b []byte) string {
	var out bytes.Buffer
	if json.Indent(&out, bytes.TrimSpace(b), "", "  ") != nil {
		return string(b)
	}
	return out.String()
}

// lines compares two texts line by line.
func lines(old, now []string) string {
	head := 0
	for head < min(len(old), len(now)) && old[head] == now[head] {
		head++
	}
	tail := 0
	for tail < min(len(old), len(now))-head && old[len(old)-1-tail] == now[len(now)-1-tail] {
		tail++
	}
	all := edits(old[head:len(old)-tail], now[head:len(now)-tail])
	var b strings.Builder
	for _, s := range old[max(0, head-context):head] {
		b.WriteString("  " + s + "\n")
	}
	for i, e := range all {
		if e[0] != ' ' || near(all, i) {
			b.WriteString(e + "\n")
		} else if i == 0 || near(all, i-1) || all[i-1][0] != ' ' {
			b.WriteString("  …\n")
		}
	}
	for _, s := range old[len(old)-tail : len(old)-max(0, tail-context)] {
		b.WriteString("  " + s + "\n")
	}
	return b.String()
}

// near reports whether a line is within context of a changed one.
func near(all []string, i int) bool {
	for _, e := range all[max(0, i-context):min(len(all), i+context+1)] {
		if e[0] != ' ' {
			return true
		}
	}
	return false
}

// edits are the lines of two texts, with their marks. They are the fewest changes, unless the texts
// are long.
func edits(old, now []string) (all []string) {
	if len(old) > mostRows || len(now) > mostRows {
		for _, s := range old {
			all = append(all, "- "+s)
		}
		for _, s := range now {
			all = append(all, "+ "+s)
		}
		return all
	}
	common := make([][]int, len(old)+1) // the longest common part of old[i:] and now[k:]
	for i := range common {
		common[i] = make([]int, len(now)+1)
	}
	for i := range slices.Backward(old) {
		for k := len(now) - 1; k >= 0; k-- {
			if common[i][k] = max(common[i+1][k], common[i][k+1]); old[i] == now[k] {
				common[i][k] = common[i+1][k+1] + 1
			}
		}
	}
	i, k := 0, 0
	for i < len(old) || k < len(now) {
		switch {
		case i < len(old) && k < len(now) && old[i] == now[k]:
			all = append(all, "  "+old[i])
			i, k = i+1, k+1
		case k == len(now) || i < len(old) && common[i+1][k] >= common[i][k+1]:
			all = append(all, "- "+old[i])
			i++
		default:
			all = append(all, "+ "+now[k])
			k++
		}
	}
	return all
}
