// Package program names the running program.
package program

import (
	"context"
	"runtime/debug"
	"sync"
	"time"
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

const (
	again    = 12 * time.Hour // a registration is good for so long
	pause    = time.Minute    // after a failure
	maxNames = 64             // some programs make a name of each request
)

// Names has the names that this process has registered. The zero value is ready for use. It is only
// for a warning: nothing fails because of it, and no goroutine waits for another's call.
type Names struct {
	mu    sync.Mutex
	known map[string]*name
}

type name struct {
	until  time.Time       // no call is needed before
	warned map[string]bool // the programs of earlier warnings
}

// Register calls register with the path of this program, unless that was done for the name not long
// ago. register returns the other programs that use the name. tell is called once for each. The
// call takes at most limit.
func (n *Names) Register(ctx context.Context, key string, limit time.Duration,
	register func(ctx context.Context, program string) (others []string, err error), tell func(program, other string),
) {
	if Path() == "" || !n.take(key) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	others, err := register(ctx, Path())
	if err != nil {
		return
	}
	n.mu.Lock()
	one := n.known[key]
	one.until = time.Now().Add(again)
	var news []string
	for _, other := range others {
		if !one.warned[other] {
			one.warned[other] = true
			news = append(news, other)
		}
	}
	n.mu.Unlock()
	for _, other := range news {
		tell(Path(), other)
	}
}

// take reports whether the caller has to register the name.
func (n *Names) take(key string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.known[key]
	switch {
	case one == nil && len(n.known) >= maxNames, one != nil && time.Now().Before(one.until):
		return false
	case one == nil:
		if n.known == nil {
			n.known = map[string]*name{}
		}
		one = &name{warned: map[string]bool{}}
		n.known[key] = one
	}
	one.until = time.Now().Add(pause)
	return true
}
