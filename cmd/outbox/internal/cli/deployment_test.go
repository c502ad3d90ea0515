package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// repository is a file of the repository, with its continued lines joined.
func repository(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "..", ".."}, path...)...))
	must(t, err)
	return regexp.MustCompile(`\\\n\s*`).ReplaceAllString(string(text), "")
}

// parts are the groups of a pattern, which the text has to have once.
func parts(t *testing.T, text, pattern string) []string {
	t.Helper()
	all := regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1)
	if len(all) != 1 {
		t.Fatalf("%d times %s, want it once", len(all), pattern)
	}
	return all[0][1:]
}

func relayOf(t *testing.T) *cobra.Command {
	t.Helper()
	c, _, err := NewRoot().Find([]string{"relay"})
	must(t, err)
	return c
}

// requireVariables fails unless each OUTBOX_ variable in the text sets a flag of the relay.
func requireVariables(t *testing.T, text string) {
	t.Helper()
	all := regexp.MustCompile(`\bOUTBOX_(\w+)`).FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		t.Error("no variable is named")
	}
	for _, m := range all {
		if relayOf(t).Flag(strings.ToLower(strings.ReplaceAll(m[1], "_", "-"))) == nil {
			t.Errorf("%s sets no flag of the relay", m[0])
		}
	}
}

// requireCommands fails unless the commands exist.
func requireCommands(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if c, _, err := NewRoot().Find([]string{name}); err != nil || c.Name() != name {
			t.Errorf("there is no outbox %s: %v", name, err)
		}
	}
}

// requireTime fails unless seconds are longer than a time limit.
func requireTime(t *testing.T, seconds string, limit time.Duration) {
	t.Helper()
	n, err := strconv.Atoi(seconds)
	if got := time.Duration(n) * time.Second; err != nil || got <= limit {
		t.Errorf("%s: %v, want it longer than %s", got, err, limit)
	}
}

// shutdownLimit is how long the relay takes to stop.
func shutdownLimit(t *testing.T) time.Duration {
	t.Helper()
	d, err := relayOf(t).Flags().GetDuration("shutdown-timeout")
	must(t, err)
	return d
}

// The Dockerfile builds a program that can be built, and runs commands that exist.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text := repository(t, "cmd", "outbox", "Dockerfile")
	requireVariables(t, text)
	requireTime(t, parts(t, text, `docker stop -t (\d+),`)[0], shutdownLimit(t))

	image := parts(t, text, `FROM golang:(\S+) AS build\n`)[0]
	if language := parts(t, repository(t, "go.work"), `(?m)^go (\d+\.\d+)`)[0]; image != language {
		t.Errorf("it builds with Go %s, and go.work has %s", image, language)
	}
	build := parts(t, text, `RUN (?:--mount=\S+ )+cd (\S+) && ((?:\w+=\S+ )+)go build .*-o (\S+) \.\n`)
	cmd := exec.CommandContext(t.Context(), "go", "list", "-mod=readonly", "-deps", "-f",
		"{{.ImportPath}} {{.Error}}", ".")
	cmd.Dir = filepath.Join("..", "..", "..", "..", build[0])
	cmd.Env = append(os.Environ(), strings.Fields(build[1])...)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ormoutbox/core/health <nil>\n") {
		t.Errorf("it does not build in %s with %s: %v\n%s", build[0], build[1], err, out)
	}

	if base := parts(t, text, `(?m)^FROM (\S+)$`)[0]; !strings.HasSuffix(base, ":nonroot") {
		t.Errorf("%s runs as root", base)
	}
	program := parts(t, text, `COPY --from=build `+regexp.QuoteMeta(build[2])+` (\S+)\n`)[0]
	for _, run := range [][]string{
		{`HEALTHCHECK .*CMD \["([^"]+)", `, program}, {`ENTRYPOINT \["([^"]+)"\]`, program},
	} {
		if got := parts(t, text, run[0])[0]; got != run[1] {
			t.Errorf("%s runs %s, and the program is %s", run[0], got, run[1])
		}
	}
	requireCommands(t, parts(t, text, `HEALTHCHECK .*CMD \["[^"]+", "(\w+)"\]`)[0],
		parts(t, text, `\nCMD \["(\w+)"\]`)[0],
		parts(t, text, `docker run --rm .* outbox (\w+)\n`)[0])
	requireTime(t, parts(t, text, `HEALTHCHECK .*--timeout=(\d+)s`)[0], probeTimeout)
	listen := parts(t, text, `ENV OUTBOX_LISTEN=:(\d+)\n`)[0]
	if port := parts(t, text, `EXPOSE (\d+)\n`)[0]; listen != port {
		t.Errorf("it listens on %s and exposes %s", listen, port)
	}
}

// The context of a build has each file of the repository, and nothing of what git ignores.
func TestDockerignore(t *testing.T) {
	t.Parallel()
	patterns := func(file string) (all []string) {
		for line := range strings.Lines(repository(t, file)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				all = append(all, line)
			}
		}
		return all
	}
	var want []string
	for _, p := range patterns(".gitignore") {
		p = strings.TrimSuffix(p, "/")
		if rooted, ok := strings.CutPrefix(p, "/"); ok {
			p = rooted
		} else if !strings.Contains(p, "/") {
			p = "**/" + p
		}
		want = append(want, p)
	}
	if got := patterns(".dockerignore"); !slices.Equal(got, want) {
		t.Errorf(".dockerignore has\n%s\nand .gitignore, in Docker's patterns,\n%s", strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
}

// The systemd unit runs a command that exists, and gives it time to stop. systemd knows all of its
// settings, where there is a systemd.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	text := repository(t, "cmd", "outbox", "outbox-relay.service")
	requireVariables(t, text)
	requireCommands(t, parts(t, text, `ExecStart=/usr/local/bin/outbox (\w+)\n`)...)
	requireTime(t, parts(t, text, `TimeoutStopSec=(\d+)\n`)[0], shutdownLimit(t))

	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return
	}
	installed, err := os.Executable() // verify wants a program that exists
	must(t, err)
	file := filepath.Join(t.TempDir(), "outbox-relay.service")
	must(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "/usr/local/bin/outbox", installed)), 0o600))
	out, err := exec.CommandContext(t.Context(), verify, "verify", file).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
