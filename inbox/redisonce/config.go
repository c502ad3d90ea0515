package redisonce

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Config configures a Store. The zero value has the documented defaults.
type Config struct {
	// Prefix of every name in Redis, for several applications in one Redis. At most 128 bytes
	// without braces, blanks and control characters. Default: "once:".
	Prefix string
	// WaitReplicas is how many replicas must have a lease before its work runs, and a done mark
	// before the work counts as done (WAIT). With it a failover is unlikely to forget a lease or a
	// mark, but it still can. Default: 0, the primary alone.
	WaitReplicas int
	// WaitTimeout is how long to wait for the replicas: at least 1 ms, and shorter than the read
	// timeout of the client. After that time an Acquire gives the key back, and every method
	// returns [ErrReplicas]. Default: 500 ms.
	WaitTimeout time.Duration
	// FailOpen decides whether work runs although Redis failed with err. Such work has no lease and
	// no mark: copies of it run at the same time, and every duplicate runs it again. Its claim has
	// fence 0. FailOpen may count its calls and look at key.Scope. Many goroutines call it. If it
	// returns false, the request is repeated once, and FailOpen is asked again. It is not called
	// when the caller's context has ended. Default: never; the work does not run.
	FailOpen func(key once.Key, err error) bool
	// Logger gets the warning of New. Default: core.DefaultLogger, warnings and errors to
	// slog.Default(). To silence it: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, "once:")
	c.WaitTimeout = cmp.Or(c.WaitTimeout, 500*time.Millisecond)
	c.Logger = cmp.Or(c.Logger, core.DefaultLogger()).With("component", "redisonce")
	return c
}

// Validate reports every problem of c at once. New calls it.
func (c Config) Validate() error {
	c = c.withDefaults()
	var problems []error
	if p := prefixProblem(c.Prefix); p != "" {
		problems = append(problems, fmt.Errorf("redisonce: config: Prefix %q %s", c.Prefix, p))
	}
	if c.WaitReplicas < 0 {
		problems = append(problems, fmt.Errorf("redisonce: config: WaitReplicas %d is negative", c.WaitReplicas))
	}
	if c.WaitTimeout < time.Millisecond {
		problems = append(problems, fmt.Errorf("redisonce: config: WaitTimeout %s is less than 1ms", c.WaitTimeout))
	}
	return errors.Join(problems...)
}

// prefixProblem returns the problem of a prefix, or nothing. Braces are for the cluster's hash tag.
func prefixProblem(s string) string {
	switch {
	case len(s) > 128:
		return fmt.Sprintf("has %d bytes, more than 128", len(s))
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '{' || r == '}' }):
		return "has a brace, a blank or a control character"
	}
	return ""
}

// checkClient refuses a client with which the Store could not do what it promises.
func (c Config) checkClient(client redis.UniversalClient) error {
	if client == nil {
		return errors.New("redisonce: client is nil")
	}
	var read time.Duration
	switch client := client.(type) {
	case *redis.Ring:
		return errors.New("redisonce: a Ring asks another server when one is down, which does not have the keys: " +
			"use Sentinel or Cluster")
	case *redis.Client:
		read = client.Options().ReadTimeout
	case *redis.ClusterClient:
		read = client.Options().ReadTimeout
	}
	if c.WaitReplicas > 0 && read > 0 && c.WaitTimeout >= read {
		return fmt.Errorf("redisonce: config: WaitTimeout %s is not shorter than the client's ReadTimeout %s",
			c.WaitTimeout, read)
	}
	return nil
}
