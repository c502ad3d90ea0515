package redisbridge

import (
	"errors"
	"strings"
	"testing"
)

func TestUnsafeServers(t *testing.T) {
	t.Parallel()
	for text, names := range map[string]string{
		"# Memory\r\nmaxmemory_policy:allkeys-lru\r\nrole:master\r\n":   "maxmemory-policy is allkeys-lru",
		"maxmemory_policy:allkeys-random\nrole:master":                  "noeviction",
		"maxmemory_policy:noeviction\nrole:slave\nmaster_host:10.0.0.1": "replica of 10.0.0.1",
		"maxmemory_policy:noeviction\r\nrole:master\r\n":                "",
		"maxmemory_policy:volatile-lru\r\nrole:master\r\n":              "", // evicts keys with a TTL alone
		"": "",
	} {
		err := errors.Join(unsafeServer(parseInfo(text))...)
		if (err != nil) != (names != "") || err != nil && !strings.Contains(err.Error(), names) {
			t.Errorf("%q: %v, want it to name %q", text, err, names)
		}
	}
}
