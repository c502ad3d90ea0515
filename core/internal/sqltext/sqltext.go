// Package sqltext reads from the text of a statement how it can affect its transaction. Only a text
// that is known to be harmless is Harmless. A text that the package does not know, or that has two
// readings, is not.
package sqltext

import "strings"

// Dialect is the SQL dialect of a text.
type Dialect uint8

// Dialects. Other is any other database.
const (
	Other Dialect = iota
	Postgres
	MySQL // and MariaDB
	SQLite
)

// Kind is the possible effect of a text on its transaction.
type Kind uint8

// Kinds of texts.
const (
	// Harmless texts neither end the transaction nor touch its savepoints, except by failing.
	Harmless Kind = iota
	// Empty texts are whitespace and comments.
	Empty
	// Savepoint, Release and RollbackTo are one statement each, with a name.
	Savepoint
	Release
	RollbackTo
	// End is one statement that ends the transaction, or commits it before it runs.
	End
	// Opaque texts may do anything: CALL on MySQL, and every statement that this package does not
	// know.
	Opaque
	// Hidden texts are several statements, with transaction control among them. Drivers differ in
	// how many of them they run.
	Hidden
)

// Name is the name of a savepoint. The same spelling is the same name on every database. Two
// spellings may be the same name on one database and not on another.
type Name struct {
	// lower case, without quotes, of limited length, as in the database with the fewest
	// distinctions
	Folded  string
	Spelled string // as it was written
}

// Read returns the possible effect of a text on the transaction it runs in. The usual statements
// cost no allocation.
func Read(d Dialect, text string) (Kind, Name) {
	l := lexer{d: d, text: text}
	k, name := l.statement()
	if l.doubt {
		return l.conditional(), Name{}
	}
	switch rest := text[l.pos:]; {
	case single(rest):
		return k, name
	default:
		return several(d, text), Name{}
	}
}

// single reports whether no other statement can begin in the rest of a text, for any reading of its
// literals.
func single(rest string) bool {
	i := strings.IndexByte(rest, ';')
	if i < 0 {
		return true
	}
	for ; i < len(rest); i++ {
		if rest[i] != ';' && !space(rest[i]) {
			return false
		}
	}
	return true
}

// several judges a text that may be more than one statement. The meaning of a backslash in a
// literal depends on settings of the session. If the unusual meaning would make another statement
// of the text, the kind is not known.
func several(d Dialect, text string) Kind {
	if d == MySQL && (strings.Contains(text, "/*!") || strings.Contains(text, "/*M!")) {
		return Hidden
	}
	k := split(d, text, d == MySQL)
	if k <= Empty && (d == MySQL || d == Postgres) && strings.IndexByte(text, '\\') >= 0 &&
		split(d, text, d != MySQL) > Empty {
		return Opaque
	}
	return k
}

// split judges each statement of the text.
func split(d Dialect, text string, escapes bool) Kind {
	found, total, control := 0, Empty, false
	for rest := text; rest != ""; {
		end, terminated := statementEnd(d, rest, escapes)
		l := lexer{d: d, text: rest[:end]}
		k, _ := l.statement()
		if (!terminated || l.doubt) && k <= Empty {
			k = Opaque
		}
		if k != Empty {
			found++
			total = worse(total, k)
			control = control || k > Empty && k != Opaque
		}
		rest = rest[min(end+1, len(rest)):]
	}
	if control && (found > 1 || total < End) {
		return Hidden
	}
	return total
}

// worse returns the less harmless of two kinds.
func worse(a, b Kind) Kind {
	switch {
	case a == Empty:
		return b
	case b == Empty:
		return a
	}
	return max(a, b)
}

// lexer reads the beginning of one statement.
type lexer struct {
	d     Dialect
	text  string
	pos   int
	doubt bool // the lexer went into a comment that some servers execute
	open  int  // where the first of them opens
	wrong bool // the lexer met a text that it cannot read
}

// conditional judges a text with a comment that some servers execute. It is harmless only if both
// readings are.
func (l *lexer) conditional() Kind {
	const most = 4 // each comment is read in two ways, so the number of readings doubles
	if strings.Count(l.text, "/*!")+strings.Count(l.text, "/*M!") > most {
		return Hidden
	}
	before, body := l.text[:l.open], l.text[l.open:]
	body = body[strings.IndexByte(body, '!')+1:]
	inside, after, closed := strings.Cut(strings.TrimLeft(body, "0123456789"), "*/")
	if !closed || strings.Contains(inside, "/*") || strings.Contains(inside, "--") ||
		strings.ContainsAny(inside, "'\"`#\\") {
		return Hidden
	}
	executed, _ := Read(l.d, before+" "+inside+" "+after)
	skipped, _ := Read(l.d, before+" "+after)
	switch k := worse(executed, skipped); {
	case k <= Empty:
		return Harmless
	case k == End:
		return Opaque
	case k == Opaque:
		return k
	}
	return Hidden
}

// skip passes whitespace, comments and empty statements.
func (l *lexer) skip() {
	for {
		l.gap()
		if l.wrong || l.pos == len(l.text) || l.text[l.pos] != ';' {
			return
		}
		l.pos++
	}
}

// gap passes whitespace and comments.
func (l *lexer) gap() {
	for l.pos < len(l.text) {
		n, conditional, ok := blank(l.d, l.text[l.pos:])
		if conditional && !l.doubt {
			l.doubt, l.open = true, l.pos
		}
		if !ok {
			l.wrong = true
			return
		}
		if n == 0 {
			return
		}
		l.pos += n
	}
}

// keyword is a word in upper case. It is empty if there is no word, or a word that is longer than
// any keyword.
type keyword struct {
	b [16]byte
	n int
}

func (k *keyword) is(s string) bool { return string(k.b[:k.n]) == s }

// word reads a word. It reads nothing if no word follows.
func (l *lexer) word() (k keyword) {
	l.gap()
	from := l.pos
	for l.pos < len(l.text) && inWord(l.text[l.pos]) {
		l.pos++
	}
	w := l.text[from:l.pos]
	if len(w) > len(k.b) {
		return k
	}
	for i := range len(w) {
		c := w[i]
		if c >= 'a' && c <= 'z' {
			c &^= 0x20
		}
		k.b[i] = c
	}
	k.n = len(w)
	return k
}

// peek is word without passing it.
func (l *lexer) peek() keyword {
	at := *l
	return at.word()
}

func inWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= '0' && c <= '9' || c == '$' || c >= 0x80
}
