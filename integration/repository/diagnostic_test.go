package repository_test

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The mark is written even if the database cannot store the error text or the receipt.
func TestDiagnosticNeverBlocksOutcome(t *testing.T) {
	t.Parallel()
	narrow := func(typ string) func(t *testing.T, pool *sql.DB, d core.Dialect) {
		return func(t *testing.T, pool *sql.DB, d core.Dialect) {
			t.Helper()
			for _, column := range []string{"last_error", "last_error_code", "receipt"} {
				change := "ALTER TABLE outbox_event ALTER COLUMN " + column + " TYPE " + typ
				if d == core.MySQL {
					change = "ALTER TABLE outbox_event MODIFY " + column + " " + typ
				}
				if _, err := pool.ExecContext(t.Context(), change); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, c := range []struct {
		name    string
		db      func(*testing.T) testdb.DB
		prepare func(t *testing.T, pool *sql.DB, d core.Dialect)
		error   string // the stored error text of the first row
		receipt string
	}{
		{
			"MariaDB, connection of charset utf8", func(t *testing.T) testdb.DB { return mariaDBCharset(t, "utf8") },
			nil, "no ? today", "r?1",
		},
		{
			"MariaDB, connection of charset latin1",
			func(t *testing.T) testdb.DB { return mariaDBCharset(t, "latin1") },
			nil, "", "",
		},
		{
			"MariaDB, columns of charset latin1", testdb.MariaDB, narrow("VARCHAR(100) CHARACTER SET latin1"),
			"no ? today", "r?1",
		},
		{"MariaDB, short columns", testdb.MariaDB, narrow("VARCHAR(4)"), "", "r🤷1"},
		{"PostgreSQL, database in LATIN1", postgresLatin1, nil, "no ? today", "r?1"},
		{"PostgreSQL, short columns", testdb.Postgres, narrow("varchar(4)"), "", "r🤷1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := c.db(t)
			pool, repo := openRepository(t, db)
			if c.prepare != nil {
				c.prepare(t, pool, db.Dialect)
			}
			rows := []core.NewRow{sqlRow(t, "a", ""), sqlRow(t, "a", ""), sqlRow(t, "a", "")}
			insertHot(t, pool, repo, db.Dialect, rows...)
			var failures []core.Failure
			for i, n := range rows {
				failures = append(failures, core.Failure{
					ClaimRef: core.ClaimRef{ID: n.ID, ClaimNo: 1}, Kind: core.FailDead, Code: "boom",
					Message: []string{"no 🤷 today", strings.Repeat("\xff\x00", 10), ""}[i],
				})
			}
			changed, err := repo.MarkFailed(t.Context(), "n", failures)
			fixture.Must(t, err == nil && changed[0] && changed[1] && changed[2], "MarkFailed: %v, %v", changed, err)
			dead, err := repo.ListDead(t.Context(), core.DeadQuery{})
			fixture.Must(t, err == nil && len(dead) == 3, "%d dead, %v", len(dead), err)
			for _, d := range dead {
				fixture.Check(t, d.ID != rows[0].ID || c.error == "" || d.Error == c.error,
					"error %q, want %q", d.Error, c.error)
				fixture.Check(t, d.ErrorCode == "boom", "code %q", d.ErrorCode)
			}
			n, err := repo.MarkDone(t.Context(), []core.Done{
				{ID: rows[0].ID, Receipt: "r🤷1"},
				{ID: rows[1].ID, Receipt: "\xff"},
				{ID: rows[2].ID},
			}, false)
			fixture.Must(t, err == nil && n == 3, "MarkDone: %d, %v", n, err)
			var receipt sql.NullString
			q, arg := "SELECT receipt FROM outbox_event WHERE id = ?", any(rows[0].ID[:])
			if db.Dialect == core.Postgres {
				q, arg = "SELECT receipt FROM outbox_event WHERE id = $1", rows[0].ID.String()
			}
			fixture.NoError(t, pool.QueryRowContext(t.Context(), q, arg).Scan(&receipt))
			fixture.Check(t, c.receipt == "" || receipt.String == c.receipt,
				"receipt %q, want %q", receipt.String, c.receipt)
		})
	}
}

// insertHot commits rows that are leased to the node "n".
func insertHot(t *testing.T, pool *sql.DB, repo *sqloutbox.Repository, d core.Dialect, rows ...core.NewRow) {
	t.Helper()
	for i := range rows {
		rows[i].Hot = true
	}
	commitRows(t, pool, repo, core.InsertRequest{
		Node: "n", ClaimNo: 1, Lease: 60e9,
		Rows: rows,
	})
}

func mariaDBCharset(t *testing.T, charset string) testdb.DB {
	t.Helper()
	db := testdb.MariaDB(t)
	cfg, err := mysql.ParseDSN(db.DSN)
	fixture.NoError(t, err)
	fixture.NoError(t, cfg.Apply(mysql.Charset(charset, "")))
	cfg.Collation = ""
	db.DSN = cfg.FormatDSN()
	return db
}

func postgresLatin1(t *testing.T) testdb.DB {
	t.Helper()
	db := testdb.Postgres(t)
	admin := db.Open(t)
	u, err := url.Parse(db.DSN)
	fixture.NoError(t, err)
	name := strings.TrimPrefix(u.Path, "/") + "_latin1"
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name+" ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE "+
		"'C' TEMPLATE template0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.ExecContext(context.Background(), "DROP DATABASE IF EXISTS "+name+
			" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	u.Path = "/" + name
	q := u.Query()
	q.Set("client_encoding", "UTF8") // otherwise the driver and the server would exchange bytes that are no text
	u.RawQuery = q.Encode()
	db.DSN = u.String()
	return db
}
