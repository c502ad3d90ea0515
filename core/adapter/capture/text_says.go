package capture

import (
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// readText takes from the text what the adapter has not said of the statement.
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

// insertSays says what an INSERT does with rows that exist.
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

// Write is what the text of a statement that changes rows says.
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
