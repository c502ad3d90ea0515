package docs

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
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
	if got := fixture.WithoutSlowSQL(string(out)); got != output {
		t.Errorf("the program prints\n%s\nREADME.md says\n%s", got, output)
	}
}
