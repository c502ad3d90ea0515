package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// Packages of another suite come from the site that the system uses, in both formats of apt's
// sources. The entries of others, of other releases and of other parts of Debian are left alone.
func TestAptSource(t *testing.T) {
	t.Parallel()
	const list = `deb http://other.example/tools bookworm main
deb http://mirror.example/debian-security bookworm-security main
# deb http://old.example/debian bookworm main
deb [arch=amd64 signed-by=/keys/debian-archive-keyring.gpg] http://mirror.example/d bookworm contrib main # ours
deb http://mirror.example/debian bookworm-updates main
`
	const sources = `# A page of the manual.

Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Enabled: no

Types: deb deb-src
# a snapshot
URIs: http://mirror.example/debian/
Suites: stable
 stable-updates
Components: main contrib
Signed-By:
 -----BEGIN
 .
 key

Types: deb
URIs: http://mirror.example/debian
Suites: bookworm-security
Components: main
`
	const fromSources = `sources
Types: deb
Suites: sid
Components: main
URIs: http://mirror.example/debian/
Signed-By:
 -----BEGIN
 .
 key
`
	const fromList = "list\n" +
		"deb [arch=amd64 signed-by=/keys/debian-archive-keyring.gpg] http://mirror.example/d sid main\n"
	for name, c := range map[string]struct{ list, sources, want string }{
		"lines":   {list, "", fromList},
		"deb822":  {"", sources, fromSources},
		"others":  {"deb http://other.example/tools bookworm main\n", sources, fromSources},
		"nothing": {"deb http://archive.example/ubuntu noble main\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			fixture.NoError(t, os.WriteFile(filepath.Join(dir, "apt.list"), []byte(c.list), 0o600))
			fixture.NoError(t, os.WriteFile(filepath.Join(dir, "apt.sources"), []byte(c.sources), 0o600))
			cmd := exec.CommandContext(t.Context(), filepath.Join(fixture.Root(t), "scripts", "apt-source"), "sid",
				filepath.Join(dir, "apt.list"), filepath.Join(dir, "apt.sources"), filepath.Join(dir, "missing.list"))
			cmd.Env = append(os.Environ(), "VERSION_CODENAME=bookworm")
			out, err := cmd.Output()
			if string(out) != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%v, got\n%swant\n%s", err, out, c.want)
			}
		})
	}
}
