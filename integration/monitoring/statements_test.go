package monitoring

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Each database understands the statements about the outbox's table that docs/monitoring.md gives
// to the person on call.
func TestStatementsOfThePage(t *testing.T) {
	t.Parallel()
	page := string(read(t, filepath.Join(fixture.Root(t), "docs", "monitoring.md")))
	var statements []string
	for _, m := range regexp.MustCompile("`(SELECT [^`]+)`|```sql\n([^`]+)```").FindAllStringSubmatch(page, -1) {
		if text := strings.Join(strings.Fields(m[1]+m[2]), " "); strings.Contains(text, "FROM outbox_event ") {
			statements = append(statements, strings.TrimSuffix(text, ";"))
		}
	}
	fixture.Must(t, len(statements) != 0, "docs/monitoring.md has no statements")
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		p := fixture.NewProcess(t, db, core.Config{})
		for _, statement := range statements {
			rows, err := p.Pool.QueryContext(t.Context(), statement)
			if err != nil {
				t.Errorf("%v\n%s", err, statement)
				continue
			}
			fixture.EachRow(t, rows, func() {})
		}
	})
}

// The commands that docs/monitoring.md gives to the person on call are commands of the program.
func TestCommandsOfThePage(t *testing.T) {
	t.Parallel()
	docs := filepath.Join(fixture.Root(t), "docs")
	cli := string(read(t, filepath.Join(docs, "cli.md")))
	page := string(read(t, filepath.Join(docs, "monitoring.md")))
	found := regexp.MustCompile("`(outbox [a-z]+)").FindAllStringSubmatch(page, -1)
	fixture.Must(t, len(found) != 0, "docs/monitoring.md has no commands")
	for _, m := range found {
		if !strings.Contains(cli, "\n## "+m[1]+"\n") && !strings.Contains(cli, "\n## "+m[1]+" ") { // a group
			t.Errorf("docs/cli.md has no %s", m[1])
		}
	}
}
