package cli

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	redisTimeout = 10 * time.Second
	redisScan    = 10_000 // names that one SCAN looks at
	// redisPrograms is what Store.Register of redisonce calls a hash of programs, after its prefix. The
	// values are the times at which they registered.
	redisPrograms = "programs:{"
	programMemory = 7 * 24 * time.Hour
)

// sharedPrefixes finds the scopes of keys in Redis that several programs use, under every prefix. Of
// a cluster it looks at one server.
func (x *examination) sharedPrefixes(ctx context.Context) error {
	u, err := readAddress(x.redis)
	if err != nil {
		return usage("--redis: it is no address of Redis")
	}
	opt, err := redisOptions(u)
	if err != nil {
		return usage("--redis: it is no address of Redis")
	}
	redis.SetLogger(&redisLog{clientLog{Logger: slog.New(slog.DiscardHandler)}}) // the finding has the error
	client := redis.NewClient(opt)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	names := map[string]bool{} // SCAN may return a name twice
	keys := client.Scan(ctx, 0, "*"+redisPrograms+"*}", redisScan).Iterator()
	for keys.Next(ctx) {
		names[keys.Val()] = true
	}
	if err := keys.Err(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		registered, err := client.HGetAll(ctx, name).Result()
		if err != nil {
			return err
		}
		var programs []string
		for program, at := range registered {
			seconds, _ := strconv.ParseInt(at, 10, 64)
			if x.now().Sub(time.Unix(seconds, 0)) < programMemory {
				programs = append(programs, program)
			}
		}
		if len(programs) < 2 {
			continue
		}
		slices.Sort(programs)
		prefix, scope, _ := strings.Cut(name, redisPrograms)
		x.warn("the keys of "+strings.TrimSuffix(scope, "}")+" with prefix "+strconv.Quote(prefix)+
			" in Redis are used by "+strings.Join(programs, " and "),
			"two services chose one name: each message is processed by one of them, and is a duplicate to the "+
				"other",
			"give one of them another consumer name, or another Prefix"+renamed)
	}
	return nil
}
