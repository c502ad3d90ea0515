package cli

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every mistake of a configuration is told at once, with its place.
func TestRelayConfigurationMistakes(t *testing.T) {
	t.Parallel()
	w := &world{T: t, env: map[string]string{"SECRET": "hunter2"}}
	r := w.run("relay", "--config", `{"outboxes": [
		{"name": "shop", "database_url": "sqlite::memory:", "to": "http://r", "workers": 0, "keep": "long",
		 "acks": 1, "schema": ""},
		{"name": "a b", "to": "${LOST}", "workers": "${SECRET}", "workers": 4},
		7,
		{"name": "mail", "database_url": "oracle://x", "to": "redis://r?x=1", "prefix": "a b", "slot": "s",
		 "no_wake": true},
		{"name": "one", "database_url": "mysql://h/one", "to": "redis://r", "slot": "s"},
		{"name": "bad", "database_url": "mysql://h/bad", "to": "redis://r", "prefix": "a b"},
		{"name": "two", "database_url": "mysql://h/two", "to": "redis://r"},
		{"name": "shop", "database_url": "mysql://h/x", "schema": "two", "to": "redis://r", "prefix": "outbox_"}],
		"outbox": 1}`)
	w.require(r, ExitUsage,
		`"outbox" is not known`,
		"outbox shop: --workers 0: it is 1 to 10000", "outbox shop: keep: it is a duration",
		`outbox shop: "acks" is not known`, "outbox shop: schema: it is empty", "outbox shop: --to names no broker",
		`outbox 2: name "a b" is missing, or has other`, "outbox 2: to: ${LOST} is not set",
		"outbox 2: workers: it is a number", `outbox 2: "workers" is set twice`, "outbox 2: database_url is missing",
		"outbox 3: an object {...} was expected",
		"outbox mail: the kind of database is not known",
		"outbox mail: --to: redisbridge: the URL: redis: unexpected option: x",
		"outbox mail: --no-wake does not go with --slot",
		"outbox one: --slot s: only the log of PostgreSQL is read",
		"outbox bad: ",
		`outbox 8: two outboxes have the name "shop"`,
		"outboxes two and 8 have the same tables",
	)
	equal(t, strings.Count(r.err, "\n"), 19, "lines of %s", r.err)
	if strings.Contains(r.err, "hunter2") {
		t.Errorf("the secret is shown: %s", r.err)
	}
	for text, want := range map[string]string{
		`{"outboxes": []} {"outboxes": []}`:        "line 1, column 18: there is more after its end",
		"{\"outboxes\": []}\n\n}":                  "line 3, column 1: there is more after its end",
		"{\"outboxes\": [\n  {\"name\": \"a\",}]}": "line 2, column 16",
		`{"outboxes": [`:                           "unexpected",
		`{"outboxes": {}}`:                         "outboxes is no list",
		`{"outboxes": [], "outboxes": []}`:         "it has outboxes twice",
		`{"outboxes": [{"each": []}]}`:             "outbox 1: each is no list of texts",
		`{"outboxes": [{"each": "a"}]}`:            "outbox 1: each is no list of texts",
	} {
		w.require(w.run("relay", "--config", text), ExitUsage, want)
	}
	r = w.run("relay", "--to", "http://r", "-d", "oracle://x", "--workers", "0", "--keep", "0")
	w.require(r, ExitUsage, "--to names no broker", "kind of database", "--workers 0", "--keep 0s")
}

