package capture

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// tokenKind is the kind of a token of MySQL's SQL.
type tokenKind uint8

const (
	word  tokenKind = iota // a keyword or a bare name, in upper case
	param                  // ?
	open
	shut
	comma
	name   // a quoted name
	symbol // anything else: a literal, an operator
)

type token struct {
	kind     tokenKind
	text     string // words in upper case, others as they are
	at, end  int
	depth    int // parentheses around it
	argument int // parameters before it
}

var errText = errors.New("outbox: the text of the statement cannot be read")

// tokens splits a text. Comments are left out. After an error it returns the tokens before it.
func tokens(d core.Dialect, text string) (all []token, err error) {
	depth, params := 0, 0
	all = make([]token, 0, len(text)/4)
	for i := 0; i < len(text); {
		c, from := text[i], i
		t := token{kind: symbol, at: i, depth: depth, argument: params}
		switch {
		case c <= ' ':
			i++
			continue
		case c == '#' && d == core.MySQL,
			strings.HasPrefix(text[i:], "--") && (d != core.MySQL || i+2 == len(text) || text[i+2] <= ' '):
			if n := strings.IndexByte(text[i:], '\n'); n >= 0 {
				i += n
			} else {
				i = len(text)
			}
			continue
		case strings.HasPrefix(text[i:], "/*"):
			n := strings.Index(text[i+2:], "*/")
			if n < 0 || strings.HasPrefix(text[i:], "/*!") || strings.HasPrefix(text[i:], "/*M!") ||
				d == core.Postgres && strings.Contains(text[i+2:i+2+n], "/*") {
				return all, errText // some servers execute it, or nest it
			}
			i += n + 4
			continue
		case c == '\'' || c == '"' || c == '`' || c == '[' && d == core.SQLite:
			escapes := d == core.MySQL && c != '`' || d == core.Postgres && c == '\'' && i > 0 && text[i-1]|0x20 == 'e'
			if i = endOfQuoted(text, i, escapes); i < 0 {
				return all, errText
			}
			if c != '\'' && (c != '"' || d != core.MySQL) {
				t.kind = name
			}
		case c == '$' && d == core.Postgres && dollarQuoted.MatchString(text[i:]):
			tag := dollarQuoted.FindString(text[i:])
			n := strings.Index(text[i+len(tag):], tag)
			if n < 0 {
				return all, errText
			}
			i += n + 2*len(tag)
		case c == '?' && d != core.Postgres:
			t.kind = param
			params++
			i++
		case c == '(':
			t.kind = open
			depth++
			i++
		case c == ')':
			t.kind = shut
			depth--
			t.depth = depth
			i++
		case c == ',':
			t.kind = comma
			i++
		case inWord(c):
			for i < len(text) && inWord(text[i]) {
				i++
			}
			t.kind = word
		default:
			i++
		}
		t.end, t.text = i, text[from:i]
		if t.kind == word {
			t.text = strings.ToUpper(t.text)
		}
		all = append(all, t)
	}
	if depth != 0 {
		return all, errText
	}
	return all, nil
}

var dollarQuoted = regexp.MustCompile(`^\$([A-Za-z_]\w*)?\$`)

// hasReturning reports whether a statement has a RETURNING outside of subqueries.
func hasReturning(all []token) bool {
	return slices.ContainsFunc(all, func(t token) bool {
		return t.kind == word && t.depth == 0 && t.text == "RETURNING"
	})
}

// endOfQuoted returns the end of the literal or name that begins at i, -1 if it does not end.
func endOfQuoted(text string, i int, escapes bool) int {
	q := text[i]
	if q == '[' {
		q = ']'
	}
	for i++; i < len(text); i++ {
		switch {
		case text[i] == '\\' && escapes:
			i++
		case text[i] == q && i+1 < len(text) && text[i+1] == q:
			i++
		case text[i] == q:
			return i + 1
		}
	}
	return -1
}

func inWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= '0' && c <= '9' || c == '$' || c >= 0x80
}

