package pgxoutbox

import "strings"

// kind is a statement's possible effect on rows that wait on its connection.
type kind uint8

const (
	// harmless statements neither end the transaction, nor set savepoints, nor see the rows.
	harmless kind = iota
	// looking statements may see the rows, or fail because of them. They do not touch the
	// transaction, so later rows may wait again.
	looking
	// other statements may do anything to the transaction. That includes every text that judge does
	// not know.
	other
)

// judge returns the kind of a text. It lists harmless statements, not dangerous ones: a text that
// is judged too strictly costs a round trip, and one that is judged too mildly an event. Nothing
// may stand in front of the first word, because blanks and comments of the server are harder to
// recognise than it seems. extended: the text goes through the extended protocol, which refuses
// several statements in one text.
//
// names are texts in lower case, found in the names of the tables on which rows wait.
func judge(text string, extended bool, names []string) kind {
	pass, known := firstWord(text)
	switch {
	case !known, !extended && !single(text):
		return other
	case !pass, containsFold(text, "set_config"), containsFold(text, "pg_settings"),
		containsFold(text, `u&"`): // can spell any name
		return looking
	}
	for _, name := range names {
		if containsFold(text, name) {
			return looking
		}
	}
	return harmless
}

// firstWord looks up the word that text begins with. pass: a statement with it may be harmless.
func firstWord(text string) (pass, known bool) {
	n := 0
	for n < len(text) && n <= longestWord && (text[n]|0x20 >= 'a' && text[n]|0x20 <= 'z') {
		n++
	}
	if n > longestWord || n == len(text) || inWord(text[n]) { // a word alone may be the name of a prepared statement
		return false, false
	}
	var upper [longestWord]byte
	for i := range n {
		upper[i] = text[i] &^ 0x20
	}
	switch string(upper[:n]) {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "MERGE", "VALUES":
		return true, true
	case "SET", "RESET", "SHOW", "LOCK", "EXPLAIN", "DO", "CALL", "DECLARE", "FETCH", "MOVE", "CLOSE", "NOTIFY",
		"LISTEN", "UNLISTEN", "TRUNCATE", "CREATE", "ALTER", "DROP", "GRANT", "REVOKE", "COPY":
		return false, true
	}
	return false, false
}

const longestWord = 8 // the longest word of firstWord

// inWord reports whether c can continue a word.
func inWord(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

// single reports whether text has no semicolon, except at its end. A semicolon in a literal counts
// too.
func single(text string) bool {
	i := strings.IndexByte(text, ';')
	return i < 0 || strings.Trim(text[i:], "; \t\r\n") == ""
}

// containsFold reports whether text contains part, which is in lower case, in any case.
func containsFold(text, part string) bool {
	for i := 0; i+len(part) <= len(text); i++ {
		if text[i]|0x20 == part[0]|0x20 && strings.EqualFold(text[i:i+len(part)], part) {
			return true
		}
	}
	return false
}
