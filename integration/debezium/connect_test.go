package debezium_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
)

// connect is Kafka Connect with Debezium's connector, as a process of the test.
type connect struct {
	t          *testing.T
	dir        string
	address    string // the address of its REST interface
	args       []string
	connectors []string

	life io.Closer // closing it kills the process
	done chan error
}

// file returns the path of a file that users get.
func file(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(fixture.Root(t), "docs", "debezium", name)
}

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(file(t, name))
	fixture.NoError(t, err)
	return string(b)
}

// run returns what a program prints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, errs.String())
	}
	return strings.TrimSpace(out.String())
}

// newConnect makes the files of a Connect with these connectors. start starts the process.
func newConnect(t *testing.T, connectors map[string]map[string]string) *connect {
	t.Helper()
	folder := run(t, filepath.Join(fixture.Root(t), "scripts", "debezium", "fetch"))
	port, _ := fixture.ReservePorts(t)
	c := &connect{t: t, dir: t.TempDir(), address: fmt.Sprintf("127.0.0.1:%d", port)}
	own := filepath.Join(c.dir, "plugins", "ormoutbox")
	fixture.NoError(t, os.MkdirAll(own, 0o755))
	run(t, file(t, "build"), filepath.Join(own, "headers.jar"), filepath.Join(folder, "lib"))
	c.write("log4j2.properties", map[string]string{
		"status": "warn", "rootLogger.level": "warn", "rootLogger.appenderRef.c.ref": "c", "appender.c.type": "Console",
		"appender.c.name": "c", "appender.c.target": "SYSTEM_ERR", "appender.c.layout.type": "PatternLayout",
		"appender.c.layout.pattern": "[%d] %p %m (%c)%n",
	})
	c.write("worker.properties", map[string]string{
		"bootstrap.servers": topics.KafkaAddress(t), "listeners": "http://" + c.address,
		"rest.advertised.host.name": "127.0.0.1", "offset.storage.file.filename": "offsets.dat",
		"offset.flush.interval.ms": "1000", "plugin.discovery": "service_load",
		"plugin.path":     filepath.Join(folder, "plugins") + "," + filepath.Dir(own),
		"key.converter":   "org.apache.kafka.connect.storage.StringConverter",
		"value.converter": "org.apache.kafka.connect.storage.StringConverter",
	})
	c.args = []string{
		"-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile=log4j2.properties",
		"-cp", filepath.Join(folder, "lib", "*"), "org.apache.kafka.connect.cli.ConnectStandalone", "worker.properties",
	}
	for _, name := range slices.Sorted(maps.Keys(connectors)) {
		c.write(name+".properties", connectors[name])
		c.args = append(c.args, name+".properties")
		c.connectors = append(c.connectors, name)
	}
	t.Cleanup(func() {
		if c.life != nil {
			c.kill()
		}
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(c.dir, "log"))
			t.Logf("the end of Connect's log:\n%s", b[max(0, len(b)-20_000):])
		}
	})
	return c
}

func (c *connect) write(name string, settings map[string]string) {
	c.t.Helper()
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s=%s\n", k, settings[k])
	}
	fixture.NoError(c.t, os.WriteFile(filepath.Join(c.dir, name), []byte(b.String()), 0o600))
}

// start starts the process, and returns when its connectors run.
func (c *connect) start() {
	c.t.Helper()
	// The shell kills Java when the shell's input ends, because kill was called or the test has
	// ended.
	const shell = `exec 3<&0; java "$@" </dev/null 3<&- & pid=$!
		{ cat <&3 >/dev/null; kill -9 $pid 2>/dev/null; } & wait $pid`
	cmd := exec.Command("bash", append([]string{"-c", shell, "connect"}, c.args...)...)
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	fixture.NoError(c.t, err)
	defer log.Close()
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, log, log
	c.life, err = cmd.StdinPipe()
	fixture.NoError(c.t, err)
	fixture.NoError(c.t, cmd.Start())
	c.done = make(chan error, 1)
	go func() { c.done <- cmd.Wait() }()
	fixture.AwaitIn(c.t, 3*time.Minute, "the connectors run", func() bool {
		select {
		case err := <-c.done:
			c.t.Fatalf("Connect has ended: %v", err)
		default:
		}
		return !slices.ContainsFunc(c.connectors, func(name string) bool {
			state := c.state(name)
			fixture.Must(c.t, state != "FAILED", "the task of %s has failed", name)
			return state != "RUNNING"
		})
	})
}

// state returns the state of the only task of a connector, or "" while there is no task.
func (c *connect) state(name string) string {
	resp, err := http.Get("http://" + c.address + "/connectors/" + name + "/status")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var status struct {
		Tasks []struct{ State string }
	}
	if json.NewDecoder(resp.Body).Decode(&status) != nil || len(status.Tasks) != 1 {
		return ""
	}
	return status.Tasks[0].State
}

// kill ends the process with SIGKILL.
func (c *connect) kill() {
	c.t.Helper()
	_ = c.life.Close()
	c.life = nil
	<-c.done
}

// continued matches the end of a line that goes on in the next one.
var continued = regexp.MustCompile(`\\\n\s*`)

// properties reads a file of settings.
func properties(t *testing.T, name string) map[string]string {
	t.Helper()
	settings := map[string]string{}
	joined := continued.ReplaceAllString(text(t, name), "")
	for s := bufio.NewScanner(strings.NewReader(joined)); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if k, v, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			settings[k] = v
		}
	}
	return settings
}
