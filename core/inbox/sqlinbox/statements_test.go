package sqlinbox

import (
	"flag"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
	"github.com/ormoutbox/ormoutbox/core/internal/sqltexts"
)

var update = flag.Bool("update", false, "write the golden files")

func TestTexts(t *testing.T) {
	statements := func(n sqlstore.Names) any { return newStatements(n) }
	if err := sqltexts.Files(tables, statements, *update, "insert_guarded"); err != nil {
		t.Error(err)
	}
}
