// Package sqlkit is what the SQL packages of this project share: dialects, identifiers,
// placeholders, transactions of their own, and migrations. It imports no driver.
package sqlkit

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// MaxIdent returns how many bytes an identifier may have: PostgreSQL cuts longer ones silently,
// MySQL refuses them.
func MaxIdent(d core.Dialect) int {
	if d == core.MySQL {
		return 64
	}
	return 63
}

// CheckIdent refuses everything that is not a plain identifier of at most the dialect's length.
func CheckIdent(d core.Dialect, what, s string) error {
	if !identifier.MatchString(s) {
		return fmt.Errorf("%s %.80q is not an identifier: letters, digits and underscores, not starting with a digit",
			what, s)
	}
	if n := MaxIdent(d); len(s) > n {
		return fmt.Errorf("%s %.80q has %d bytes, more than %d", what, s, len(s), n)
	}
	return nil
}

// Quote quotes a checked identifier.
func Quote(d core.Dialect, ident string) string {
	if d == core.MySQL {
		return "`" + ident + "`"
	}
	return `"` + ident + `"`
}

// Rebind turns ? into the placeholders of the dialect. The text must not hold a ? that is no
// placeholder.
func Rebind(d core.Dialect, query string) string {
	if d != core.Postgres {
		return query
	}
	var b strings.Builder
	b.Grow(len(query) + 32)
	n := 0
	for {
		i := strings.IndexByte(query, '?')
		if i < 0 {
			b.WriteString(query)
			return b.String()
		}
		n++
		b.WriteString(query[:i])
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		query = query[i+1:]
	}
}

// List returns n placeholders ? separated by commas.
func List(n int) string {
	if n == 0 {
		return ""
	}
	return strings.Repeat("?,", n-1) + "?"
}
