package sqlcommand

import (
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
	"github.com/ormoutbox/ormoutbox/core/internal/sqltexts"
)

// Texts returns every statement of a configuration by its name, for the golden files.
func Texts(cfg Config) (map[string]string, error) {
	n, err := tables.Names(sqlstore.Config(cfg))
	if err != nil {
		return nil, err
	}
	s := newStatements(n)
	texts, err := sqltexts.Of(s, "insert_guarded")
	if c, ok := s.cleanup.(sqlstore.CleanupByKey); ok && err == nil {
		texts["cleanup_delete of 2"] = c.Delete(2)
	}
	if err == nil {
		texts["lock_old of 2"], texts["remove of 2"] = s.lockOld(2), s.remove(2)
	}
	return texts, err
}
