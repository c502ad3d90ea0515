package capture

import (
	"slices"

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

// toItself reports whether ON DUPLICATE KEY UPDATE sets one column to itself, the DO NOTHING of
// MySQL.
func toItself(text string, set []token) bool {
	if n := slices.IndexFunc(set, func(t token) bool { return t.kind == word && t.text == "RETURNING" }); n >= 0 {
		set = set[:n]
	}
	return len(set) == 3 && set[1].text == "=" &&
		bare(text[set[0].at:set[0].end]) == bare(text[set[2].at:set[2].end])
}

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