// piece is a part of a text with its arguments.
type piece struct {
	text string
	args []any
}

func (p piece) empty() bool { return strings.TrimSpace(p.text) == "" }

// change is an UPDATE or DELETE in its parts.
type change struct {
	with  piece            // the table expressions before it
	table piece            // with joined tables
	own   piece            // without them
	as    string           // the name of the table, if others are joined
	head  piece            // up to WHERE
	where piece            // without the word WHERE
	tail  piece            // ORDER BY and LIMIT
	sets  map[string]piece // the assignments of an UPDATE, by their columns
}

// parseChange splits an UPDATE or a DELETE FROM.
func parseChange(op core.Op, text string, args []any) (c change, err error) {
	text = strings.TrimRight(strings.TrimSpace(text), ";")
	all, err := tokens(core.MySQL, text)
	if err != nil {
		return c, err
	}
	cut := func(from, to token) piece {
		return piece{text[from.at:to.at], args[from.argument:to.argument]}
	}
	end := token{at: len(text), argument: len(args)}
	if n := countParams(all); n != len(args) {
		return c, fmt.Errorf("%w: it has %d parameters and %d arguments", errText, n, len(args))
	}
	find := func(from int, words ...string) (int, token) {
		for i := from; i < len(all); i++ {
			if all[i].kind == word && all[i].depth == 0 {
				if slices.Contains(words, all[i].text) {
					return i, all[i]
				}
			}
		}
		return len(all), end
	}
	joined, update := withNames(all)
	if len(all) == update {
		return c, errText
	}
	c.with = cut(all[0], all[update])
	all = all[update:]
	_, where := find(0, "WHERE")
	_, tail := find(0, "ORDER", "LIMIT")
	if where.at > tail.at {
		where = tail
	}
	first := 1
	if all[0].text == "DELETE" {
		from, _ := find(0, "FROM")
		first = from + 1
	} else if all[0].text != "UPDATE" {
		return c, fmt.Errorf("%w: it begins with %s", errText, all[0].text)
	}
	for first < len(all) && slices.Contains([]string{"IGNORE", "LOW_PRIORITY"}, all[first].text) {
		first++
	}
	if first >= len(all) {
		return c, errText
	}
	after := where
	if all[0].text == "UPDATE" {
		at, set := find(first, "SET")
		if at == len(all) {
			return c, errText
		}
		after = set
		if where.at < set.at {
			return c, errText
		}
		if c.sets, err = assignments(all[at+1:], text, args, where); err != nil {
			return c, err
		}
	}
	if after.at < all[first].at || tail.at < after.at {
		return c, errText
	}
	c.table = cut(all[first], after)
	c.own = c.table
	for i, t := range all[first:] {
		if t.at >= after.at {
			break
		}
		// A table expression cannot be updated, so the changed rows are the first table's.
		next := first + i + 1
		known := t.kind == comma && c.sets != nil && next < len(all) &&
			slices.Contains(joined, bare(text[all[next].at:all[next].end]))
		if t.kind == open || t.text == "JOIN" || t.kind == comma && !known {
			return c, errors.New("outbox: the statement has several tables and does not name the one that it changes")
		}
		if t.kind == comma && c.as == "" {
			c.own, c.as = cut(all[first], t), text[all[next-2].at:all[next-2].end]
		}
	}
	c.head = piece{text[:where.at], args[:where.argument]}
	if where != tail {
		c.where = cut(token{at: where.end, argument: where.argument}, tail)
	}
	c.tail = cut(tail, end)
	return c, nil
}

// withNames returns the names of the table expressions before a statement, and where it begins.
func withNames(all []token) (names []string, verb int) {
	if len(all) == 0 || all[0].text != "WITH" {
		return nil, 0
	}
	for i, t := range all {
		switch {
		case t.depth > 0:
		case t.text == "WITH" || t.kind == comma || t.text == "RECURSIVE":
			if i+1 < len(all) {
				names = append(names, strings.ToLower(strings.Trim(all[i+1].text, "`")))
			}
		case t.kind == word && (t.text == "UPDATE" || t.text == "DELETE"):
			return names, i
		}
	}
	return names, len(all)
}

