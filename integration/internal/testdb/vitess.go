package testdb

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	var names []string
	for n := range keyspaces {
		names = append(names, fmt.Sprintf("k%d", n+1))
	}
	at, name := lend(t, names...)
	return vitess(t, at, name)
}

// VitessShards lends the two shards of a keyspace of OUTBOX_TEST_VITESS to the test, and empties them.
// Their driver sends texts, because Vitess cannot prepare every statement for a shard.
func VitessShards(t *testing.T) []DB {
	t.Helper()
	at, name := lend(t, "s")
	at.InterpolateParams = true
	return []DB{vitess(t, at, name+":-80"), vitess(t, at, name+":80-")}
}

// lend takes a keyspace that no test has, also of another process, until the test ends.
func lend(t *testing.T, names ...string) (*mysql.Config, string) {
	t.Helper()
	address := os.Getenv("OUTBOX_TEST_VITESS")
	if address == "" {
		t.Fatal("OUTBOX_TEST_VITESS is not set: start Vitess with `eval \"$(scripts/services up vitess)\"`")
	}
	cfg, err := mysql.ParseDSN(address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, name := range names {
			path := filepath.Join(os.TempDir(), "ormoutbox-"+strings.ReplaceAll(cfg.Addr, ":", "-")+"-"+name+".lock")
			file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			// Vitess ends GET_LOCK if there is no statement for a while.
			if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
				t.Cleanup(func() { _ = file.Close() })
				return cfg, name
			}
			_ = file.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("none of the keyspaces %v of Vitess became free", names)
		}
	}
}

func vitess(t *testing.T, at *mysql.Config, name string) DB {
	t.Helper()
	cfg := at.Clone()
	cfg.DBName = name
	db := DB{Name: "vitess", Dialect: core.MySQL, DSN: cfg.FormatDSN()}
	empty(t, db)
	t.Cleanup(func() { empty(t, db) }) // Vitess is slow if there are many tables
	return db
}

// empty drops the tables and views that an earlier test has left.
func empty(t *testing.T, db DB) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
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
