package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// A data race fails a run, although each test has passed, and its report is printed.
func TestDataRaceFailsRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gotestsum, last string
		passes          bool
	}{
		"no race": {"echo DONE", "DONE", true},
		"race": {
			`echo 'WARNING: DATA RACE' >"${GORACE#*log_path=}.17"`, "failed: 0, and a data race was found", false,
		},
		"failed test": {`echo '=== FAIL: core TestX/one (0.10s)'; exit 1`, "failed: 1\n  core TestX/one", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gotestsum := filepath.Join(t.TempDir(), "gotestsum")
			fixture.NoError(t, os.WriteFile(gotestsum, []byte("#!/bin/bash\n"+c.gotestsum+"\n"), 0o700))
			cmd := exec.CommandContext(t.Context(), filepath.Join(fixture.Root(t), "scripts", "gotest"), "./...")
			cmd.Env = append(os.Environ(), "GOTESTSUM="+gotestsum, "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			if (err == nil) != c.passes || !strings.HasSuffix(string(out), c.last+"\n") ||
				strings.Contains(string(out), "DATA RACE") != (name == "race") {
				t.Errorf("%v, want passed %v:\n%s", err, c.passes, out)
			}
		})
	}
}
