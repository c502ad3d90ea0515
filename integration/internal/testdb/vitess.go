package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/ormoutbox/ormoutbox/core"
)

// keyspaces is how many keyspaces k1, k2 and so on scripts/clusters/vitess declares. vtcombo makes no
// further ones.
const keyspaces = 16

// Vitess lends a keyspace of OUTBOX_TEST_VITESS to the test, and empties it. Tests wait until one is
// free.
func Vitess(t *testing.T) DB {
	t.Helper()
	address := os.Getenv("OUTBOX_TEST_VITESS")
	if address == "" {
		t.Fatal("OUTBOX_TEST_VITESS is not set: start Vitess with `eval \"$(scripts/services up vitess)\"`")
	}
	cfg, err := mysql.ParseDSN(address)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := sql.Open("mysql", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	lock, err := admin.Conn(ctx) // the lock of a keyspace belongs to it
	if err != nil {
		t.Fatalf("%v (start Vitess with `scripts/services up vitess`)", err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	cfg.DBName = lend(ctx, t, lock)
	db := DB{Name: "vitess", Dialect: core.MySQL, DSN: cfg.FormatDSN()}
	empty(ctx, t, db)
	t.Cleanup(func() { empty(context.WithoutCancel(ctx), t, db) }) // the schema of many tables is slow to read
	return db
}

// lend takes the lock of a free keyspace.
func lend(ctx context.Context, t *testing.T, lock *sql.Conn) string {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		for n := 1; n <= keyspaces; n++ {
			var got sql.NullInt64
			name := fmt.Sprintf("k%d", n)
			if err := lock.QueryRowContext(ctx, "SELECT GET_LOCK(?, 0)", "outbox_test_"+name).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got.Int64 == 1 {
				return name
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("no keyspace of Vitess became free")
		}
	}
}

// empty drops the tables and views that an earlier test has left.
func empty(ctx context.Context, t *testing.T, db DB) {
	t.Helper()
	pool := db.Open(t)
	defer pool.Close()
	rows, err := pool.QueryContext(ctx, "SHOW FULL TABLES")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var tables, views []string
	for rows.Next() {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			t.Fatal(err)
		}
		if name = "`" + name + "`"; kind == "VIEW" {
			views = append(views, name)
		} else {
			tables = append(tables, name)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for kind, names := range map[string][]string{"VIEW": views, "TABLE": tables} {
		if len(names) > 0 { // at once, because Vitess reads the whole schema after each
			execOn(t, pool, "DROP "+kind+" "+strings.Join(names, ", "))
		}
	}
}
