package sqlinbox_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/internal/sqltexts"
)

var update = flag.Bool("update", false, "write the golden files")

var goldenCases = map[string]sqlinbox.Config{
	"postgres": {Dialect: core.Postgres, Schema: "app"},
	"mysql":    {Dialect: core.MySQL, Prefix: "my_"},
	"sqlite":   {Dialect: core.SQLite},
}

// The golden file has every statement as it is sent, so that a review shows each change of one.
func TestStatementTexts(t *testing.T) {
	for name, cfg := range goldenCases {
		t.Run(name, func(t *testing.T) {
			texts, err := sqlinbox.Texts(cfg)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".statements.sql", sqltexts.Format(texts))
		})
	}
}

func TestMigrationTexts(t *testing.T) {
	for name, cfg := range goldenCases {
		t.Run(name, func(t *testing.T) {
			migrations, err := sqlinbox.Migrations(cfg)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for i, m := range migrations {
				if m.Version != i+1 || m.Name == "" || m.Up == "" || m.Down == "" {
					t.Errorf("migration %d is %d %q", i, m.Version, m.Name)
				}
				fmt.Fprintf(&b, "-- %04d_%s\n%s\n-- down\n%s\n", m.Version, m.Name, m.Up, m.Down)
			}
			golden(t, name+".migrations.sql", b.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if err := sqltexts.Golden(filepath.Join("testdata", name), got, *update); err != nil {
		t.Error(err)
	}
}
