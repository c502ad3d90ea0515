package adapter

import "github.com/ormoutbox/ormoutbox/core"

// Errors and functions that the tests know and callers need not.
var (
	KeyText = keyText
)

// Core returns the settings for core.New.
func (c Config) Core(repo core.Repository) core.Config { return c.core(repo) }
