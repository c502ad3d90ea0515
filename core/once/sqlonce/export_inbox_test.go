package sqlonce

import "maps"

// InboxTexts returns every statement of the inbox of a configuration by its name, for the golden
// files.
func InboxTexts(cfg Config) (map[string]string, error) {
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	return maps.Clone(inboxStatements(n)), nil
}
