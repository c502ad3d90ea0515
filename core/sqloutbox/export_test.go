package sqloutbox

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// Texts returns every statement of a configuration by its name, for the golden files. A statement
// that is empty is an error.
func Texts(cfg Config, mariadb bool) (map[string]string, error) {
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	switch db := n.dialect.open(pool{}, n).(type) {
	case *postgres:
		addFields(texts, reflect.ValueOf(db.sql).Elem())
		texts["insert 2 rows"] = db.sql.insertText(2, 0)
		texts["insert 3 rows, 2 lanes"] = db.sql.insertText(3, 2)
	case *rowwise:
		addFields(texts, reflect.ValueOf(db.sql).Elem())
		statements := db.plain
		if mariadb {
			statements = db.guarded
		}
		for i, name := range []string{"1", "2"} {
			texts["insert "+name] = statements.events.text(i + 1)
			texts["key "+name] = statements.keys.text(i + 1)
			if statements.keyRead != nil {
				texts["key_read "+name] = statements.keyRead.text(i + 1)
			}
		}
		texts["topic_rows of 2"] = db.sql.topicRows.text(2)
	default:
		return nil, fmt.Errorf("the statements of a %T are not known here", db)
	}
	for name, text := range texts {
		if len(text) < len("SELECT 1") {
			return nil, fmt.Errorf("statement %s is missing", name)
		}
	}
	return texts, nil
}

// addFields adds the statements that are fields of a struct, under the names of the fields.
func addFields(texts map[string]string, statements reflect.Value) {
	for i := range statements.NumField() {
		f, name := statements.Field(i), snake(statements.Type().Field(i).Name)
		switch f.Type() {
		case reflect.TypeFor[string](), reflect.TypeFor[union]():
			texts[name] = f.String()
		case reflect.TypeFor[listed]():
			texts[name] = ""
			if after := f.FieldByName("after").String(); after != "" {
				texts[name] = f.FieldByName("before").String() + "{ids}" + after
			}
		}
	}
}

// snake writes undoFirst as undo_first.
func snake(field string) string {
	var b strings.Builder
	for _, r := range field {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// TextArray is how lists travel to PostgreSQL, Clean how diagnostics are made storable.
var (
	TextArray = textArray
	Clean     = clean
)
