package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBenchRun runs every section with tiny sizes on a real PostgreSQL. The figures mean nothing,
// but the program ends with an error unless every competitor did its work.
func TestBenchRun(t *testing.T) {
	for _, name := range []string{
		"OUTBOX_TEST_POSTGRES", "OUTBOX_TEST_MARIADB", "OUTBOX_TEST_KAFKA", "OUTBOX_TEST_RABBITMQ",
	} {
		if os.Getenv(name) == "" {
			t.Fatal(name + " is not set: start the servers with `make services-up` and run the tests with " +
				"`make test`, or `eval \"$(scripts/services env)\"` first")
		}
	}
	debezium, err := exec.Command("../../scripts/debezium/fetch").Output()
	if err != nil {
		t.Fatal("scripts/debezium/fetch: ", err)
	}
	dir := t.TempDir()
	jsonFile, mdFile := filepath.Join(dir, "bench.json"), filepath.Join(dir, "benchmarks.md")
	page := "# Benchmarks\n\nbefore\n\n" + markerBegin + "\nof last year\n" + markerEnd + "\n\nafter\n"
	if err := os.WriteFile(mdFile, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}

	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{
		"-rounds", "1", "-duration", "20ms", "-events", "300", "-history", "1000", "-backlog", "700",
		"-cap", "20s", "-keys", "50", "-debezium", strings.TrimSpace(string(debezium)),
		"-json", jsonFile, "-update", mdFile,
	}, os.Getenv, &stdout, &stderr)
	if code != exitDone {
		t.Fatalf("exit %d\n%s\n%s", code, stdout.String(), stderr.String())
	}
	if stderr.Len() > 0 {
		t.Errorf("stderr, which is no terminal, got %q", stderr.String())
	}

	b, err := os.ReadFile(jsonFile)
	if err != nil {
		t.Fatal(err)
	}
	var report Report
	if err := json.Unmarshal(b, &report); err != nil {
		t.Fatal(err)
	}
	md, err := os.ReadFile(mdFile)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(md); !strings.HasPrefix(s, "# Benchmarks\n\nbefore\n\n"+markerBegin) ||
		!strings.HasSuffix(s, markerEnd+"\n\nafter\n") || strings.Contains(s, "of last year") {
		t.Errorf("the page around the tables is not as it was:\n%s", s)
	}
	if !strings.Contains(report.Machine.Postgres, "PostgreSQL") || report.Machine.CPUs == 0 ||
		report.Options.Events != 300 {
		t.Errorf("machine %+v, options %+v", report.Machine, report.Options)
	}

	if len(report.Sections) != len(sections) {
		t.Fatalf("%d sections, want %d", len(report.Sections), len(sections))
	}
	for i, s := range report.Sections {
		if s.Name != sections[i].name || len(s.Tables) == 0 {
			t.Errorf("section %d is %q with %d tables", i, s.Name, len(s.Tables))
		}
		for _, text := range []string{s.Title} {
			if !strings.Contains(stdout.String(), text) || !strings.Contains(string(md), text) {
				t.Errorf("%q is not shown", text)
			}
		}
		for _, table := range s.Tables {
			checkTable(t, s.Name, table, stdout.String(), string(md))
		}
		checkPlot(t, s, filepath.Join(dir, "assets", "bench-"+s.Name+".svg"))
		if s.Name != "steady" && s.Name != "http" && len(s.Aims) == 0 {
			t.Errorf("section %s has no aims", s.Name)
		}
	}
	for _, name := range []string{
		"database/sql + outbox, ordered, through pgxoutbox", "GORM alone", "pgx alone", "pgx + second model row",
		"pgx + outbox, unordered", "pgx + outbox, ordered, relay in this process",
		"Ent + second model row", "Bun + outbox, ordered",
		"GORM + outbox, unordered, relay in this process", oursName, handName, handPipedName, wmDefaultName, wmBestName,
		rvDefaultName, rvBestName, channelName, fastPathName, steadyHand,
		"PostgreSQL, woken", "PostgreSQL, notifying a relay", "SQLite, polled",
		"SQLite, ordered events", "MariaDB, ordered events", "4 × " + oursName, "4 × " + handName,
		"1 × " + oursName + ", 128 workers", "Kafka, 128 at once", "RabbitMQ, 32 at once", "ormoutbox, ordered",
		"the publisher alone, unordered", "outbox, RabbitMQ",
		logRaw + ", ordered", logPollKafka + ", ordered", logFranz + ", unordered", logNone + ", ordered",
		logReceived + ", ordered", logDebezium + ", ordered", logLatencyFast,
		logLatencyWoken, logLatencyLog, logLatencyDbz,
		handInboxName, inboxName, inboxBatchName, httpPlainName, httpTxName, httpLeaseName, httpReplayName,
	} {
		if !strings.Contains(stdout.String(), name) {
			t.Errorf("competitor %q is missing", name)
		}
	}
}

