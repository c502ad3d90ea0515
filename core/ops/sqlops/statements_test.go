package sqlops_test

import (
	"database/sql"
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqltexts"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

var update = flag.Bool("update", false, "write the golden files")

// The golden files have every statement as it is sent, so that a review shows a change of any.
func TestStatementTexts(t *testing.T) {
	for _, cfg := range []sqloutbox.Config{
		{Dialect: core.Postgres, Schema: "app"}, {Dialect: core.MySQL}, {Dialect: core.SQLite},
	} {
		t.Run(string(cfg.Dialect), func(t *testing.T) {
			repo, err := sqloutbox.New(new(sql.DB), cfg)
			if err != nil {
				t.Fatal(err)
			}
			texts, err := sqlops.Texts(repo.Tables())
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", string(cfg.Dialect)+".statements.sql")
			if err := sqltexts.Golden(path, sqltexts.Format(texts), *update); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := sqlops.New(nil); err == nil {
		t.Error("a nil Outbox was accepted")
	}
	ob, err := core.New(core.Config{Repository: other{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sqlops.New(ob); err == nil || !strings.Contains(err.Error(), "sqloutbox") {
		t.Errorf("another Repository: %v", err)
	}
}

// other is a Repository of another package.
type other struct{ core.Repository }
