package outboxui

import (
	"fmt"
	"html/template"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// number writes a number with commas between its thousands. A Count has a plus if there may be
// more.
func number(n any) string {
	var text, plus string
	switch n := n.(type) {
	case ops.Count:
		text = strconv.Itoa(n.N)
		if n.More {
			plus = "+"
		}
	case float64:
		if n < 10 && n != float64(int(n)) {
			return strconv.FormatFloat(n, 'f', 1, 64)
		}
		text = strconv.FormatFloat(n, 'f', 0, 64)
	default:
		text = fmt.Sprint(n)
	}
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text + plus
}

// plural writes a number with its noun: "1 event", "1,200 events".
func plural(n int, noun string) string { return number(n) + " " + nouns(n, noun) }

func nouns(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// span writes a duration by its two largest units: "0.4 s", "13 min 53 s", "2 days 3 h".
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < 10*time.Millisecond:
		return "0.0 s"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return units(d, time.Minute, "min", time.Second, "s")
	case d < 48*time.Hour:
		return units(d, time.Hour, "h", time.Minute, "min")
	}
	return units(d, 24*time.Hour, "days", time.Hour, "h")
}

func units(d, large time.Duration, a string, small time.Duration, b string) string {
	text := fmt.Sprintf("%d %s", d/large, a)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, b)
	}
	return text
}

// clock writes a time, with its day if it is not today.
func clock(at, now time.Time, layout string) template.HTML {
	at = at.UTC()
	if y, m, d := now.UTC().Date(); !now.IsZero() && !sameDay(at, y, m, d) {
		layout = "2 Jan " + layout
		if at.Year() != y {
			layout = "2 Jan 2006"
		}
	}
	// Digits and names of months: nothing in it is of others.
	return template.HTML(`<time datetime="` + at.Format("2006-01-02T15:04:05.000Z") + `">` + //nolint:gosec // see above
		at.Format(layout) + `</time>`)
}

func sameDay(at time.Time, y int, m time.Month, d int) bool {
	year, month, day := at.Date()
	return year == y && month == m && day == d
}

// cut shortens a text of others and makes it Printable.
func cut(s string, most int) string {
	if s = ops.Printable(s); len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// packages are the names of packages before an error, which do not help a person.
var packages = regexp.MustCompile(`(^|: )(?:(?:outbox|core|ops|sqloutbox|outboxui): )+`)

// fields are the braces around the name of a field.
var fields = regexp.MustCompile(`\{([A-Za-z.]+)\}`)

// sentence makes an error a sentence for people.
func sentence(err error) string {
	text := fields.ReplaceAllString(packages.ReplaceAllString(err.Error(), "$1"), "$1")
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:]
	return cut(strings.TrimSuffix(text, "."), 600) + "."
}

// shellSafe is a word that a shell takes as it is.
var shellSafe = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// commandOf writes a command line. Words of others are quoted.
func commandOf(words ...string) string {
	line := make([]string, 0, len(words)+1)
	line = append(line, "outbox")
	for _, word := range words {
		if !shellSafe.MatchString(word) {
			word = "'" + strings.ReplaceAll(ops.Printable(word), "'", `'\''`) + "'"
		}
		line = append(line, word)
	}
	return strings.Join(line, " ")
}

// listed joins words: "a", "a and b", "a, b and c".
func listed(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// prose is a sentence of this project or of package ops: a part in backquotes is a command.
func prose(s string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(ops.Printable(s), "`") {
		part = template.HTMLEscapeString(part)
		if i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		b.WriteString(part)
	}
	return template.HTML(b.String()) //nolint:gosec // each part is escaped
}