// checkPlot requires well-formed XML with a bar and its range for every row.
func checkPlot(t *testing.T, s *Section, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	rows, elements := 0, map[string]int{}
	for _, table := range s.Tables {
		rows += len(table.Rows)
	}
	for d := xml.NewDecoder(bytes.NewReader(b)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
			return
		}
		if start, ok := token.(xml.StartElement); ok {
			elements[start.Name.Local]++
		}
	}
	if elements["rect"] != rows || elements["line"] != rows {
		t.Errorf("%s has %d bars and %d ranges for %d rows", file, elements["rect"], elements["line"], rows)
	}
}

// checkTable requires a figure above zero for every competitor in every round, and a line for each
// row in the text for people.
func checkTable(t *testing.T, section string, table *Table, text, md string) {
	t.Helper()
	if len(table.Rows) < 2 {
		t.Errorf("%s: table %q compares nobody", section, table.Title)
	}
	for _, row := range table.Rows {
		if !strings.Contains(text, row.Name) || !strings.Contains(md, "| "+row.Name+" |") {
			t.Errorf("%s: row %q is not shown", section, row.Name)
		}
		if len(row.Values) != len(table.Columns) || len(row.Rounds) != 1 {
			t.Errorf("%s: row %q has %d figures and %d rounds", section, row.Name, len(row.Values), len(row.Rounds))
			continue
		}
		if v := row.Values[0]; v.isNone() || v <= 0 {
			t.Errorf("%s: row %q: %s is %v", section, row.Name, table.Columns[0].Name, v)
		}
		for i, c := range table.Columns {
			v := row.Values[i]
			switch {
			case c.Name == "duplicates" && v > 0:
				t.Errorf("%s: row %q has duplicates", section, row.Name)
			case strings.HasPrefix(row.Name, logRaw): // a client alone, without a database
			case strings.HasPrefix(c.Name, "WAL ") && (v.isNone() || v <= 0):
				t.Errorf("%s: row %q has no log: %v", section, row.Name, v)
			case strings.HasPrefix(c.Name, "CPU ") && !v.isNone() && v <= 0: // none: the server is not on this machine
				t.Errorf("%s: row %q took no CPU time: %v", section, row.Name, v)
			}
		}
	}
}

func TestRunRefusesWrongCalls(t *testing.T) {
	for _, args := range [][]string{
		{"-sections", "nothing"},
		{"-rounds", "0"},
		{"-events", "100000000"},
		{"-only", "("},
		{"-unknown"},
		{"surplus"},
		{"-dsn", ""},
	} {
		var stdout, stderr bytes.Buffer
		getenv := func(string) string { return "postgres://127.0.0.1:1/none" }
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
	code := run(ctx, []string{"-dsn", "postgres://127.0.0.1:1/none"}, func(string) string { return "" }, &stdout,
		&stderr)
	if code != exitFailed || !strings.Contains(stderr.String(), "make services-up") {
		t.Errorf("exit %d, %q", code, stderr.String())
	}
}
