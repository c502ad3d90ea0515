package redisonce

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// ErrEviction: the server may evict keys when its memory is full. Work whose key was evicted would
// run again. Set maxmemory-policy to noeviction.
var ErrEviction = errors.New("redisonce: the server evicts keys")

// Check asks the server, or each primary of a cluster, for its settings, and names every problem at
// once:
//
//   - ErrEviction unless maxmemory-policy is noeviction;
//   - ErrReplicas when fewer replicas are connected than Config.WaitReplicas;
//   - a replica instead of a primary;
//   - scripts that may not run.
//
// Call it at start. It does not check persistence; New warns of that.
func (s *Store) Check(ctx context.Context) error {
	var mu sync.Mutex
	var problems []error
	report := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, err)
	}
	one := func(ctx context.Context, c redis.UniversalClient) {
		info, err := await(ctx, func() (string, error) { return c.Info(ctx).Result() }, nil)
		if err != nil {
			report(fmt.Errorf("redisonce: check: %w", err))
			return
		}
		for _, err := range s.judge(infoFields(info)) {
			report(err)
		}
	}
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			one(ctx, c)
			return nil
		})
		if err != nil {
			report(fmt.Errorf("redisonce: check: %w", err))
		}
	} else {
		one(ctx, s.client)
	}
	// No process has this claim. ErrLeaseLost shows that the server has run the script.
	probe := once.Claim{Key: once.Key{Scope: "check", ID: rand.Text()}, Owner: "check", Fence: 1}
	if err := s.Release(ctx, probe, 1); !errors.Is(err, once.ErrLeaseLost) {
		report(fmt.Errorf("redisonce: check: scripts do not run: %w", err))
	}
	return errors.Join(problems...)
}

const warnTimeout = 2 * time.Second

// warnOfLoss asks one server whether it evicts keys and whether it keeps them on disk. INFO is
// allowed where CONFIG GET is not.
func (s *Store) warnOfLoss() {
	ctx, cancel := context.WithTimeout(context.Background(), warnTimeout)
	defer cancel()
	ask := func(section string) (map[string]string, error) {
		info, err := await(ctx, func() (string, error) { return s.client.Info(ctx, section).Result() }, nil)
		return infoFields(info), err
	}
	fields, err := ask("memory")
	if disk, _ := ask("persistence"); disk["aof_enabled"] == "0" {
		s.cfg.Logger.Warn("redisonce: the server writes no append-only file: after a restart it has forgotten the " +
			"keys since its last snapshot, and their work is done again: set appendonly to yes")
	}
	switch policy := fields["maxmemory_policy"]; {
	case err != nil:
		s.cfg.Logger.Warn("redisonce: the server did not say whether it evicts keys: its maxmemory-policy must be "+
			"noeviction", "error", err)
	case policy == "":
		s.cfg.Logger.Warn("redisonce: the server does not say whether it evicts keys: its maxmemory-policy must be " +
			"noeviction")
	case policy != "noeviction":
		s.cfg.Logger.Warn("redisonce: the server forgets keys when its memory is full, and their work is done "+
			"again: set maxmemory-policy to noeviction",
			"maxmemory_policy", policy)
	}
}

// judge returns the problems of a server whose INFO is info.
func (s *Store) judge(info map[string]string) []error {
	var problems []error
	if p := info["maxmemory_policy"]; p != "noeviction" {
		problems = append(problems, fmt.Errorf("%w: maxmemory-policy is %q, not noeviction", ErrEviction, p))
	}
	if role := info["role"]; role != "" && role != "master" {
		problems = append(problems,
			fmt.Errorf("redisonce: the server is a %s, which may lag behind and cannot be written to", role))
	}
	if n, _ := strconv.Atoi(info["connected_slaves"]); n < s.cfg.WaitReplicas {
		problems = append(problems, fmt.Errorf("%w: %d are connected, WaitReplicas is %d", ErrReplicas, n,
			s.cfg.WaitReplicas))
	}
	return problems
}

// infoFields reads the answer to INFO.
func infoFields(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}
