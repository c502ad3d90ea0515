package sqlonce

import "maps"

// CommandTexts returns every statement about commands of a configuration by its name, for the
// golden files.
func CommandTexts(cfg Config) (map[string]string, error) {
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	return maps.Clone(commandStatements(n)), nil
}
