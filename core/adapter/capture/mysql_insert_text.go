package capture

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// insert is an INSERT in its parts.
type insert struct {
	table    string
	columns  []string  // in lower case
	values   [][]piece // of each row
	ignore   bool
	replace  bool
	onUpdate bool             // ON DUPLICATE KEY UPDATE
	sets     map[string]piece // its assignments
	end      piece            // the text up to the end of that, or of VALUES
	rest     piece            // RETURNING
}

// parseInsert reads INSERT INTO t (columns) VALUES (...), (...).
func parseInsert(text string, args []any) (in insert, err error) {
	all, err := tokens(core.MySQL, text)
	if err != nil {
		return in, err
	}
	if n := countParams(all); n != len(args) {
		return in, fmt.Errorf("%w: it has %d parameters and %d arguments", errText, n, len(args))
	}
	i := 0
	is := func(w string) bool {
		if i < len(all) && all[i].kind == word && all[i].text == w {
			i++
			return true
		}
		return false
	}
	if in.replace = is("REPLACE"); !in.replace && !is("INSERT") {
		return in, fmt.Errorf("%w: it is no INSERT", errText)
	}
	in.ignore = is("IGNORE")
	is("INTO")
	from := i
	for i < len(all) && all[i].kind != open && all[i].text != "VALUES" && all[i].text != "VALUE" {
		i++
	}
	if i == from || i == len(all) {
		return in, errText
	}
	in.table = text[all[from].at:all[i-1].end]
	if all[i].kind == open {
		for i++; i < len(all) && all[i].kind != shut; i++ {
			if all[i].kind != comma {
				in.columns = append(in.columns, bare(text[all[i].at:all[i].end]))
			}
		}
		i++
	}
	if !is("VALUES") && !is("VALUE") {
		return in, errors.New("outbox: it inserts the rows of a SELECT")
	}
	i = in.readValues(all, i, text, args)
	stop := token{at: len(text), argument: len(args)}
	on := len(all)
	for j := i; j < len(all); j++ {
		switch {
		case all[j].depth > 0 || all[j].kind != word:
		case all[j].text == "ON":
			on = j
		case all[j].text == "RETURNING":
			stop = all[j]
		}
	}
	if in.onUpdate = on+5 < len(all); in.onUpdate { // ON DUPLICATE KEY UPDATE
		if in.sets, err = assignments(all[on+4:], text, args, stop); err != nil {
			return in, err
		}
	}
	in.end = piece{text[:stop.at], args[:stop.argument]}
	in.rest = piece{text[stop.at:], args[stop.argument:]}
	return in, nil
}

// readValues reads the rows of VALUES from a token, and returns the token after them.
func (in *insert) readValues(all []token, i int, text string, args []any) int {
	for i < len(all) && all[i].kind == open {
		var values []piece
		depth, start := all[i].depth, all[i]
		start.at = start.end
		for i++; i < len(all); i++ {
			if all[i].depth == depth+1 && all[i].kind == comma || all[i].depth == depth && all[i].kind == shut {
				values = append(values, piece{text[start.at:all[i].at], args[start.argument:all[i].argument]})
				start = token{at: all[i].end, argument: all[i].argument}
				if all[i].kind == shut {
					break
				}
			}
		}
		in.values = append(in.values, values)
		if i++; i < len(all) && all[i].kind == comma {
			i++
		}
	}
	return i
}

// bare is a name without its quotes, in lower case.
func bare(name string) string { return strings.ToLower(strings.Trim(name, "`")) }

// of returns the values of some columns in each row of VALUES. A row without one of them, or with
// NULL, has nil.
func (in *insert) of(columns []string) (rows [][]any, err error) {
	rows = make([][]any, len(in.values))
	for i, values := range in.values {
		row := make([]any, len(columns))
		for k, column := range columns {
			if at := slices.Index(in.columns, bare(column)); at >= 0 && at < len(values) {
				if row[k], err = values[at].value(); err != nil {
					return nil, err
				}
			}
		}
		if !slices.Contains(row, nil) {
			rows[i] = row
		}
	}
	return rows, nil
}

// value is the value of one expression of VALUES, nil for DEFAULT and NULL.
func (p piece) value() (any, error) {
	text := strings.TrimSpace(p.text)
	switch {
	case text == "?" && len(p.args) == 1:
		v, err := driver.DefaultParameterConverter.ConvertValue(p.args[0])
		if err != nil {
			return p.args[0], nil //nolint:nilerr // the driver may know the type
		}
		return v, nil
	case strings.Contains(text, "(") || len(p.args) > 0:
		return nil, errors.New("outbox: a column of a key is an expression")
	case strings.EqualFold(text, "DEFAULT") || strings.EqualFold(text, "NULL") || text == "":
		return nil, nil
	}
	return Literal(text), nil
}

// findable says why the rows of an upsert would not be found by a unique key, or nil.
func (in *insert) findable(u unique) error {
	if !u.whole {
		return fmt.Errorf("the unique key %s is of prefixes or expressions", u.name)
	}
	rows, err := in.of(u.columns)
	if err != nil || slices.ContainsFunc(rows, func(r []any) bool { return r == nil }) {
		return fmt.Errorf("a row does not say its unique key %s", u.name)
	}
	for _, column := range u.columns {
		if set, ok := in.sets[column]; ok && !isValues(set.text, column) {
			return fmt.Errorf("it changes the unique key %s", u.name)
		}
	}
	return nil
}

// isValues reports whether an assignment is VALUES(column).
func isValues(text, column string) bool {
	all, err := tokens(core.MySQL, text)
	return err == nil && len(all) == 4 && all[0].text == "VALUES" && bare(text[all[2].at:all[2].end]) == column
}

// unique returns the values of a unique key in the only row of VALUES, nil if one is NULL, which
// finds nothing. known is false if they are not known, or the statement may have changed them.
func (in *insert) unique(u unique) (values []any, known bool) {
	for _, column := range u.columns {
		at := slices.Index(in.columns, column)
		value, text := any(nil), "DEFAULT"
		if at >= 0 {
			var err error
			if value, err = in.values[0][at].value(); err != nil {
				return nil, false
			}
			text = strings.TrimSpace(in.values[0][at].text)
		}
		set, changes := in.sets[column]
		switch {
		case !u.whole || changes && !isValues(set.text, column):
			return nil, false
		case value == nil && strings.EqualFold(text, "DEFAULT"):
			value = Literal("DEFAULT(`" + column + "`)")
		case value == nil:
			return nil, true
		}
		values = append(values, value)
	}
	return values, true
}
