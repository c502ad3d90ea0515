package redisbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// ErrUnsafeServer: the server would lose entries that it has acknowledged. Its class is
// Unavailable. The error names each setting with the remedy. See Config.AllowUnsafeServer.
var ErrUnsafeServer = errors.New("redisbridge: unsafe Redis server")

// Check returns an error unless the server of cfg keeps what it acknowledges, and logs warnings as
// Publisher does. Call it when a process starts, if it should not start with such a server; a
// Publisher checks the same before the first event of a connection.
func Check(ctx context.Context, cfg Config) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	cfg.Bridge.Logger = cmp.Or(cfg.Bridge.Logger, core.DefaultLogger())
	_, err := checkServers(ctx, &cfg)
	return err
}

// checkServers checks every server to which entries are written. It returns the length of the
// longest value that all of them take, or 0 if it is not known.
func checkServers(ctx context.Context, cfg *Config) (longest int64, err error) {
	cluster, ok := cfg.Client.(*redis.ClusterClient)
	if !ok {
		if err := checkServer(ctx, cfg.Client, cfg); err != nil {
			return 0, err
		}
		return maxValue(ctx, cfg.Client), nil
	}
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		if err := checkServer(ctx, c, cfg); err != nil {
			return err
		}
		n := maxValue(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		if longest == 0 || n != 0 && n < longest {
			longest = n
		}
		return nil
	})
	return longest, err
}

// maxValue returns proto-max-bulk-len of a server, or 0 if the server does not return it. Managed
// servers often forbid to ask.
func maxValue(ctx context.Context, c redis.Cmdable) int64 {
	const setting = "proto-max-bulk-len"
	set, err := c.ConfigGet(ctx, setting).Result()
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(set[setting], 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

func checkServer(ctx context.Context, c redis.Cmdable, cfg *Config) error {
	text, err := c.Info(ctx).Result()
	// The server has closed the connection meanwhile. The client looks for that before it takes an
	// idle one, but cannot see it through TLS.
	if errors.Is(err, io.EOF) {
		text, err = c.Info(ctx).Result()
	}
	if err != nil {
		if answer, ok := errors.AsType[redis.Error](err); ok && strings.HasPrefix(answer.Error(), "NOPERM") {
			cfg.Bridge.Logger.Warn("redisbridge: the user has no right to INFO, so the server is not checked",
				"error", err)
			return nil
		}
		if client, ok := c.(*redis.Client); ok && client.Options().TLSConfig == nil {
			err = mayWantTLS(err)
		}
		return marked(fmt.Errorf("INFO: %w", err))
	}
	info := parseInfo(text)
	if err := errors.Join(unsafeServer(info)...); err != nil && !cfg.AllowUnsafeServer {
		return core.Unavailable(fmt.Errorf("%w: %w", ErrUnsafeServer, err))
	}
	warn(ctx, c, info, cfg.Bridge.Logger)
	return nil
}

// mayWantTLS adds a possible cause to an error of a connection without TLS.
func mayWantTLS(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("%w: the server closed the connection; it may want TLS", err)
	}
	return err
}

// parseInfo returns the fields of an answer to INFO.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = v
		}
	}
	return info
}

// unsafeServer returns every problem of a server.
func unsafeServer(info map[string]string) (problems link.Problems) {
	policy := info["maxmemory_policy"]
	problems.Add(strings.HasPrefix(policy, "allkeys-"), "maxmemory-policy is %s: a full server deletes whole streams; "+
		"set noeviction (volatile-* is safe as long as no stream has a TTL)", policy)
	problems.Add(info["role"] == "slave", "it is a replica of %s: connect to that server, or through Sentinel with "+
		"redis.NewFailoverClient", info["master_host"])
	return problems
}

// warn logs that a crash of the server may lose entries.
func warn(ctx context.Context, c redis.Cmdable, info map[string]string, logger *slog.Logger) {
	const fix = "set appendonly yes and appendfsync always, or wait for replicas with Config.Replicas"
	if info["aof_enabled"] == "0" {
		logger.Warn("redisbridge: appendonly is no, so a crash of Redis loses entries that it has acknowledged",
			"remedy", fix)
		return
	}
	set, err := c.ConfigGet(ctx, "appendfsync").Result() // managed servers often forbid it
	if policy := set["appendfsync"]; err == nil && policy != "" && policy != "always" {
		logger.Warn("redisbridge: appendfsync is not always, so a crash of the machine loses the last entries that "+
			"Redis has acknowledged", "appendfsync", policy, "remedy", fix)
	}
}
