package workspace_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The order service of each library prints the same lines on PostgreSQL too. The tests of the
// services run them on SQLite.
func TestExamplesOnPostgreSQL(t *testing.T) {
	t.Parallel()
	root, _ := workspace(t)
	const want = `placed order-1 for ada: 4200 cents
paid order-1
refused: card declined
consumer: order.placed order-1 {"order_id":"order-1","customer":"ada","cents":4200}
consumer: order.paid order-1 {"order_id":"order-1"}
2 events, none of the refused order
`
	for _, name := range []string{"bun", "ent", "gorm", "sql"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Postgres(t)
			program := filepath.Join(t.TempDir(), name)
			goTool(t, filepath.Join(root, "examples"), "build", "-o", program, "./"+name)
			for range 2 { // the second run uses the tables that the first has left behind
				cmd := exec.CommandContext(t.Context(), program)
				cmd.Env = append(os.Environ(), "DATABASE_URL="+db.DSN)
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				if err != nil || string(out) != want {
					t.Fatalf("%v: %s\nprinted:\n%s\nwant:\n%s", err, &stderr, out, want)
				}
			}
		})
	}
}

// The example consumers of each library are whole programs that run on SQLite.
func TestExamplesOfConsumers(t *testing.T) {
	t.Parallel()
	root, _ := workspace(t)
	for _, name := range []string{"bun", "ent", "gorm", "sql"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := filepath.Join(t.TempDir(), name)
			goTool(t, filepath.Join(root, "examples"), "build", "-o", program, "./consumer/"+name)
			out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
			if err != nil || string(out) != "100 cents\n" {
				t.Errorf("%v, printed:\n%s", err, out)
			}
		})
	}
}
