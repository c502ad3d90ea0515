package redisonce

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Config says how a Store uses Redis. Its zero value is documented defaults.
type Config struct {
	// Prefix of every name in Redis, for several applications in one Redis. At most 128 bytes
	// without braces, blanks and control characters. Default: "once:".
	Prefix string
	// WaitReplicas is how many replicas must have a lease before its work runs, and a done mark
	// before the work counts as done (WAIT). It makes it unlikely that a failover forgets one, not
	// impossible. Default: 0, the primary alone.
	WaitReplicas int
	// WaitTimeout is how long to wait for them: at least 1 ms, shorter than the read timeout of the
	// client. When it is over, an Acquire gives the key back, and every method returns ErrReplicas.
	// Default: 500 ms.
	WaitTimeout time.Duration
	// FailOpen is asked whether work is to be run although Redis failed with err, without a lease
	// and without a mark: at once with others and once more for every duplicate. Its claim has
	// fence 0. It is the place to count, may look at key.Scope, and is called by many goroutines.
	// It is not asked when the caller's context is over. Default: never; the work does not run.
	FailOpen func(key once.Key, err error) bool
	// Logger gets the warning of New. Default: core.DefaultLogger, warnings and errors to
	// slog.Default(). To silence it: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = "once:"
	}
	if c.WaitTimeout == 0 {
		c.WaitTimeout = 500 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = core.DefaultLogger()
	}
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

// prefixProblem says what is wrong with the beginning of a name, or nothing. Braces are for the
// cluster's hash tag.
func prefixProblem(s string) string {
	switch {
	case len(s) > 128:
		return fmt.Sprintf("has %d bytes, more than 128", len(s))
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '{' || r == '}' }):
		return "has a brace, a blank or a control character"
	}
	return ""
}

// checkClient refuses a client with which the Store could not keep its word.
func (c Config) checkClient(client redis.UniversalClient) error {
	if client == nil {
		return errors.New("redisonce: client is nil")
	}
	var read time.Duration
	switch client := client.(type) {
	case *redis.Ring:
		return errors.New("redisonce: a Ring asks another server when one is down, which knows nothing of the keys: " +
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
