package outboxtest

import (
	"database/sql/driver"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A database that stores nothing answers RETURNING from the VALUES of an INSERT.

var insertInto = regexp.MustCompile(`(?is)^\s*INSERT\s+(?:\w+\s+)*?INTO\s+\S+\s*\(([^)]*)\)\s*VALUES\s*`)

// returned is the answer to a statement with RETURNING. An UPDATE or DELETE returns no rows,
// because nothing is stored. number numbers the rows of an INSERT.
func returned(query string, args []driver.Value, number func(rows int64) int64) *answer {
	at := strings.LastIndex(query, "RETURNING")
	if at < 0 {
		return &answer{columns: []string{""}}
	}
	expressions := list(query[at+len("RETURNING"):])
	a := &answer{columns: make([]string, len(expressions))}
	for i, e := range expressions {
		a.columns[i] = columnName(e)
	}
	into := insertInto.FindStringSubmatchIndex(query)
	if into == nil {
		return a
	}
	columns := list(query[into[2]:into[3]])
	for i := range columns {
		columns[i] = columnName(columns[i])
	}
	key := generated(a.columns, columns)
	v := values{text: query[into[1]:at], args: args}
	tuples := v.tuples()
	first := number(int64(len(tuples)))
	for n, tuple := range tuples {
		row := make([]driver.Value, len(expressions))
		for i, name := range a.columns {
			switch c := slices.Index(columns, name); {
			case strings.HasPrefix(expressions[i], "CASE "):
				row[i] = ofModel(expressions[i], n, len(tuples))
			case c >= 0 && c < len(tuple) && tuple[c] != any(useDefault{}):
				row[i] = tuple[c]
			case name == key:
				row[i] = first + int64(n)
			}
		}
		a.rows = append(a.rows, row)
	}
	return a
}

// generated names the column that gets the number of a row: a key's column, which is not inserted.
func generated(returning, inserted []string) string {
	key := ""
	for _, name := range returning {
		if name == "id" {
			return name
		}
		if key == "" && !slices.Contains(inserted, name) {
			key = name
		}
	}
	return key
}

// ofModel answers which of the models that an adapter compares is the row: the one in its place.
func ofModel(expression string, row, rows int) string {
	models := strings.Count(expression, "CASE ")
	bits := []byte(strings.Repeat("0", models))
	if models == rows {
		bits[row] = '1'
	} else if rows == 1 {
		bits[0] = '1'
	}
	return string(bits)
}

func columnName(expression string) string {
	return strings.Trim(expression[strings.LastIndex(expression, ".")+1:], "\"`")
}

// list splits a text at its commas outside of quotes and parentheses.
func list(text string) []string {
	var parts []string
	depth, quote, from := 0, rune(0), 0
	for i, c := range text {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"' || c == '`':
			quote = c
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			parts = append(parts, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
	}
	return append(parts, strings.TrimSpace(text[from:]))
}

// useDefault is the value DEFAULT.
type useDefault struct{}

// values reads the rows of VALUES.
type values struct {
	text string
	args []driver.Value
	used int // arguments without a number
}

func (v *values) tuples() (all [][]any) {
	for _, tuple := range list(v.text) {
		end := strings.LastIndex(tuple, ")") // the last one is followed by ON CONFLICT
		if at := strings.Index(tuple, ") ON "); at >= 0 {
			end = at
		}
		if end < 1 || tuple[0] != '(' {
			break
		}
		row := list(tuple[1:end])
		parsed := make([]any, len(row))
		for i, text := range row {
			parsed[i] = v.value(text)
		}
		all = append(all, parsed)
		if end < len(tuple)-1 {
			break
		}
	}
	return all
}

func (v *values) value(text string) any {
	switch {
	case text == "?":
		v.used++
		return v.arg(v.used)
	case strings.HasPrefix(text, "$"):
		n, _ := strconv.Atoi(text[1:])
		return v.arg(n)
	case strings.EqualFold(text, "DEFAULT"):
		return useDefault{}
	case strings.EqualFold(text, "NULL"):
		return nil
	case strings.HasPrefix(text, "'"):
		return strings.ReplaceAll(strings.Trim(text, "'"), "''", "'")
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	return text
}

func (v *values) arg(n int) any {
	if n < 1 || n > len(v.args) {
		return nil
	}
	return v.args[n-1]
}