// countParams returns the number of parameters: of ?, or the highest of $1, $2.
func countParams(all []token) int {
	n := 0
	for _, t := range all {
		switch {
		case t.kind == param:
			n++
		case t.kind == word && t.text[0] == '$':
			if no, err := strconv.Atoi(t.text[1:]); err == nil {
				n = max(n, no)
			}
		}
	}
	return n
}

// assignments returns the expressions of a SET list by the names of their columns in lower case.
func assignments(all []token, text string, args []any, end token) (map[string]piece, error) {
	sets := map[string]piece{}
	for i := 0; i < len(all) && all[i].at < end.at; {
		column := all[i]
		j := i + 1
		for j < len(all) && all[j].text != "=" && all[j].at < end.at {
			column = all[j] // qualified: the last name counts
			j++
		}
		if j+1 >= len(all) || all[j].at >= end.at {
			return nil, errText
		}
		from := all[j+1]
		for j++; j < len(all) && all[j].at < end.at && (all[j].kind != comma || all[j].depth > 0); {
			j++
		}
		to := end
		if j < len(all) && all[j].at < end.at {
			to = all[j]
		}
		sets[bare(text[column.at:column.end])] = piece{text[from.at:to.at], args[from.argument:to.argument]}
		i = j + 1
	}
	return sets, nil
}

// twice makes a condition fit to be read before the statement by a SELECT that locks. A subquery
// must lock too: otherwise it would read the snapshot, and the statement, which reads the latest
// rows, would change other rows.
func twice(p piece) (piece, error) {
	all, err := tokens(core.MySQL, p.text)
	if err != nil {
		return p, err
	}
	var insert []int
	for i, t := range all {
		if t.kind != word {
			continue
		}
		call := i+1 < len(all) && all[i+1].kind == open
		switch t.text {
		case "RAND", "UUID", "UUID_SHORT", "SYSDATE", "UUID_V4", "UUID_V7", "RANDOM_BYTES":
			if call {
				return p, fmt.Errorf("outbox: the condition calls %s(), whose result differs each time", t.text)
			}
		case "UNION", "INTERSECT", "EXCEPT", "LOCK", "FOR":
			if t.depth > 0 {
				return p, fmt.Errorf("outbox: the condition has a subquery with %s", t.text)
			}
		case "SELECT":
			if i == 0 || all[i-1].kind != open {
				return p, errText
			}
			for _, u := range all[i:] {
				if u.kind == shut && u.depth == t.depth-1 {
					insert = append(insert, u.at)
					break
				}
			}
		}
	}
	slices.Sort(insert)
	for _, at := range slices.Backward(insert) {
		p.text = p.text[:at] + lockInShare + p.text[at:]
	}
	return p, nil
}

const lockInShare = "\nLOCK IN SHARE MODE"

// readText fills in from the text the fields that the adapter left open.
func (c *Capture) readText(text string, all []token) {
	verb := slices.IndexFunc(all, func(t token) bool {
		return t.kind == word && t.depth == 0 &&
			(t.text == "INSERT" || t.text == "REPLACE" || t.text == "UPDATE" || t.text == "DELETE")
	})
	if verb < 0 {
		return
	}
	switch all = all[verb:]; all[0].text {
	case "INSERT":
		c.st.Op, c.st.DoNothing = insertSays(c.tx.Dialect(), text, all)
	case "REPLACE":
		c.st.Op = core.OpUpsert
	default:
		if c.tx.Dialect() == core.Postgres { // UPDATE ... FROM may have the names twice
			c.qualify(target(text, all))
		}
	}
}

