package bunoutbox

import (
	"reflect"
	"slices"
	"strings"

	"github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/core"
)

// Bun does not show how a query was built, only its text. What is read from the text is Bun's own spelling; the literals in it,
// which are data, are blanked out before.

// blank replaces the contents of string literals, byte for byte, so that positions stay what they are.
func blank(query string, d core.Dialect) string {
	b := []byte(query)
	quoted := false
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == '\'': // a doubled quote leaves the literal and enters it again
			quoted = !quoted
		case quoted:
			if b[i] == '\\' && d == core.MySQL && i+1 < len(b) {
				b[i] = ' '
				i++
			}
			b[i] = ' '
		}
	}
	return string(b)
}

// insertKind tells what an INSERT does with rows that are there already.
func insertKind(query string, d core.Dialect) (op core.Op, skips bool) {
	text := strings.ToUpper(blank(query, d))
	ignore := strings.Contains(text, "INSERT IGNORE INTO ")
	switch {
	case strings.Contains(text, " DO NOTHING"), ignore:
		return core.OpUpsert, true
	case strings.Contains(text, " ON CONFLICT"), strings.Contains(text, " ON DUPLICATE KEY"), strings.Contains(text, "REPLACE INTO "):
		return core.OpUpsert, false
	}
	return core.OpCreate, false
}

// named reports whether an UPDATE or DELETE changes no rows but those that models name by their primary keys: it has WherePK, is a
// bulk update, or compares the key of its one model with what it is.
func (s *statement) named(gen schema.QueryGen, query string) bool {
	if len(s.models) == 0 || slices.Contains(s.keys, "") {
		return false
	}
	text := blank(query, s.ob.dialect)
	for _, condition := range s.wherePK(gen) {
		if at := lastCondition(query, text, condition); at >= 0 && ends(text[at+len(condition):]) {
			return true // Bun puts it last, behind an AND
		}
	}
	where := strings.LastIndex(text, " WHERE ")
	if where < 0 || strings.Contains(strings.ToUpper(text[where:]), " OR ") {
		return false
	}
	for _, condition := range s.whereKey(gen) {
		if lastCondition(query, text, condition) >= where {
			return true
		}
	}
	return false
}

// lastCondition returns where condition is in query as a part of its own that must hold, or -1. text is query without literals.
func lastCondition(query, text, condition string) int {
	at := strings.LastIndex(query, condition)
	if at < 0 || text[at] != condition[0] { // in a literal
		return -1
	}
	if !strings.HasSuffix(text[:at], " WHERE ") && !strings.HasSuffix(text[:at], " AND ") {
		return -1
	}
	return at
}

func ends(rest string) bool {
	for _, next := range []string{" ORDER BY ", " LIMIT ", " RETURNING "} {
		if strings.HasPrefix(rest, next) {
			return true
		}
	}
	return rest == ""
}

// wherePK returns how Bun writes WherePK for the models, with and without an alias.
func (s *statement) wherePK(gen schema.QueryGen) []string {
	pks := s.table.PKs
	conditions := make([]string, 0, 2)
	for _, prefix := range []string{string(s.table.SQLAlias) + ".", ""} {
		var b []byte
		if !s.slice {
			b = append(b, '(')
			for i, f := range pks {
				if i > 0 {
					b = append(b, " AND "...)
				}
				b = append(b, prefix+string(f.SQLName)+" = "...)
				b = f.AppendValue(gen, b, s.models[0].Elem())
			}
			conditions = append(conditions, string(append(b, ')')))
			continue
		}
		names := make([]string, 0, len(pks))
		for _, f := range pks {
			names = append(names, prefix+string(f.SQLName))
		}
		b = append(b, tuple(strings.Join(names, ", "), len(pks))+" IN ("...)
		for i, model := range s.models {
			if i > 0 {
				b = append(b, ", "...)
			}
			var values []byte
			for j, f := range pks {
				if j > 0 {
					values = append(values, ", "...)
				}
				values = f.AppendValue(gen, values, model.Elem())
			}
			b = append(b, tuple(string(values), len(pks))...)
		}
		conditions = append(conditions, string(append(b, ')')))
	}
	return conditions
}

func tuple(list string, n int) string {
	if n > 1 {
		return "(" + list + ")"
	}
	return list
}

// whereKey returns how a Where on the primary key may be written: that of a bulk update, and Where("id = ?", order.ID).
func (s *statement) whereKey(gen schema.QueryGen) []string {
	t := s.table
	var conditions []string
	for _, prefix := range []string{string(t.SQLAlias), string(t.SQLName)} {
		parts := make([]string, 0, len(t.PKs))
		for _, f := range t.PKs {
			parts = append(parts, prefix+"."+string(f.SQLName)+" = _data."+string(f.SQLName))
		}
		conditions = append(conditions, "("+strings.Join(parts, " AND ")+")")
	}
	if s.slice || len(t.PKs) != 1 {
		return conditions
	}
	f := t.PKs[0]
	value := f.AppendValue(gen, nil, s.models[0].Elem())
	for _, name := range []string{
		f.Name, string(f.SQLName), t.Alias + "." + f.Name, string(t.SQLAlias) + "." + string(f.SQLName),
		t.Name + "." + f.Name, string(t.SQLName) + "." + string(f.SQLName),
	} {
		conditions = append(conditions, "("+name+" = "+string(value)+")")
	}
	return conditions
}

// isSlice reports whether the value of a model is a slice of rows.
func isSlice(value any) bool {
	v := reflect.ValueOf(value)
	return v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Slice
}