// An outbox with the setting each is one outbox for each of its texts.
func TestRelayConfigurationEach(t *testing.T) {
	t.Parallel()
	w := &world{T: t, env: map[string]string{"HOST": "h"}}
	const each = `{"outboxes": [{"name": "NAME", "each": ["-80", "80-"], "database_url": "mysql://${HOST}/s:SHARD", ` +
		`"to": "redis://r"}, {"name": "{each}", "each": ["a\"b"], "database_url": "mysql://h/x", "to": "redis://r"}]}`
	run := func(name, shard string) result {
		return w.run("relay", "--check", "--config", strings.NewReplacer("NAME", name, "SHARD", shard).Replace(each))
	}
	w.require(run("shop{each}", "{each}"), ExitUsage, `outbox 3: name "a\"b" is missing`)
	w.require(run("shop", "{each}"), ExitUsage, `outbox 2: two outboxes have the name "shop"`)
	w.require(run("shop{each}", "-80"), ExitUsage, "outboxes shop-80 and shop80- have the same tables")
	var checked checkedRelays
	text, _, _ := strings.Cut(strings.NewReplacer("NAME", "shop{each}", "SHARD", "{each}").Replace(each), ", {")
	equal(t, w.json(&checked, "relay", "--config", text+"]}", "--check"), ExitOK, "exit code")
	if len(checked.Outboxes) != 2 || checked.Outboxes[0].Database == checked.Outboxes[1].Database {
		t.Errorf("%+v", checked)
	}
}

// --check reads everything and connects nowhere. It prints what it has read, without passwords, and
// the connections that are opened at most.
func TestRelayCheck(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Errorf("somebody connects: %s", c.RemoteAddr())
			_ = c.Close()
		}
	}()
	at := l.Addr().String()
	w := &world{T: t, env: map[string]string{"PASSWORD": "hunter2"}}
	var outboxes []map[string]any
	for i, to := range []string{
		"kafka://u:${PASSWORD}@" + at, "amqp://u:${PASSWORD}@" + at + "/?topology=queue", "nats://u:${PASSWORD}@" + at,
		"redis://u:${PASSWORD}@" + at,
	} {
		name := string(rune('a' + i))
		outboxes = append(outboxes, map[string]any{
			"name": name, "database_url": "postgres://u:${PASSWORD}@" + at + "/" + name, "to": to,
		})
	}
	outboxes[1]["no_wake"] = true
	outboxes[2]["connections"], outboxes[2]["slot"] = 20, "s"
	outboxes[3]["database_url"] = "mysql://u:${PASSWORD}@" + at + "/d"
	outboxes = append(outboxes, map[string]any{
		"name": "e", "database_url": "sqlite:" + filepath.Join(t.TempDir(), "absent.db"), "to": "redis://" + at,
	})
	outboxes = append(outboxes, map[string]any{ // it shares the pool of a
		"name": "f", "database_url": outboxes[0]["database_url"], "to": "redis://" + at, "schema": "other",
	})
	text, err := json.Marshal(map[string]any{"outboxes": outboxes})
	must(t, err)
	file := filepath.Join(t.TempDir(), "relay.json")
	must(t, os.WriteFile(file, text, 0o600))
	r := w.run("relay", "--config", file, "--check")
	w.require(r, ExitOK, "postgres "+at+"/a", "redis://"+at,
		"postgres "+at+": at most 38 connections", "mysql "+at+": at most 8 connections") // 9 + 8 + 21
	if strings.Contains(r.out+r.err, "hunter2") {
		t.Errorf("a password is shown: %s%s", r.out, r.err)
	}
	var checked checkedRelays
	equal(t, w.json(&checked, "relay", "--config", file, "--check"), ExitOK, "exit code")
	if len(checked.Outboxes) != 6 || checked.Outboxes[2].Connections != 21 || checked.Servers[1].Connections != 38 {
		t.Errorf("%+v", checked)
	}
	w.env["DATABASE_URL"] = "postgres://" + at + "/a"
	alone := []string{"relay", "--check", "--to", "redis://" + at, "-d", "postgres://" + at + "/a"}
	w.require(w.run(alone...), ExitOK, "at most 9 connections")
	w.require(w.run(append(alone, "--workers", "0")...), ExitUsage)
	w.require(w.run("relay", "--check", "--config", `{"outboxes": []}`), ExitUsage, "no outboxes")
}
