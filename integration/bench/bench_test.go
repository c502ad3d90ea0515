package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBenchRun runs every section with tiny sizes on real servers. The figures mean nothing, but
// the program ends with an error unless every competitor did its work.
func TestBenchRun(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-all runs it")
	}
	for _, server := range []string{"POSTGRES", "MARIADB", "MYSQL", "KAFKA"} {
		if name := "OUTBOX_TEST_" + server; os.Getenv(name) == "" {
			t.Fatal(name + " is not set: start the servers with `make services-up` and run the tests with " +
				"`make test`, or `eval \"$(scripts/services env)\"` first")
		}
	}
	debezium, err := exec.Command("../../scripts/debezium/fetch").Output()
	if err != nil {
		t.Fatal("scripts/debezium/fetch: ", err)
	}
	t.Setenv("OUTBOX_BENCH_DEBEZIUM", strings.TrimSpace(string(debezium)))
	dir := t.TempDir()
	var all []string
	for _, s := range sections {
		all = append(all, s.name)
	}
	args := []string{
		"-sections", strings.Join(all, ","), "-rounds", "1", "-json", filepath.Join(dir, "bench.json"), "-page",
		filepath.Join(dir, "page.md"),
	}
	opts, err := parseOptions(args, os.Getenv, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	opts.duration, opts.events, opts.limit, opts.keys = 20*time.Millisecond, 300, 20*time.Second, 50
	opts.torture, opts.rate = 1500*time.Millisecond, 200
	var page strings.Builder
	for _, s := range sections {
		page.WriteString("before " + s.name + "\n\n<!-- begin: " + s.name + " -->\nof last year\n<!-- end: " + s.name +
			" -->\n\n")
	}
	if err := os.WriteFile(opts.page, []byte(page.String()+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if _, err := measure(t.Context(), opts, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
	}

	b, err := os.ReadFile(opts.json)
	if err != nil {
		t.Fatal(err)
	}
	var report Report
	if err := json.Unmarshal(b, &report); err != nil {
		t.Fatal(err)
	}
	md, err := os.ReadFile(opts.page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(md)
	if strings.Contains(text, "of last year") || strings.Count(text, "before ") != len(sections) ||
		!strings.HasSuffix(text, "-->\n\nafter\n") || strings.Count(text, report.Date) != len(sections) {
		t.Errorf("the page around the tables is not as it was:\n%s", text)
	}
	if len(report.Sections) != len(sections) {
		t.Fatalf("%d sections, want %d", len(report.Sections), len(sections))
	}
	for i, s := range report.Sections {
		if s.Name != sections[i].name || len(s.Tables) == 0 {
			t.Errorf("section %d is %q with %d tables", i, s.Name, len(s.Tables))
		}
		for _, table := range s.Tables {
			checkTable(t, s.Name, table, stdout.String())
		}
		if shown := s.forPage().markdown(); shown == "" || !strings.Contains(text, shown) {
			t.Errorf("section %s is not in the page as\n%s", s.Name, shown)
		}
	}
	names := []string{
		"GORM alone", "GORM + event, pgxoutbox", "Ent + second row", "Bun + ordered event",
		"pgx + ordered event", oursName, nativeName, handName, pipedName, steadyHand, channelName, fastPathName,
		"PostgreSQL, woken", "PostgreSQL, pgxoutbox, woken", "MariaDB, woken", "SQLite, polled", "SQLite, ordered",
		"watermill-sql forwarder, best settings", "River, defaults", pollName, logName, debeziumName,
		"published to Kafka, ordered",
	}
	for _, name := range names {
		if !strings.Contains(stdout.String(), "| "+name+" ") {
			t.Errorf("%q is missing", name)
		}
	}
}

// checkTable requires a figure above zero in the first column of every competitor, and its row in
// the text for people.
func checkTable(t *testing.T, section string, table *Table, text string) {
	t.Helper()
	if len(table.Rows) < 2 {
		t.Errorf("%s: table %q compares nobody", section, table.Title)
	}
	for _, row := range table.Rows {
		if !strings.Contains(text, "| "+row.Name+" ") {
			t.Errorf("%s: row %q is not shown", section, row.Name)
		}
		if len(row.Rounds) != 1 || row.Medians[table.Columns[0]] <= 0 {
			t.Errorf("%s: row %q has %d rounds and %v", section, row.Name, len(row.Rounds), row.Medians)
		}
		for name, v := range row.Rounds[0] {
			used := strings.HasPrefix(name, "CPU ") || strings.HasPrefix(name, "WAL ") && section != "peers"
			if used && v <= 0 { // the relay of the log writes no log
				t.Errorf("%s: row %q: %s is %v", section, row.Name, name, v)
			}
		}
	}
}

func TestRunRefusesWrongCalls(t *testing.T) {
	for _, args := range [][]string{
		{"-sections", "nothing"}, {"-rounds", "0"}, {"-only", "("}, {"-unknown"}, {"surplus"}, nil,
	} {
		var stdout, stderr bytes.Buffer
		getenv := func(string) string { return strings.Repeat("postgres://127.0.0.1:1/none", len(args)) }
		if code := run(t.Context(), args, getenv, &stdout, &stderr); code != exitUsage {
			t.Errorf("%v: exit %d", args, code)
		}
		if stderr.Len() == 0 {
			t.Errorf("%v: no message", args)
		}
	}
}

func TestRunFailsWithoutServer(t *testing.T) {
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code := run(ctx, nil, func(string) string { return "postgres://127.0.0.1:1/none" }, &stdout, &stderr)
	if code != exitFailed || !strings.Contains(stderr.String(), "make services-up") {
		t.Errorf("exit %d, %q", code, stderr.String())
	}
}
