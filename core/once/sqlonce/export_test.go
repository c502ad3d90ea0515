package sqlonce

import "maps"

// Texts returns every statement of a configuration by its name, for the golden files.
func Texts(cfg Config) (map[string]string, error) {
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	return maps.Clone(keyStatements(n)), nil
}
