package cli

import (
	"fmt"
	"strings"
	"testing"
)

// A relay of the log is refused where there is no log, and with flags that have no meaning for it.
// This holds on the command line and in a configuration.
func TestRelayOfTheLogFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flags, want string }{
		{"--slot outbox", "only the log of PostgreSQL is read, and this is sqlite"},
		{"--slot Outbox", `--slot "Outbox": it has lower-case letters`},
		{"--slot outbox --poll-interval 2s", "--poll-interval does not go with --slot"},
		{"--slot outbox --no-wake", "--no-wake does not go with --slot"},
		{"--slot outbox --delete-on-success", "--delete-on-success does not go with --slot"},
		{"--slot outbox --connections 3", "--connections 3: with --slot it is 4 or more"},
		{"--slot outbox --repair-slot no", `--repair-slot "no": it is lost, always or never`},
		{"--create-slot", "--slot is missing"},
		{"--failover-slot", "--slot is missing"},
		{"--repair-slot never", "--slot is missing"},
	} {
		w := &world{T: t, address: "sqlite::memory:"}
		args := strings.Fields(c.flags)
		w.require(w.run(append([]string{"relay", "--to", "redis://localhost:1"}, args...)...), ExitUsage, c.want)

		var config strings.Builder
		for i, arg := range args {
			name, flag := strings.CutPrefix(arg, "--")
			switch {
			case !flag:
				fmt.Fprintf(&config, ": %q", arg)
			case i == len(args)-1 || strings.HasPrefix(args[i+1], "--"):
				fmt.Fprintf(&config, ", %q: true", strings.ReplaceAll(name, "-", "_"))
			default:
				fmt.Fprintf(&config, ", %q", strings.ReplaceAll(name, "-", "_"))
			}
		}
		w = &world{T: t}
		w.require(w.run("relay", "--config", `{"outboxes": [{"name": "a", "database_url": "sqlite::memory:",
			"to": "redis://localhost:1"`+config.String()+`}]}`), ExitUsage, "outbox a: ", c.want)
	}
	w := &world{T: t, address: "sqlite::memory:"}
	w.require(w.run("relay", "--to", "redis://localhost:1", "--slot", ""), ExitUsage, "leave the flag out to poll")
	w = &world{T: t}
	w.require(w.run("relay", "--config", `{"outboxes": [
		{"name": "a", "database_url": "sqlite::memory:", "to": "redis://localhost:1", "slot": ""}]}`),
		ExitUsage, "slot: it is empty; leave it out to poll the table")
	w.require(w.run("relay", "--config", `{"outboxes": [
		{"name": "a", "database_url": "postgres://localhost:1/a", "to": "redis://localhost:1", "slot": "s"},
		{"name": "b", "database_url": "postgres://localhost:1/b", "to": "redis://localhost:1", "slot": "s"}]}`),
		ExitUsage, "a and b have the same slot s on one server")
}
