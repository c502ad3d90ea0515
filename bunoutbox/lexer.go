package bunoutbox

import (
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// token is a part of a statement. Text in parentheses is one token, so that only text outside of
// parentheses can be taken for a clause of the statement.
type token struct {
	kind     tokenKind
	word     string // a word in capitals, a name without its quotes, or the sign of an operator
	from, to int    // its place in the text
}

type tokenKind uint8

const (
	wordToken tokenKind = iota // a keyword, a name or a number
	nameToken                  // in quotes
	textToken                  // a literal
	groupToken
	signToken
)

// lex splits text into tokens. It reports false for a text that it cannot split with certainty:
// unbalanced parentheses, quotes that do not end, comments, several statements.
func lex(text string, d core.Dialect) ([]token, bool) {
	l := lexer{text: text, dialect: d}
	return l.run()
}

type lexer struct {
	text    string
	dialect core.Dialect
	tokens  []token
	depth   int
	group   int // the place of the outermost open parenthesis
}

func (l *lexer) run() ([]token, bool) {
	for i := 0; i < len(l.text); {
		next, ok := l.next(i)
		if !ok {
			return nil, false
		}
		i = next
	}
	return l.tokens, l.depth == 0
}

func (l *lexer) next(i int) (int, bool) {
	c := l.text[i]
	switch {
	case c == ' ' || c == '\t' || c == '\n':
		return i + 1, true
	case c == '\'':
		return l.quoted(i, i, textToken, l.dialect == core.MySQL)
	case c == '"':
		if l.dialect == core.MySQL { // a literal on MySQL, unless ANSI_QUOTES is set
			return l.quoted(i, i, textToken, true)
		}
		return l.quoted(i, i, nameToken, false)
	case c == '`':
		return l.quoted(i, i, nameToken, false)
	case c == '(' || c == '[' && l.dialect != core.SQLite:
		if l.depth == 0 {
			l.group = i
		}
		l.depth++
		return i + 1, true
	case c == ')' || c == ']' && l.dialect != core.SQLite:
		if l.depth--; l.depth == 0 {
			l.add(groupToken, "", l.group, i+1)
		}
		return i + 1, l.depth >= 0
	case isWord(c):
		return l.word(i)
	case c == '[', c == ';', c == '$', c < ' ', c == '#' && l.dialect == core.MySQL,
		strings.HasPrefix(l.text[i:], "--"), strings.HasPrefix(l.text[i:], "/*"):
		return 0, false
	case strings.HasPrefix(l.text[i:], "||"):
		l.add(signToken, "||", i, i+2)
		return i + 2, true
	}
	l.add(signToken, string(c), i, i+1)
	return i + 1, true
}

func (l *lexer) add(kind tokenKind, word string, from, to int) {
	if l.depth == 0 {
		l.tokens = append(l.tokens, token{kind, word, from, to})
	}
}

// quoted reads from i to the end of a text in quotes. A doubled quote means one quote.
func (l *lexer) quoted(from, i int, kind tokenKind, escapes bool) (int, bool) {
	quote := l.text[i]
	for j := i + 1; j < len(l.text); j++ {
		switch {
		case l.text[j] == '\\' && escapes:
			j++
		case l.text[j] != quote:
		case j+1 < len(l.text) && l.text[j+1] == quote:
			j++
		default:
			l.add(kind, l.text[i+1:j], from, j+1)
			return j + 1, true
		}
	}
	return 0, false
}

func (l *lexer) word(i int) (int, bool) {
	j := i + 1
	for j < len(l.text) && (isWord(l.text[j]) || l.text[j] == '$') {
		j++
	}
	word := strings.ToUpper(l.text[i:j])
	if j < len(l.text) && l.text[j] == '\'' && word == "E" && l.dialect == core.Postgres {
		return l.quoted(i, j, textToken, true)
	}
	l.add(wordToken, word, i, j)
	return j, true
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}

// is reports whether the tokens begin with these words.
func is(tokens []token, words ...string) bool {
	if len(tokens) < len(words) {
		return false
	}
	for i, w := range words {
		if tokens[i].kind != wordToken || tokens[i].word != w {
			return false
		}
	}
	return true
}

// find returns the position of the first of these words, or the end if there is none.
func find(tokens []token, words ...string) int {
	for i := range tokens {
		for _, w := range words {
			if is(tokens[i:], w) {
				return i
			}
		}
	}
	return len(tokens)
}

// split cuts tokens at each of these signs.
func split(tokens []token, sign string) [][]token {
	var parts [][]token
	from := 0
	for i, t := range tokens {
		if t.kind == signToken && t.word == sign {
			parts = append(parts, tokens[from:i])
			from = i + 1
		}
	}
	return append(parts, tokens[from:])
}

// textOf returns the text from which tokens were read.
func textOf(text string, tokens []token) string {
	if len(tokens) == 0 {
		return ""
	}
	return text[tokens[0].from:tokens[len(tokens)-1].to]
}
