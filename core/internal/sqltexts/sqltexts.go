// Package sqltexts is for the tests of packages whose statements are fields of a struct.
package sqltexts

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

// Of returns every text in a struct, or in a pointer to one, under the name of its field: insertTx
// is insert_tx. The names of fields of a nested struct begin with the name of that field. The text
// of a function of a number is its text for 2. An empty text is an error, unless its field is named
// in optional.
func Of(statements any, optional ...string) (map[string]string, error) {
	texts := map[string]string{}
	if err := add(texts, "", reflect.Indirect(reflect.ValueOf(statements)), optional); err != nil {
		return nil, err
	}
	return texts, nil
}

func add(texts map[string]string, name string, v reflect.Value, optional []string) error {
	switch v.Kind() {
	case reflect.String:
		may := false
		for _, o := range optional {
			may = may || name == o
		}
		switch {
		case v.String() != "":
			texts[name] = v.String()
		case !may:
			return fmt.Errorf("statement %s is missing", name)
		}
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return fmt.Errorf("statement %s is missing", name)
		}
		return add(texts, name, v.Elem(), optional)
	case reflect.Func:
		if v.IsNil() {
			return fmt.Errorf("statement %s is missing", name)
		}
		if !v.CanAddr() {
			return nil
		}
		// without the mark of an unexported field
		f := reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem().Interface()
		if text, ok := f.(func(int) string); ok {
			texts[name+" of 2"] = text(2)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if err := add(texts, join(name, v.Type().Field(i).Name), v.Field(i), optional); err != nil {
				return err
			}
		}
	default: // no text
	}
	return nil
}

func join(name, field string) string {
	var b strings.Builder
	b.WriteString(name)
	for i, r := range field {
		if unicode.IsUpper(r) && b.Len() > 0 || i == 0 && name != "" {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// Files compares the statements and the migrations of a package of tables, on each database, with
// its golden files in testdata, or writes them if update is true. So a review shows each change of
// one. optional is for Of.
func Files(t *sqlstore.Tables, statements func(n sqlstore.Names) any, update bool, optional ...string) error {
	var problems []error
	for _, cfg := range []sqlstore.Config{
		{Dialect: core.Postgres, Schema: "app"}, {Dialect: core.MySQL, Prefix: "my_"}, {Dialect: core.SQLite},
	} {
		n, err := t.Names(cfg)
		if err != nil {
			return err
		}
		texts, err := Of(statements(n), optional...)
		if err != nil {
			return err
		}
		migrations, err := t.Migrations(cfg)
		if err != nil {
			return err
		}
		var b strings.Builder
		for i, m := range migrations {
			if m.Version != i+1 || m.Name == "" || m.Up == "" || m.Down == "" {
				problems = append(problems, fmt.Errorf("migration %d is %d %q", i, m.Version, m.Name))
			}
			fmt.Fprintf(&b, "-- %04d_%s\n%s\n-- down\n%s\n", m.Version, m.Name, m.Up, m.Down)
		}
		file := filepath.Join("testdata", string(cfg.Dialect))
		problems = append(problems, Golden(file+".statements.sql", Format(texts), update),
			Golden(file+".migrations.sql", b.String(), update))
	}
	return errors.Join(problems...)
}

// Format returns the texts, sorted by name, as a golden file has them.
func Format(texts map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		fmt.Fprintf(&b, "-- %s\n%s\n\n", name, texts[name])
	}
	return b.String()
}

// Golden compares got with the file at path, or writes the file if update is true. A word in braces
// that is left in got was not expanded, and is an error. {ids} and {whens} are filled in later.
func Golden(path, got string, update bool) error {
	rest := strings.NewReplacer("{ids}", "", "{whens}", "").Replace(got)
	if m := regexp.MustCompile(`\{[a-z_]+[:}]`).FindString(rest); m != "" {
		return fmt.Errorf("%s: %s is left in the text", path, m)
	}
	if update {
		return os.WriteFile(path, []byte(got), 0o644)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if got != string(want) {
		return fmt.Errorf("%s differs: look at the difference after `go test . -run Texts -update`", path)
	}
	return nil
}
