package sqloutbox_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

var update = flag.Bool("update", false, "write the golden files")

var goldenCases = []struct {
	file    string
	cfg     sqloutbox.Config
	mariadb bool
}{
	{"postgres", sqloutbox.Config{Dialect: core.Postgres, Schema: "app"}, false},
	{"mariadb", sqloutbox.Config{Dialect: core.MySQL}, true},
	{"mysql", sqloutbox.Config{Dialect: core.MySQL}, false},
	{"sqlite", sqloutbox.Config{Dialect: core.SQLite}, false},
}

// Every statement as it is sent, so that a change of one is seen in a review.
func TestStatementTexts(t *testing.T) {
	for _, c := range goldenCases {
		t.Run(c.file, func(t *testing.T) {
			texts, err := sqloutbox.Texts(c.cfg, c.mariadb)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, name := range slices.Sorted(maps.Keys(texts)) {
				fmt.Fprintf(&b, "-- %s\n%s\n\n", name, texts[name])
			}
			golden(t, c.file+".statements.sql", b.String())
		})
	}
}

func TestMigrationTexts(t *testing.T) {
	for _, c := range goldenCases {
		if c.file == "mysql" {
			continue // the files of MariaDB
		}
		t.Run(c.file, func(t *testing.T) {
			migrations, err := sqloutbox.Migrations(c.cfg)
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
			golden(t, c.file+".migrations.sql", b.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	// {ids} and {whens} are filled in later
	if m := regexp.MustCompile(`\{[a-hj-z][a-z]*[:}]`).FindString(strings.ReplaceAll(got, "{whens}", "")); m != "" {
		t.Errorf("%s is left in the text", m)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs: look at the difference after `go test ./core/sqloutbox -run Texts -update`", path)
	}
}

// Claims never use a clock that an index condition could not use, and every statement stays inside
// the three tables.
func TestPostgresClaimsCompareStableTime(t *testing.T) {
	texts, err := sqloutbox.Texts(sqloutbox.Config{Dialect: core.Postgres}, false)
	if err != nil {
		t.Fatal(err)
	}
	volatile := regexp.MustCompile(`(<|<=|>|>=) *clock_timestamp\(\)`)
	for name, text := range texts {
		if m := volatile.FindString(text); m != "" || strings.Contains(text, "now()") {
			t.Errorf("%s compares with a time that is no index condition: %s", name, m)
		}
	}
}
