package sqloutbox_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqltexts"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

var update = flag.Bool("update", false, "write the golden files")

var goldenCases = []struct {
	file    string
	cfg     sqloutbox.Config
	mariadb bool
}{
	{"postgres", sqloutbox.Config{Dialect: core.Postgres, Schema: "app"}, false},
	{
		"postgres-partitions",
		sqloutbox.Config{Dialect: core.Postgres, Schema: "app", PartitionEvery: 24 * time.Hour},
		false,
	},
	{"mariadb", sqloutbox.Config{Dialect: core.MySQL}, true},
	{"mysql", sqloutbox.Config{Dialect: core.MySQL}, false},
	{"sqlite", sqloutbox.Config{Dialect: core.SQLite}, false},
}

// The golden files have every statement as it is sent, so that a review shows a change of any.
func TestStatementTexts(t *testing.T) {
	for _, c := range goldenCases {
		t.Run(c.file, func(t *testing.T) {
			texts, err := sqloutbox.Texts(c.cfg, c.mariadb)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, c.file+".statements.sql", sqltexts.Format(texts))
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
	if err := sqltexts.Golden(filepath.Join("testdata", name), got, *update); err != nil {
		t.Error(err)
	}
}

// Statements compare only with times that an index condition can use, so never with
// clock_timestamp().
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

// A row's address (ctid) belongs to another row as soon as VACUUM has run, so no statement returns
// one, and none takes one as a parameter.
func TestPostgresAddressesStayInTheirStatement(t *testing.T) {
	for _, every := range []time.Duration{0, time.Hour} {
		texts, err := sqloutbox.Texts(sqloutbox.Config{Dialect: core.Postgres, PartitionEvery: every}, false)
		if err != nil {
			t.Fatal(err)
		}
		used := 0
		for name, text := range texts {
			if address.MatchString(text) {
				used++
			}
			if m := leak(text); m != "" {
				t.Errorf("%s lets an address in or out: %s", name, m)
			}
			// With partitions an address alone names one row of each.
			if m := addressAlone.FindString(text); m != "" && every > 0 {
				t.Errorf("%s of a table with partitions finds rows by %s", name, m)
			}
		}
		if used < 3 {
			t.Errorf("%d statements use addresses, want at least the three claims", used)
		}
	}
	const take = "UPDATE x e SET a = 1 WHERE e.ctid = ANY (ARRAY(SELECT tid FROM c)) RETURNING "
	for _, text := range []string{
		"SELECT e.id, e.ctid FROM x e",
		"SELECT c.tid::text FROM (SELECT e.ctid AS tid FROM x e) c",
		"WITH c AS (SELECT e.ctid AS tid FROM x e) SELECT * FROM c",
		"WITH c AS (SELECT e.ctid AS tid FROM x e) SELECT c.* FROM c",
		"WITH c AS (SELECT e.ctid AS tid FROM x e) SELECT (SELECT array_agg(tid) FROM c)",
		"WITH c AS (SELECT e.ctid AS tid FROM x e) SELECT COALESCE(string_agg(tid::text, ' '), '')\nFROM c",
		"SELECT 1 FROM y UNION ALL SELECT e.ctid FROM x e",
		"WITH c AS (SELECT 1), taken AS (" + take + "e.id, e.ctid) SELECT taken.* FROM taken",
		"WITH c AS (SELECT 1) " + take + "e.ctid",
		"WITH c AS (SELECT 1) " + take + "*",
		"UPDATE x e SET a = 1 WHERE e.ctid = $1",
		"UPDATE x e SET a = 1 WHERE e.ctid = ANY ($1)",
		"UPDATE x e SET a = 1 FROM unnest($1::tid[]) v(tid) WHERE e.ctid = v.tid",
		"UPDATE x e SET a = 1 WHERE e.ctid IN (SELECT v::tid FROM unnest($1::text[]) v)",
	} {
		if leak(text) == "" {
			t.Errorf("not seen: %s", text)
		}
	}
	if m := leak("WITH c AS (SELECT e.ctid AS tid FROM x e) " + take + "e.id"); m != "" {
		t.Errorf("a claim was taken for a leak: %s", m)
	}
}

var (
	addressAlone = regexp.MustCompile(`ctid\s*=|ON\s+\w+\.tid\s*=`)

	address   = regexp.MustCompile(`\bc?tid\b`)
	addressIn = regexp.MustCompile(`::\s*tid\b|\bctid\s*(=|IN)\s*(ANY\s*)?\(?\s*\$\d+`)
	selected  = regexp.MustCompile(`(?s)\bSELECT\s.*?(\sFROM\s|$)`)
	returned  = regexp.MustCompile(`(?s)\bRETURNING\s.*$`)
	allOf     = regexp.MustCompile(`(?:SELECT|RETURNING|,)\s+((?:\w+\.)?\*)`)
)

// leak returns the part of a statement that takes or returns an address.
func leak(text string) string {
	if m := addressIn.FindString(text); m != "" {
		return m
	}
	// Columns of an inner SELECT are seen only by the parts around it. So the check needs the
	// outermost lists of a SELECT, where taken.* names the columns of an UPDATE, and the RETURNING
	// of every part.
	outer := outermost(text)
	for _, at := range selected.FindAllStringIndex(outer, -1) {
		list := text[at[0]:at[1]]
		if address.MatchString(list) {
			return list
		}
		for _, m := range allOf.FindAllStringSubmatch(outer[at[0]:at[1]], -1) {
			if m[1] != "taken.*" {
				return list
			}
		}
	}
	for _, part := range append(parentheses(text), text) {
		outer := outermost(part)
		if at := returned.FindStringIndex(outer); at != nil {
			if list := part[at[0]:]; address.MatchString(list) || allOf.MatchString(outer[at[0]:]) {
				return list
			}
		}
	}
	return ""
}

// outermost blanks what is in parentheses.
func outermost(text string) string {
	b, depth := []byte(text), 0
	for i, c := range b {
		if c == ')' {
			depth--
		}
		if depth > 0 {
			b[i] = '.'
		}
		if c == '(' {
			depth++
		}
	}
	return string(b)
}

// parentheses returns the texts in parentheses, also those inside others.
func parentheses(text string) (parts []string) {
	var open []int
	for i := range len(text) {
		switch text[i] {
		case '(':
			open = append(open, i+1)
		case ')':
			parts = append(parts, text[open[len(open)-1]:i])
			open = open[:len(open)-1]
		}
	}
	return parts
}

// Everything that a dialect does in its own way is in an outboxsql.ByDialect. No other file asks which
// dialect it is.
func TestOneFileTellsDialectsApart(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	asks := regexp.MustCompile(`[!=]= core\.(Postgres|MySQL|SQLite)\b|case core\.(Postgres|MySQL|SQLite)\b`)
	found := 0
	for _, file := range files {
		// with_pool.go refuses a Config that is not for the database of its Pool.
		if strings.HasSuffix(file, "_test.go") || file == "with_pool.go" {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range asks.FindAllString(string(src), -1) {
			if found++; file != "dialects.go" {
				t.Errorf("%s: %q: use outboxsql.ByDialect", file, m)
			}
		}
	}
	if found == 0 {
		t.Error("no file tells dialects apart: the pattern is wrong")
	}
}
