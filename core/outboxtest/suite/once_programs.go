package suite

import (
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// onceProgramCases check stores that remember which programs use a scope.
func onceProgramCases() []onceCase {
	return []onceCase{
		{"two programs of one scope are told of each other", func(f *onceFixture) {
			s, ok := f.store.(once.Registrar)
			if !ok {
				f.Log("the store is no once.Registrar")
				return
			}
			a, b := once.Scope("http", "POST /{}", "a"), once.Scope("http", "POST /{}", "b")
			long := "example.com/" + strings.Repeat("long/", 40) // 212 bytes
			for _, c := range []struct {
				scope, program string
				others         []string
			}{
				{a, "example.com/a", nil},
				{a, "example.com/a", nil},
				{b, "example.com/b", nil},
				{strings.ToUpper(a), "example.com/b", nil},
				{a, "example.com/b", []string{"example.com/a"}},
				{a, "example.com/a", []string{"example.com/b"}},
				{a, long, []string{"example.com/a", "example.com/b"}},
				{a, "example.com/A", []string{"example.com/a", "example.com/b", long}},
			} {
				others, err := s.Register(f.Context(), c.scope, c.program)
				f.check(err)
				if !slices.Equal(others, c.others) {
					f.Errorf("%s registers %s: %q, want %q", c.program, c.scope, others, c.others)
				}
			}
		}},
	}
}
