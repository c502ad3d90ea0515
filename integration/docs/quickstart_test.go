package docs

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The first page's program is examples/quickstart, and prints what the page says.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(root + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(readme), "```go\n")
	program, after, found := strings.Cut(after, "```\n")
	_, after, _ = strings.Cut(after, "$ go run ./examples/quickstart\n")
	output, _, ended := strings.Cut(after, "```")
	if !found || !ended {
		t.Fatal("README.md has no program with its output")
	}
	file, err := os.ReadFile(root + "/examples/quickstart/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if _, code, _ := strings.Cut(string(file), "\npackage main"); "package main"+code != program {
		t.Error("examples/quickstart/main.go is not the program of README.md")
	}

	run := exec.CommandContext(t.Context(), example(t, "quickstart"))
	run.Dir = t.TempDir()
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if string(out) != output {
		t.Errorf("the program prints\n%s\nREADME.md says\n%s", out, output)
	}
}

// The quick start replaces every module that a program may import.
func TestQuickstartReplacesAll(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(root + "/docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	_, loop, _ := strings.Cut(string(page), "for module in ")
	list, _, found := strings.Cut(loop, "; do\n")
	if !found {
		t.Fatal("docs/quickstart.md has no list of modules")
	}
	out, err := exec.CommandContext(t.Context(), "bash", "-c", "printf '%s\n' "+list).Output()
	if err != nil {
		t.Fatal(err)
	}
	replaced := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	work, err := os.ReadFile(root + "/go.work")
	if err != nil {
		t.Fatal(err)
	}
	modules := 0
	for line := range strings.Lines(string(work)) {
		path, isModule := strings.CutPrefix(strings.TrimSpace(line), ".")
		if !isModule || path == "/cmd/outbox" || path == "/examples" || strings.HasPrefix(path, "/integration") {
			continue
		}
		modules++
		if !slices.Contains(replaced, path) {
			t.Errorf("docs/quickstart.md does not replace module %q", path)
		}
	}
	if modules != len(replaced) {
		t.Errorf("docs/quickstart.md replaces %d modules, and go.work has %d", len(replaced), modules)
	}
}
