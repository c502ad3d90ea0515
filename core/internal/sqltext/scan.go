package sqltext

import "strings"

// blank returns how many bytes of white space, or of one comment, s begins with. For a comment that
// MySQL or MariaDB may execute, it returns the length of the opening. ok is false if a comment does
// not end.
func blank(d Dialect, s string) (n int, conditional, ok bool) {
	for n < len(s) && space(s[n]) {
		n++
	}
	if n > 0 || s == "" {
		return n, false, true
	}
	switch s[0] {
	case '-':
		return lineComment(d, s), false, true
	case '#':
		if d == MySQL {
			return untilAny(s, "\n"), false, true
		}
	case '/':
		return blockComment(d, s)
	case 0xEF:
		// SQLite skips it like a blank, at any place
		if d == SQLite && strings.HasPrefix(s, "\uFEFF") {
			return 3, false, true
		}
	}
	return 0, false, true
}

// space reports whether c is white space in any of the databases. In a database where c is no white
// space, c is an error.
func space(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func lineComment(d Dialect, s string) int {
	if len(s) < 2 || s[1] != '-' {
		return 0
	}
	switch d {
	case Postgres:
		return untilAny(s, "\n\r")
	case MySQL:
		if len(s) > 2 && s[2] > ' ' && s[2] != 0x7F { // two minus signs
			return 0
		}
	case SQLite, Other:
	}
	return untilAny(s, "\n")
}

func untilAny(s, ends string) int {
	if i := strings.IndexAny(s, ends); i >= 0 {
		return i + 1
	}
	return len(s)
}

func blockComment(d Dialect, s string) (n int, conditional, ok bool) {
	if len(s) < 2 || s[1] != '*' {
		return 0, false, true
	}
	if d == MySQL || d == Other {
		for _, open := range []string{"/*!", "/*M!"} {
			if strings.HasPrefix(s, open) {
				return len(open), true, true
			}
		}
	}
	depth := 1
	for i := 2; i+1 < len(s); i++ {
		switch {
		case s[i] == '*' && s[i+1] == '/':
			depth--
			i++
			if depth == 0 {
				return i + 1, false, true
			}
		case s[i] == '/' && s[i+1] == '*' && d == Postgres:
			depth++
			i++
		}
	}
	return len(s), false, d == SQLite // the end of the text ends the comment
}

// statementEnd returns where the first statement of s ends: at its semicolon, or at the end of s.
// terminated is false if a literal or comment in it does not end. escapes: a backslash hides the
// next character of a literal.
func statementEnd(d Dialect, s string, escapes bool) (end int, terminated bool) {
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == ';':
			return i, true
		case c == '\'' || c == '"' || c == '`' && d != Postgres || c == '[' && d == SQLite:
			n := quoted(s[i:], hides(d, s, i, escapes))
			if n < 0 {
				return len(s), false
			}
			i += n
		case c == '$' && d == Postgres && (i == 0 || !inWord(s[i-1])):
			n := dollarQuoted(s[i:])
			if n < 0 {
				return len(s), false
			}
			i += n
		default:
			n, _, ok := blank(d, s[i:])
			if !ok {
				return len(s), false
			}
			i += max(n, 1)
		}
	}
	return len(s), true
}

// hides reports whether a backslash hides a character of the literal that begins at s[i].
func hides(d Dialect, s string, i int, escapes bool) bool {
	switch d {
	case Postgres:
		if s[i] != '\'' {
			return false
		}
		if i > 0 && s[i-1]|0x20 == 'e' && (i == 1 || !inWord(s[i-2])) {
			return true
		}
		return escapes
	case MySQL:
		return escapes && s[i] != '`'
	case SQLite, Other:
	}
	return false
}

// quoted returns the length of the literal or name that s begins with, or -1 if it does not end. A
// doubled quote ends one literal and begins another, which gives the same result.
func quoted(s string, escapes bool) int {
	q := s[0]
	if q == '[' {
		q = ']'
	}
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && escapes:
			i++
		case s[i] == q:
			return i + 1
		}
	}
	return -1
}

// dollarQuoted returns the length of the literal between dollars that s begins with, 1 if there is
// none, or -1 if it does not end.
func dollarQuoted(s string) int {
	n := 1
	for n < len(s) && s[n] != '$' {
		if !inWord(s[n]) || n == 1 && s[n] >= '0' && s[n] <= '9' {
			return 1
		}
		n++
	}
	if n == len(s) {
		return 1
	}
	tag := s[:n+1]
	i := strings.Index(s[n+1:], tag)
	if i < 0 {
		return -1
	}
	return n + 1 + i + len(tag)
}
