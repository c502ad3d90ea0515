package upgrade_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// version has the programs of a version of the code.
type version struct {
	process string // testdata/process.go.txt
	cli     string // cmd/outbox, of the later version
}

var (
	folder string // has the programs

	// built are the version before and the later one.
	built = sync.OnceValues(func() (before, later version) {
		folder, failed = os.MkdirTemp("", "upgrade")
		return build("before", ""), build("later", overlay())
	})
	failed error // of built
)

func TestMain(m *testing.M) {
	code := m.Run()
	if folder != "" {
		_ = os.RemoveAll(folder)
	}
	os.Exit(code)
}

// versions builds the programs, once for all tests.
func versions(t *testing.T) (before, later version) {
	t.Helper()
	before, later = built()
	fixture.NoError(t, failed)
	return before, later
}

// root is the folder of the repository.
var root = filepath.Join("..", "..")

// overlay writes the file that adds the migrations of testdata/next to those of the present code.
func overlay() (path string) {
	replace := map[string]string{}
	for tables, dest := range map[string]string{"outbox": "core/sqloutbox", "inbox": "core/inbox/sqlinbox"} {
		from := filepath.Join("testdata", "next", tables)
		keep(filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			name, _ := filepath.Rel(from, path)
			replace[absolute(filepath.Join(root, dest, "schema", name))] = absolute(path)
			return nil
		}))
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	keep(err)
	path = filepath.Join(folder, "overlay.json")
	keep(os.WriteFile(path, text, 0o600))
	return path
}

// build compiles the programs of a version.
func build(name, overlay string) (v version) {
	dir := filepath.Join(folder, name)
	keep(os.Mkdir(dir, 0o700))
	v = version{filepath.Join(dir, "process"), filepath.Join(dir, "outbox")}
	for name, text := range map[string]string{
		"go.mod": module(), "go.sum": read(filepath.Join("..", "go.sum")),
		"main.go": read(filepath.Join("testdata", "process.go.txt")),
	} {
		keep(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	run := func(dir string, env []string, args ...string) {
		args = append([]string{"build", "-buildvcs=false", "-overlay=" + overlay}, args...)
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			keep(errors.New(strings.Join(args, " ") + ": " + string(out)))
		}
	}
	run(dir, []string{"GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off"}, "-o", v.process, ".")
	if overlay != "" {
		run(filepath.Join(root, "cmd", "outbox"), nil, "-o", v.cli, ".")
	}
	return v
}

// module is a module that requires the same modules as the integration module, so the module cache
// has all of them.
func module() string {
	var mod strings.Builder
	for line := range strings.Lines(read(filepath.Join("..", "go.mod"))) {
		if !strings.Contains(line, "github.com/ormoutbox/") {
			mod.WriteString(line)
		}
	}
	mod.WriteString("module process\nrequire github.com/ormoutbox/ormoutbox v0.0.0\n" +
		"replace github.com/ormoutbox/ormoutbox => " + absolute(root) + "\n")
	return mod.String()
}

func read(path string) string {
	text, err := os.ReadFile(path)
	keep(err)
	return string(text)
}

func absolute(path string) string {
	path, err := filepath.Abs(path)
	keep(err)
	return path
}

// keep remembers an error of built.
func keep(err error) { failed = errors.Join(failed, err) }
