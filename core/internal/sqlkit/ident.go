// Package sqlkit is shared by the SQL packages of this project: dialects, identifiers,
// placeholders, transactions, and migrations. It imports no driver.
package sqlkit

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckIdent refuses a text that is not a plain identifier of at most the dialect's length.
func CheckIdent(d core.Dialect, what, s string) error {
	if !identifier.MatchString(s) {
		return fmt.Errorf("%s %.80q is not an identifier: letters, digits and underscores, not starting with a digit",
			what, s)
	}
	if n := of(d).maxIdent(); len(s) > n {
		return fmt.Errorf("%s %.80q has %d bytes, more than %d", what, s, len(s), n)
	}
	return nil
}

// CheckNames refuses identifiers of a configuration that cannot be used, and names every problem.
// room is the package of the Config. longest is the longest name that follows the prefix.
func CheckNames(room string, d core.Dialect, schema, prefix, longest string) error {
	var problems []error
	if prefix != "" {
		problems = append(problems, CheckIdent(d, room+": Config.Prefix", prefix))
	}
	if limit := of(d).maxIdent() - len(longest); len(prefix) > limit {
		problems = append(problems, fmt.Errorf("%s: Config.Prefix has %d bytes, more than %d", room, len(prefix),
			limit))
	}
	switch {
	case schema == "":
	case !of(d).schemas():
		problems = append(problems, fmt.Errorf("%s: Config.Schema: SQLite has no schemas", room))
	default:
		problems = append(problems, CheckIdent(d, room+": Config.Schema", schema))
	}
	return errors.Join(problems...)
}

// Quote quotes a checked identifier.
func Quote(d core.Dialect, ident string) string { return of(d).quote(ident) }

// Qualify quotes a checked name of a table, with its schema if there is one.
func Qualify(d core.Dialect, schema, table string) string {
	if schema == "" {
		return Quote(d, table)
	}
	return Quote(d, schema) + "." + Quote(d, table)
}

// Rebind turns ? into the placeholders of the dialect. Every ? in the text must be a placeholder.
func Rebind(d core.Dialect, query string) string { return of(d).rebind(query) }

// List returns n placeholders ? separated by commas.
func List(n int) string {
	if n == 0 {
		return ""
	}
	return strings.Repeat("?,", n-1) + "?"
}
