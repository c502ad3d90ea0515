package bunoutbox

import (
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// parsed is the result of reading the text of a statement. Bun does not show how a query was built.
// If its models and the database do not tell something either, it is read from the text. A
// statement that was not understood is never taken for a harmless one.
type parsed struct {
	understood bool
	verb       string // INSERT, REPLACE, UPDATE or DELETE
	with       string // the text before the verb
	target     string // the table, with its alias
	others     bool   // other tables take part
	set        []assignment
	where      string
	limited    bool // by ORDER BY or LIMIT
	returning  columns
	rows       insertRows
}

// assignment is one assignment of SET.
type assignment struct{ column, value string }

// columns are the columns of RETURNING.
type columns struct {
	any   bool // there is a RETURNING
	all   bool
	names map[string]bool
	odd   bool // it has something else than columns
}

func (c columns) has(name string) bool { return c.all || c.names[name] }

// insertRows says which rows an INSERT writes.
type insertRows struct {
	values  bool     // it has a list of VALUES
	upsert  bool     // it does not fail on rows that are there already
	skips   bool     // it skips rows that are there already
	targets []string // the columns of ON CONFLICT (...)
}

func parse(query string, d core.Dialect) parsed {
	query, ok := withoutComment(query)
	if !ok {
		return parsed{}
	}
	tokens, ok := lex(query, d)
	if !ok {
		return parsed{}
	}
	p := parsed{understood: true}
	at := 0
	if is(tokens, "WITH") {
		at = find(tokens, "INSERT", "REPLACE", "UPDATE", "DELETE")
	}
	if at >= len(tokens) || tokens[at].kind != wordToken {
		return parsed{}
	}
	p.with = query[:tokens[at].from]
	p.verb = tokens[at].word
	tokens = tokens[at+1:]
	switch p.verb {
	case "INSERT", "REPLACE":
		p.insert(query, tokens)
	case "UPDATE":
		p.update(query, tokens)
	case "DELETE":
		p.delete(query, tokens)
	default:
		return parsed{}
	}
	return p
}

// withoutComment removes the comment that Bun puts at the start.
func withoutComment(query string) (string, bool) {
	query = strings.TrimLeft(query, " ")
	if !strings.HasPrefix(query, "/*") {
		return query, true
	}
	comment, rest, ok := strings.Cut(query[2:], "*/")
	if !ok || strings.Contains(comment, "/*") || strings.HasPrefix(comment, "!") || strings.HasPrefix(comment, "M!") {
		return "", false
	}
	return strings.TrimLeft(rest, " "), true
}

func (p *parsed) insert(query string, tokens []token) {
	if is(tokens, "IGNORE") {
		p.rows.upsert, p.rows.skips = true, true
		tokens = tokens[1:]
	}
	p.rows.upsert = p.rows.upsert || p.verb == "REPLACE"
	if !is(tokens, "INTO") {
		p.understood = false
		return
	}
	tokens = tokens[1:]
	values := find(tokens, "VALUES", "SELECT", "DEFAULT")
	p.rows.values = values < len(tokens) && tokens[values].word == "VALUES"
	head := tokens[:values]
	if n := len(head); n > 0 && head[n-1].kind == groupToken {
		head = head[:n-1] // the end is the list of columns
	}
	p.target = textOf(query, head)
	rest := tokens[values:]
	p.returns(query, rest)
	on := find(rest, "ON")
	if on == len(rest) {
		return
	}
	p.rows.upsert = true
	rest = rest[on+1:]
	if do := find(rest, "DO"); is(rest, "CONFLICT") && do < len(rest) {
		p.rows.skips = is(rest[do:], "DO", "NOTHING")
		if len(rest) > 1 && rest[1].kind == groupToken {
			p.rows.targets = names(query[rest[1].from+1 : rest[1].to-1])
		}
		if is(rest[do:], "DO", "UPDATE") {
			return
		}
	}
	if !p.rows.skips && !is(rest, "DUPLICATE", "KEY", "UPDATE") {
		p.understood = false
	}
}

// names returns the columns of a list, or nil when the list has something else than columns.
func names(list string) []string {
	tokens, ok := lex(list, core.Postgres)
	if !ok {
		return nil
	}
	var all []string
	for _, part := range split(tokens, ",") {
		if len(part) != 1 || part[0].kind > nameToken {
			return nil
		}
		all = append(all, nameOf(list, part[0]))
	}
	return all
}

// nameOf returns the name that the token has.
func nameOf(text string, t token) string {
	if t.kind == nameToken {
		return t.word
	}
	return text[t.from:t.to]
}

func (p *parsed) update(query string, tokens []token) {
	set := find(tokens, "SET")
	p.table(query, tokens[:set])
	tokens = tokens[min(set+1, len(tokens)):]
	end := 0
	for ; end < len(tokens); end++ {
		if is(tokens[end:], "FROM") && (end == 0 || !is(tokens[end-1:], "DISTINCT")) {
			p.others = true
			break
		}
		if find(tokens[end:end+1], "WHERE", "RETURNING", "JOIN", "INNER", "LEFT", "RIGHT", "CROSS") == 0 {
			break
		}
	}
	for _, part := range split(tokens[:end], ",") {
		p.set = append(p.set, assignmentOf(query, part))
	}
	p.condition(query, tokens[end:])
}

// assignmentOf reads "column = value". A part that it does not understand has no column.
func assignmentOf(text string, tokens []token) assignment {
	for i, t := range tokens {
		if t.kind == signToken && t.word == "=" && i > 0 && tokens[i-1].kind <= nameToken {
			return assignment{nameOf(text, tokens[i-1]), strings.TrimSpace(textOf(text, tokens[i+1:]))}
		}
		if t.kind > nameToken && (t.kind != signToken || t.word != ".") {
			break
		}
	}
	return assignment{}
}

func (p *parsed) delete(query string, tokens []token) {
	if !is(tokens, "FROM") {
		p.understood = false
		return
	}
	tokens = tokens[1:]
	end := find(tokens, "USING", "WHERE", "RETURNING", "ORDER", "LIMIT")
	p.table(query, tokens[:end])
	p.condition(query, tokens[end:])
}

// table keeps the first table.
func (p *parsed) table(query string, tokens []token) {
	parts := split(tokens, ",")
	p.target = textOf(query, parts[0])
	p.others = p.others || len(parts) > 1
}

// condition reads the text from WHERE on. Text before WHERE means other tables.
func (p *parsed) condition(query string, tokens []token) {
	where := find(tokens, "WHERE")
	p.others = p.others || where > 0 && find(tokens[:where], "RETURNING", "ORDER", "LIMIT") > 0
	if where == len(tokens) {
		p.returns(query, tokens)
		return
	}
	tokens = tokens[where+1:]
	end := find(tokens, "ORDER", "LIMIT", "RETURNING", "WHERE")
	p.where = textOf(query, tokens[:end])
	if end < len(tokens) && tokens[end].word == "WHERE" {
		p.understood = false
	}
	p.limited = find(tokens[end:], "ORDER", "LIMIT") < len(tokens)-end
	p.returns(query, tokens[end:])
}

func (p *parsed) returns(query string, tokens []token) {
	at := find(tokens, "RETURNING")
	if at == len(tokens) {
		return
	}
	p.returning = columns{any: true, names: map[string]bool{}}
	for _, part := range split(tokens[at+1:], ",") {
		if len(part) == 3 && part[0].kind <= nameToken && part[1].word == "." {
			part = part[2:]
		}
		switch {
		case len(part) == 1 && part[0].kind == signToken && part[0].word == "*":
			p.returning.all = true
		case len(part) == 1 && part[0].kind <= nameToken:
			p.returning.names[nameOf(query, part[0])] = true
		default:
			p.returning.odd = true
		}
	}
}

// conjuncts returns the conditions that must all hold, without parentheses around them.
func conjuncts(condition string, d core.Dialect) []string {
	tokens, ok := lex(condition, d)
	if !ok || len(tokens) == 0 {
		return nil
	}
	if len(tokens) == 1 && tokens[0].kind == groupToken {
		return conjuncts(condition[tokens[0].from+1:tokens[0].to-1], d)
	}
	for _, t := range tokens {
		if t.kind == signToken && t.word == "||" {
			return []string{condition} // an OR on MySQL
		}
	}
	if find(tokens, "OR", "XOR", "BETWEEN", "CASE") < len(tokens) {
		return []string{condition}
	}
	var all []string
	for len(tokens) > 0 {
		and := find(tokens, "AND")
		switch part := tokens[:and]; {
		case len(part) == 1 && part[0].kind == groupToken:
			all = append(all, conjuncts(textOf(condition, part), d)...)
		default:
			all = append(all, textOf(condition, part))
		}
		tokens = tokens[min(and+1, len(tokens)):]
	}
	return all
}
