package entoutbox

import (
	"regexp"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// write is a statement that changes rows. Generated code writes placeholders for data, so the text
// contains no data.
type write struct {
	verb  string // INSERT, UPDATE or DELETE; else the first word of a statement that contains one
	table string // without quotes
	text  string // from the verb on
}

// readWrite reads the begin of a statement. ok is false if it changes nothing.
func readWrite(query string) (w write, ok bool) {
	query = skipComments(query)
	first, rest := cutWord(query)
	w.verb, w.text = first, query
	switch first {
	case "SELECT":
		return w, false
	case "INSERT", "UPDATE", "DELETE":
	default:
		m := hidden.FindStringSubmatch(query)
		if m == nil {
			return w, false
		}
		w.table = tableAt(m[1])
		return w, w.table != ""
	}
	for {
		word, after := cutWord(rest)
		switch word {
		case "INTO", "FROM", "ONLY", "IGNORE", "LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "QUICK":
			rest = after
			continue
		}
		w.table = tableAt(rest)
		return w, w.table != ""
	}
}

// hidden finds a write in a statement that begins with another word, such as WITH.
var hidden = regexp.MustCompile("(?is)\\b(?:INSERT\\s+INTO|UPDATE|DELETE\\s+FROM)\\s+([\"`\\w].*)")

// skipComments returns a text without the comments and blanks at its begin.
func skipComments(text string) string {
	for {
		text = strings.TrimLeft(text, " \t\r\n")
		end := ""
		switch {
		case strings.HasPrefix(text, "/*"):
			end = "*/"
		case strings.HasPrefix(text, "--"), strings.HasPrefix(text, "#"):
			end = "\n"
		default:
			return text
		}
		_, after, ok := strings.Cut(text, end)
		if !ok {
			return ""
		}
		text = after
	}
}

// cutWord returns the first word, in upper case, and what follows. The word is empty if the text
// begins otherwise.
func cutWord(text string) (word, rest string) {
	text = skipComments(text)
	i := 0
	for i < len(text) && (text[i]|0x20 >= 'a' && text[i]|0x20 <= 'z' || text[i] == '_') {
		i++
	}
	return strings.ToUpper(text[:i]), text[i:]
}

// tableAt returns the name of a table at the begin of a text, without quotes.
func tableAt(text string) string {
	text = skipComments(text)
	var name strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' || c == '`':
			end := strings.IndexByte(text[i+1:], c)
			if end < 0 {
				return ""
			}
			name.WriteString(text[i+1 : i+1+end])
			i += end + 1
		case c == '.' || c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80:
			name.WriteByte(c)
		default:
			return name.String()
		}
	}
	return name.String()
}

// op is the operation of a statement. A create that passes over rows that exist is one too.
func (w write) op() (op core.Op, doNothing bool) {
	switch w.verb {
	case "UPDATE":
		return core.OpUpdate, false
	case "DELETE":
		return core.OpDelete, false
	}
	switch {
	case strings.Contains(w.text, " DO NOTHING"), setsItself(w.text):
		return core.OpCreate, true
	case strings.Contains(w.text, " ON CONFLICT"), strings.Contains(w.text, " ON DUPLICATE KEY"):
		return core.OpUpsert, false
	}
	return core.OpCreate, false
}

// setsItself reports whether an INSERT sets columns of existing rows to themselves. Ent writes
// DoNothing and Ignore in that way for MySQL and MariaDB, and asks for the id of the row.
func setsItself(text string) bool {
	_, assignments, ok := strings.Cut(text, " ON DUPLICATE KEY UPDATE ")
	if !ok {
		return false
	}
	for a := range strings.SplitSeq(assignments, ", ") {
		column, value, ok := strings.Cut(a, " = ")
		value = strings.TrimSuffix(strings.TrimPrefix(value, "LAST_INSERT_ID("), ")")
		if !ok || value != column && !strings.HasSuffix(value, "."+column) {
			return false
		}
	}
	return true
}

// rows counts the rows after VALUES. It is 1 when there is no list of rows.
func (w write) rows() int {
	rows, depth := 0, 0
	_, list, ok := strings.Cut(w.text, " VALUES ")
	for i := 0; ok && i < len(list); i++ {
		switch c := list[i]; {
		case c == '\'' || c == '"' || c == '`': // a doubled quote ends one text and begins another
			if end := strings.IndexByte(list[i+1:], c); end >= 0 {
				i += end + 1
			}
		case c == '(':
			if depth == 0 {
				rows++
			}
			depth++
		case c == ')':
			depth--
		case depth == 0 && c != ' ' && c != ',':
			ok = false // the text after the list
		}
	}
	return max(rows, 1)
}
