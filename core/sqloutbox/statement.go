package sqloutbox

import (
	"strings"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// listed is a statement with a list of parameters.
type listed struct{ before, after string }

// newListed makes a listed of a text that has {ids} in place of the list.
func newListed(text string) listed {
	before, after, _ := strings.Cut(text, "{ids}")
	return listed{before, after}
}

// text returns the statement with a list of n parameters.
func (s listed) text(n int) string { return s.before + sqlkit.List(n) + s.after }

// union is a query with a limit.
type union string

// text joins n copies of the query.
func (s union) text(n int) string {
	if n == 1 {
		return string(s)
	}
	parts := make([]string, n)
	for i := range parts {
		parts[i] = "SELECT * FROM (" + string(s) + ") u" + string(rune('a'+i))
	}
	return strings.Join(parts, " UNION ALL ")
}

// tenantUnion is a union whose queries can leave out tenants.
type tenantUnion struct {
	all    union
	before string // before a list of tenants
	after  string
}

// newTenantUnion makes a tenantUnion of a text that has {tenants} in place of the condition.
func newTenantUnion(n names, text string) tenantUnion {
	before, after, _ := strings.Cut(text, "{tenants}")
	return tenantUnion{
		all:    union(n.expand(before + after)),
		before: n.expand(before + " AND (e.tenant_id IS NULL OR {bin:e.tenant_id} NOT IN ("),
		after:  n.expand("))" + after),
	}
}

// text joins n copies of the query, each of which leaves out the given number of tenants.
func (s tenantUnion) text(n, tenants int) string {
	if tenants == 0 {
		return s.all.text(n)
	}
	return union(s.before + sqlkit.List(tenants) + s.after).text(n)
}

// sized is a statement whose text depends on its number of rows.
type sized struct {
	build func(n int) string
	kept  [cachedRows + 1]atomic.Pointer[string]
}

// cachedRows is the largest number of rows for which a text is kept: a longer text costs little
// next to its rows.
const cachedRows = 16

// newSized makes a sized of a function that builds its text, and expands its words.
func newSized(n names, build func(n int) string) *sized {
	return &sized{build: func(rows int) string { return n.expand(build(rows)) }}
}

// text returns the statement for n rows.
func (s *sized) text(n int) string {
	if n > cachedRows {
		return s.build(n)
	}
	if text := s.kept[n].Load(); text != nil {
		return *text
	}
	text := s.build(n)
	s.kept[n].Store(&text)
	return text
}
