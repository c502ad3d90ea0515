package main

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"fmt"
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
		// Watermill waits for all older transactions of the server, also those of other tests.
		if left, found := r.Medians["left"]; found && r.Name != wmName {
			t.Errorf("%s left %.0f events unpublished or open", r.Name, left)
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

// checkPicture requires well-formed XML with a line of each competitor in the legend and in each
// panel, and returns the lines by their classes.
func checkPicture(t *testing.T, picture []byte, competitors int) map[string][]string {
	t.Helper()
	var svg struct {
		Paths []struct {
			Class string `xml:"class,attr"`
			D     string `xml:"d,attr"`
		} `xml:"path"`
	}
	if err := xml.Unmarshal(picture, &svg); err != nil {
		t.Fatalf("%v\n%s", err, picture)
	}
	lines := map[string][]string{}
	for _, p := range svg.Paths {
		if strings.HasPrefix(p.Class, "line ") {
			lines[p.Class] = append(lines[p.Class], p.D)
		}
	}
	if len(lines) != competitors {
		t.Errorf("%d competitors, want %d", len(lines), competitors)
	}
	for class, all := range lines {
		if len(all) != 1+len(torturePanels) {
			t.Errorf("%d lines of %s, want one in the legend and one in each of %d panels", len(all), class,
				len(torturePanels))
		}
	}
	if bytes.Contains(picture, []byte("NaN")) || bytes.Contains(picture, []byte("Inf")) {
		t.Errorf("not a number:\n%s", picture)
	}
	return lines
}

// TestTorturePictureScale has a line that stays at the bottom, and one that grows a thousandfold to
// the top.
func TestTorturePictureScale(t *testing.T) {
	var all []tortureSample
	for i := range 900 {
		s := tortureSample{competitor: "flat", at: time.Duration(i+1) * time.Second, reports: i >= 60 && i < 840}
		all = append(all, s)
		s.competitor, s.written = "grows", int64(1000*(i+1)/900)
		all = append(all, s)
	}
	picture := torturePicture(all)
	if len(picture) > 32<<10 {
		t.Errorf("%d bytes", len(picture))
	}
	lines := checkPicture(t, picture, 2)
	for class, y := range map[string]int{"line s0": panelTop + panelHeight, "line s1": panelTop} {
		if end := fmt.Sprintf(" %d.0", y); len(lines[class]) < 2 || !strings.HasSuffix(lines[class][1], end) {
			t.Errorf("%s: %q does not end with %q", class, lines[class], end)
		}
	}
}
