package sqlcommand

import (
	"maps"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

// Texts returns every statement of a configuration by its name, for the golden files.
func Texts(cfg Config) (map[string]string, error) {
	n, err := tables.Names(sqlstore.Config(cfg))
	if err != nil {
		return nil, err
	}
	return maps.Clone(commandStatements(n)), nil
}
