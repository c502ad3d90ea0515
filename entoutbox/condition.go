package entoutbox

import (
	"fmt"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// bound returns an error when the update or delete of one entity may change other entities.
// Conditions that the program gave as text may have an OR. Ent joins the id to them by AND, which
// binds before OR. So rows without the id could match.
func (c *call) bound(query string) error {
	if c.tx == nil || c.byKeys || c.id == "" || !strings.HasPrefix(query, "UPDATE ") && !strings.HasPrefix(query,
		"DELETE ") {
		return nil
	}
	if !openOr(query, c.tx.driver.dialect) {
		return nil
	}
	return fmt.Errorf("%w: %s of %s has a condition with OR outside of parentheses, or one that is not understood, "+
		"so that it may change other rows: use sql.Or, or parentheses",
		core.ErrNoAggregateID, c.op, c.mutation.Type())
}

// openOr reports whether OR, or an operator of the same precedence, stands beside AND outside of
// parentheses. It also reports true if it cannot be sure, because of comments or quotes that do not
// end. Ent writes its own OR without an AND, or in parentheses.
func openOr(query string, d core.Dialect) bool {
	depth, and, or := 0, false, false
	for i := 0; i < len(query); i++ {
		switch c := query[i]; {
		case c == '\'' || c == '"' || c == '`':
			end := endOfQuoted(query[i:], d == core.MySQL ||
				d == core.Postgres && i > 0 && (query[i-1] == 'E' || query[i-1] == 'e'))
			if end < 0 {
				return true
			}
			i += end
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth < 0 {
				return true
			}
		case c == '$' && (i+1 == len(query) || query[i+1] < '0' || query[i+1] > '9'), c == '#' && d == core.MySQL,
			c == ';', strings.HasPrefix(query[i:], "--"), strings.HasPrefix(query[i:], "/*"):
			return true
		case d == core.MySQL && depth == 0 && strings.HasPrefix(query[i:], "||"):
			or = true
		case isLetter(c):
			from := i
			for i+1 < len(query) && isLetter(query[i+1]) {
				i++
			}
			if word := query[from : i+1]; depth == 0 {
				and = and || strings.EqualFold(word, "AND")
				or = or || strings.EqualFold(word, "OR") || strings.EqualFold(word, "XOR")
			}
		}
	}
	return depth != 0 || and && or
}

// endOfQuoted returns the end of the quoted text with which s begins. It is negative when the
// quotes do not end. A doubled quote ends one quoted text and begins another.
func endOfQuoted(s string, escapes bool) int {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && escapes:
			i++
		case s[i] == s[0]:
			return i
		}
	}
	return -1
}

func isLetter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}
