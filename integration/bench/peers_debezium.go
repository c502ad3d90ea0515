package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// connect is Kafka Connect with Debezium's connector, in a separate process.
type connect struct {
	*env

	dir, root string
	address   string // its REST interface
	life      io.Closer
	done      chan error
	made      int
}

// repositoryRoot returns the folder with go.work.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.work above the working directory: call it from the repository")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// startConnect starts Kafka Connect. The caller closes the result, also after an error.
func startConnect(ctx context.Context, e *env, kafka string) (c *connect, err error) {
	c = &connect{env: e}
	if c.root, err = repositoryRoot(); err != nil {
		return c, err
	}
	folder, err := filepath.Abs(e.opts.debezium)
	if err != nil {
		return c, err
	}
	if c.dir, err = os.MkdirTemp("", "outbox_bench"); err != nil {
		return c, err
	}
	plugin := filepath.Join(c.dir, "plugins", "ormoutbox")
	if err := os.MkdirAll(plugin, 0o700); err != nil {
		return c, err
	}
	build := exec.CommandContext(ctx, filepath.Join(c.root, "docs/debezium/build"),
		filepath.Join(plugin, "headers.jar"), filepath.Join(folder, "lib"))
	if out, err := build.CombinedOutput(); err != nil {
		return c, fmt.Errorf("%w: %s", err, out)
	}
	if c.address, err = freeAddress(ctx); err != nil {
		return c, err
	}
	for name, settings := range map[string]map[string]string{
		"log4j2.properties": {
			"status": "warn", "rootLogger.level": "warn", "rootLogger.appenderRef.c.ref": "c",
			"appender.c.type": "Console", "appender.c.name": "c",
			"appender.c.layout.type": "PatternLayout", "appender.c.layout.pattern": "%p %m%n",
		},
		"worker.properties": {
			"bootstrap.servers": kafka, "listeners": "http://" + c.address,
			"offset.storage.file.filename": "offsets.dat", "plugin.discovery": "service_load",
			"plugin.path":     filepath.Join(folder, "plugins") + "," + filepath.Dir(plugin),
			"key.converter":   "org.apache.kafka.connect.storage.StringConverter",
			"value.converter": "org.apache.kafka.connect.storage.StringConverter",
		},
	} {
		var b strings.Builder
		for _, k := range slices.Sorted(maps.Keys(settings)) {
			fmt.Fprintf(&b, "%s=%s\n", k, settings[k])
		}
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(b.String()), 0o600); err != nil {
			return c, err
		}
	}
	return c, c.start(ctx, folder)
}

func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (c *connect) start(ctx context.Context, folder string) (err error) {
	// The shell kills Java when its input ends, which also happens when this process is killed.
	const shell = `exec 3<&0; java "$@" </dev/null 3<&- & pid=$!; echo $pid >pid
		{ cat <&3 >/dev/null; kill -9 $pid 2>/dev/null; } & wait $pid`
	cmd := exec.Command("bash", "-c", shell, "connect", "-Xmx1g", "-Dlog4j2.configurationFile=log4j2.properties",
		"-cp", filepath.Join(folder, "lib", "*"), "org.apache.kafka.connect.cli.ConnectStandalone", "worker.properties")
	log, err := os.Create(filepath.Join(c.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, log, log
	if c.life, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.done = make(chan error, 1)
	go func() { c.done <- cmd.Wait() }()
	ok, err := await(ctx, 3*time.Minute, 100*time.Millisecond, func() (bool, error) {
		select {
		case err := <-c.done:
			return false, fmt.Errorf("connect has ended: %w\n%s", err, c.log())
		default:
			return c.call(ctx, http.MethodGet, "", nil, nil) == nil, nil
		}
	})
	if err == nil && !ok {
		err = fmt.Errorf("connect does not answer\n%s", c.log())
	}
	return err
}

// log returns the end of its log.
func (c *connect) log() []byte {
	b, _ := os.ReadFile(filepath.Join(c.dir, "log"))
	return b[max(0, len(b)-4000):]
}

func (c *connect) close() error {
	if c.life != nil {
		_ = c.life.Close()
		<-c.done
	}
	if c.dir == "" {
		return nil
	}
	return os.RemoveAll(c.dir)
}

// cpu returns the CPU time that Connect has used so far.
func (c *connect) cpu() time.Duration {
	if c == nil {
		return 0
	}
	text, _ := os.ReadFile(filepath.Join(c.dir, "pid"))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	p, _ := readProcess(pid)
	return p.own
}

// call calls the REST interface.
func (c *connect) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.address+"/connectors"+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %s: %.500s", method, path, resp.Status, text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// add starts a connector that reads a slot and sends to a topic. It returns when the task runs, and
// a function that ends it.
func (c *connect) add(ctx context.Context, prefix, slot, topic string) (end func() error, err error) {
	settings, err := properties(filepath.Join(c.root, "docs/debezium/outbox.properties"))
	if err != nil {
		return nil, err
	}
	c.made++
	name := fmt.Sprintf("%s_%d", c.name, c.made)
	maps.Copy(settings, map[string]string{
		"name": name, "database.hostname": c.config.Host, "database.port": fmt.Sprint(c.config.Port),
		"database.user": c.config.User, "database.password": c.config.Password,
		"database.dbname": c.config.Database, "topic.prefix": name,
		"table.include.list": "public." + prefix + "event", "publication.name": slot, "slot.name": slot,
		"transforms.outbox.route.topic.replacement": topic,
	})
	if err := c.call(ctx, http.MethodPut, "/"+name+"/config", settings, nil); err != nil {
		return nil, err
	}
	end = func() error { return c.call(context.WithoutCancel(ctx), http.MethodDelete, "/"+name, nil, nil) }
	ok, err := await(ctx, time.Minute, 10*time.Millisecond, func() (bool, error) {
		var status struct {
			Tasks []struct{ State, Trace string }
		}
		if err := c.call(ctx, http.MethodGet, "/"+name+"/status", nil, &status); err != nil || len(status.Tasks) == 0 {
			return false, nil //nolint:nilerr // the connector does not exist yet
		}
		if status.Tasks[0].State == "FAILED" {
			return false, errors.New(status.Tasks[0].Trace)
		}
		return status.Tasks[0].State == "RUNNING", nil
	})
	if err == nil && !ok {
		err = errors.New("the connector does not run")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, c.log()), end())
	}
	return end, nil
}

// continued matches the ends of lines that go on in the next line.
var continued = regexp.MustCompile(`\\\n\s*`)

// properties reads a file of settings.
func properties(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for s := bufio.NewScanner(strings.NewReader(continued.ReplaceAllString(string(text), ""))); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if k, v, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			settings[k] = v
		}
	}
	return settings, nil
}
