package redisbridge_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

// answer is an error that a server sent.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

var _ redis.Error = answer("")

func TestClassify(t *testing.T) {
	t.Parallel()
	for want, errs := range map[core.Class][]error{
		core.ClassPermanent: {
			answer("ERR Protocol error: invalid bulk length"), answer("ERR Protocol error: invalid multibulk length"),
		},
		core.ClassUnavailable: {
			redis.ErrClosed, redis.ErrPoolTimeout, redis.ErrPoolExhausted,
			answer("LOADING Redis is loading the dataset in memory"),
			answer("READONLY You can't write against a read only replica."),
			answer("OOM command not allowed when used memory > 'maxmemory'."),
			answer("MISCONF Redis is configured to save RDB snapshots"),
			answer("NOREPLICAS Not enough good replicas to write."), answer("CLUSTERDOWN The cluster is down"),
			answer("MASTERDOWN Link with MASTER is down"), answer("NOAUTH Authentication required."),
			answer("NOPERM this user has no permissions"), answer("WRONGPASS invalid username-password pair"),
			answer("WRONGTYPE Operation against a key holding the wrong kind of value"),
			answer("BUSY Redis is busy running a script."), answer("ERR max number of clients reached"),
		},
		core.ClassTransient: {
			errors.New("LOADING, says somebody else"), answer("ERR The ID specified in XADD is equal or smaller " +
				"than the target stream top item"), answer(""),
		},
	} {
		for _, err := range errs {
			for _, err := range []error{err, fmt.Errorf("cannot xadd message: %w", err)} {
				if got := redisbridge.Classify(err); got != want {
					t.Errorf("%v: %v, want %v", err, got, want)
				}
			}
		}
	}
}

func ExampleClassify() {
	fmt.Println(redisbridge.Classify(redis.ErrPoolTimeout))
	// Output: unavailable
}