// insertSays returns the treatment of existing rows by an INSERT.
func insertSays(d core.Dialect, text string, all []token) (op core.Op, doNothing bool) {
	if len(all) > 1 && all[1].text == "IGNORE" {
		return core.OpCreate, true
	}
	op = core.OpCreate
	for i, t := range all {
		switch {
		case t.kind != word || t.depth > 0 || i == 0:
		case t.text == "NOTHING" && all[i-1].text == "DO":
			doNothing = true
		case t.text == "UPDATE" && (all[i-1].text == "DO" || all[i-1].text == "KEY"):
			if d == core.MySQL && toItself(text, all[i+1:]) {
				return core.OpCreate, true
			}
			op = core.OpUpsert
		}
	}
	return op, doNothing && op == core.OpCreate
}

// toItself reports whether ON DUPLICATE KEY UPDATE sets columns to themselves, the DO NOTHING of
// MySQL. Ent does that, and asks for the id of the row.
func toItself(text string, set []token) bool {
	end := token{at: len(text), argument: len(text)}
	if n := slices.IndexFunc(set, func(t token) bool { return t.kind == word && t.text == "RETURNING" }); n >= 0 {
		end = set[n]
	}
	sets, err := assignments(set, text, make([]any, len(text)), end)
	for column, to := range sets {
		value := strings.TrimSpace(to.text)
		value = strings.TrimSuffix(strings.TrimPrefix(value, "LAST_INSERT_ID("), ")")
		if column != bare(value[strings.LastIndexByte(value, '.')+1:]) {
			return false
		}
	}
	return err == nil && len(sets) > 0
}

// Write describes a statement that changes rows, by its text.
type Write struct {
	Verb  string // INSERT, UPDATE or DELETE; else the first word of a statement that contains one
	Table string // with its schema, without quotes
	Rows  int    // after VALUES; 1 if there is no list of rows
}

// ReadWrite reads the text of a statement. ok is false if it changes no rows.
func ReadWrite(d core.Dialect, text string) (w Write, ok bool) {
	all, err := tokens(d, text)
	for err != nil && len(all) == 0 { // a comment before it that some servers execute, or nest
		if _, text, ok = strings.Cut(text, "*/"); !ok {
			return w, false
		}
		all, err = tokens(d, text)
	}
	at := slices.IndexFunc(all, func(t token) bool { return t.kind == word && slices.Contains(writes, t.text) })
	if at < 0 || all[0].text == "SELECT" {
		return w, false
	}
	w.Verb = all[0].text
	for at++; at < len(all) && all[at].kind == word && slices.Contains(beforeTable, all[at].text); at++ {
	}
	for dot := true; at < len(all) && dot; at++ {
		part := text[all[at].at:all[at].end]
		if all[at].kind == name {
			part = part[1 : len(part)-1]
		}
		w.Table += part
		dot = part == "." || at+1 < len(all) && all[at+1].text == "."
	}
	values := slices.IndexFunc(all, func(t token) bool { return t.kind == word && t.depth == 0 && t.text == "VALUES" })
	for i := values + 1; values >= 0 && i < len(all); i++ {
		switch t := all[i]; {
		case t.depth > 0 || t.kind == shut || t.kind == comma:
		case t.kind == open:
			w.Rows++
		default: // the text after the list
			i = len(all)
		}
	}
	w.Rows = max(w.Rows, 1)
	return w, w.Table != ""
}

var (
	writes      = []string{"INSERT", "UPDATE", "DELETE"}
	beforeTable = []string{"INTO", "FROM", "ONLY", "IGNORE", "LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "QUICK"}
)

// target is the name by which an UPDATE or a DELETE calls its table.
func target(text string, all []token) string {
	last := ""
	for i, t := range all[1:] {
		switch {
		case t.kind == word && (t.text == "FROM" && i == 0 || t.text == "ONLY" || t.text == "AS"):
		case t.kind == symbol && t.text == "." || t.text == "*":
		case t.kind == word && slices.Contains(afterTarget, t.text), t.kind != word && t.kind != name:
			return last
		default:
			last = text[t.at:t.end]
		}
	}
	return last
}

var afterTarget = []string{"SET", "WHERE", "USING", "RETURNING", "FROM"}
