package upgrade_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// build compiles testdata/process.go.txt with the root module in a folder, and returns the program.
// It requires the same modules as the integration module, so the module cache has all of them.
func build(t *testing.T, module string) (program string) {
	t.Helper()
	dir := t.TempDir()
	integration := filepath.Join(fixture.Root(t), "integration")
	var mod strings.Builder
	for line := range strings.Lines(read(t, filepath.Join(integration, "go.mod"))) {
		if !strings.Contains(line, "github.com/ormoutbox/") {
			mod.WriteString(line)
		}
	}
	mod.WriteString("module process\nrequire github.com/ormoutbox/ormoutbox v0.0.0\n" +
		"replace github.com/ormoutbox/ormoutbox => " + module + "\n")
	for name, text := range map[string]string{
		"go.mod": mod.String(), "go.sum": read(t, filepath.Join(integration, "go.sum")),
		"main.go": read(t, filepath.Join("testdata", "process.go.txt")),
	} {
		fixture.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	program = filepath.Join(dir, "process")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -buildvcs=false", "GOPROXY=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("with the module in %s: %v\n%s", module, err, out)
	}
	return program
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	fixture.NoError(t, err)
	return string(text)
}

// unpack writes the files of testdata/before.tar.gz into a folder.
func unpack(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	f, err := os.Open(filepath.Join("testdata", "before.tar.gz"))
	fixture.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	fixture.NoError(t, err)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		fixture.NoError(t, err)
		if !filepath.IsLocal(h.Name) {
			t.Fatalf("the archive has a file %s", h.Name)
		}
		path := filepath.Join(dir, h.Name)
		fixture.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		text, err := io.ReadAll(r)
		fixture.NoError(t, err)
		fixture.NoError(t, os.WriteFile(path, text, 0o600))
	}
}
