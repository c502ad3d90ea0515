// Package program names the running program.
package program

import (
	"runtime/debug"
	"sync"
)

// Path is the path of the main package. It is empty if the program does not know it, as with
// `go run file.go`.
var Path = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Path == "command-line-arguments" {
		return ""
	}
	return info.Path
})
