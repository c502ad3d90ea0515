package main

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestTorture runs the section for a few seconds. The program fails unless the events that were
// published are those that were written.
func TestTorture(t *testing.T) {
	if os.Getenv("OUTBOX_TEST_POSTGRES") == "" {
		t.Fatal("OUTBOX_TEST_POSTGRES is not set: start the servers with `make services-up` and run the tests with " +
			"`make test`, or `eval \"$(scripts/services env)\"` first")
	}
	dir := t.TempDir()
	opts, err := parseOptions([]string{
		"-sections", "torture", "-rate", "200", "-samples", filepath.Join(dir, "samples.csv"), "-picture",
		filepath.Join(dir, "picture.svg"),
	}, os.Getenv, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	opts.torture = 1500 * time.Millisecond
	var stdout, stderr bytes.Buffer
	report, err := measure(t.Context(), opts, &stdout, &stderr)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
	}
	rows := report.Sections[0].Tables[0].Rows
	if len(rows) != len(torturedOnes) {
		t.Errorf("%d rows, want %d", len(rows), len(torturedOnes))
	}
	for _, r := range rows {
		if r.Medians["events/s"] <= 0 || r.Medians["claim p99 ms, reports"] <= 0 {
			t.Errorf("%s: %v", r.Name, r.Medians)
		}
	}
	samples, err := os.Open(opts.samples)
	if err != nil {
		t.Fatal(err)
	}
	defer samples.Close()
	lines, err := csv.NewReader(samples).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]string{}
	for _, line := range lines[1:] {
		written[line[0]] = line[3]
	}
	for _, c := range torturedOnes {
		if n, err := strconv.Atoi(written[c.name]); err != nil || n == 0 {
			t.Errorf("%s has no events in the samples: %v", c.name, written)
		}
	}
	picture, err := os.ReadFile(opts.picture)
	if err != nil {
		t.Fatal(err)
	}
	checkPicture(t, picture, len(torturedOnes))
}

// checkPicture requires well-formed XML with a line of each competitor in each panel and in the
// legend.
func checkPicture(t *testing.T, picture []byte, competitors int) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(picture))
	lines := map[string]int{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, picture)
		}
		e, ok := token.(xml.StartElement)
		if !ok || e.Name.Local != "path" {
			continue
		}
		for _, a := range e.Attr {
			if a.Name.Local == "class" && strings.HasPrefix(a.Value, "line ") {
				lines[a.Value]++
			}
		}
	}
	if len(lines) != competitors {
		t.Errorf("lines of %v, want %d competitors", lines, competitors)
	}
	for class, n := range lines {
		if n != 1+len(torturePanels) {
			t.Errorf("%d lines of %s, want one in the legend and one in each of %d panels", n, class,
				len(torturePanels))
		}
	}
	if strings.Contains(string(picture), "NaN") || strings.Contains(string(picture), "Inf") {
		t.Errorf("not a number:\n%s", picture)
	}
}

// TestTorturePictureScale has a line that is flat at the floor, and one that grows a
// thousandfold: it ends at the top.
func TestTorturePictureScale(t *testing.T) {
	var all []tortureSample
	for i := range 900 {
		at := time.Duration(i+1) * time.Second
		reports := i >= 60 && i < 840
		all = append(all, tortureSample{competitor: "flat", at: at, reports: reports},
			tortureSample{competitor: "grows", at: at, reports: reports, written: int64(1000 * (i + 1) / 900)})
	}
	picture := torturePicture(all)
	checkPicture(t, picture, 2)
	if len(picture) > 32<<10 {
		t.Errorf("%d bytes", len(picture))
	}
	bottom, top := strconv.Itoa(panelTop+panelHeight)+".0", strconv.Itoa(panelTop)+".0"
	for class, ends := range map[string]string{"s0": " " + bottom + `"`, "s1": " " + top + `"`} {
		_, line, _ := strings.Cut(string(picture), `<path class="line `+class+`" d="M74`)
		_, line, _ = strings.Cut(string(picture)[len(picture)-len(line):], `<path class="line `+class+`"`)
		if line, _, _ = strings.Cut(line, "/>"); !strings.HasSuffix(line, ends) {
			t.Errorf("the line %s ends with %q, want %q", class, line[max(0, len(line)-20):], ends)
		}
	}
}
