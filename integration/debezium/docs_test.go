package debezium_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// The documentation shows the files with which the test runs.
func TestDocumentShowsTheFiles(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(fixture.Root(t), "docs", "debezium.md"))
	fixture.NoError(t, err)
	for name, language := range map[string]string{
		"postgres.sql": "sql", "outbox.properties": "properties", "stock.sql": "sql",
	} {
		if want := "```" + language + "\n" + text(t, name) + "```\n"; !strings.Contains(string(b), want) {
			t.Errorf("docs/debezium.md does not show docs/debezium/%s as it is", name)
		}
	}
}
