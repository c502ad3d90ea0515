package redisonce

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/once"
)

var _ once.Registrar = (*Store)(nil)

// programMemory is how long Redis remembers that a program uses a scope.
const programMemory = 7 * 24 * time.Hour

// Register implements once.Registrar: it remembers for a week that the program uses the scope, in a
// hash of its own, and returns the other programs that do.
func (s *Store) Register(ctx context.Context, scope, program string) (others []string, err error) {
	name := s.cfg.Prefix + "programs:{" + tagEscaper.Replace(scope) + "}"
	return await(ctx, func() ([]string, error) {
		var all *redis.MapStringStringCmd
		now := time.Now()
		_, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, name, program, now.Unix())
			p.Expire(ctx, name, programMemory)
			all = p.HGetAll(ctx, name)
			return nil
		})
		if err != nil {
			return nil, err
		}
		for other, at := range all.Val() {
			seen, _ := strconv.ParseInt(at, 10, 64)
			if other != program && now.Sub(time.Unix(seen, 0)) < programMemory {
				others = append(others, other)
			}
		}
		slices.Sort(others)
		return others, nil
	}, nil)
}
