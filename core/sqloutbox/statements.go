package sqloutbox

import (
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
)

// statements holds the SQL of one configuration, built once.
type statements struct {
	names names
	fixed map[string]string
	// sized caches texts that depend on the number of rows, for numbers up to cachedRows.
	sized sync.Map // sizedKey -> string
}

type sizedKey struct {
	name string
	n, m int
}

// cachedRows bounds the cache: a longer text costs little next to its rows.
const cachedRows = 16

func newStatements(n names) *statements {
	texts := map[core.Dialect]map[string]string{
		core.Postgres: postgresTexts, core.MySQL: rowTexts,
		core.SQLite: rowTexts,
	}[n.dialect]
	s := &statements{names: n, fixed: make(map[string]string, len(texts))}
	for name, text := range texts {
		s.fixed[name] = n.expand(text)
	}
	return s
}

// text returns a statement by its name.
func (s *statements) text(name string) string { return s.fixed[name] }

// build returns the text of a statement over n rows and m lanes.
func (s *statements) build(name string, n, m int, build func(n, m int) string) string {
	if n > cachedRows || m > cachedRows {
		return s.names.expand(build(n, m))
	}
	k := sizedKey{name, n, m}
	if text, ok := s.sized.Load(k); ok {
		return text.(string)
	}
	text := s.names.expand(build(n, m))
	s.sized.Store(k, text)
	return text
}
