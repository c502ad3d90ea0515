package sqloutbox_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Names that are no plain identifiers never come near SQL.
func TestHostileNames(t *testing.T) {
	for _, bad := range []string{
		`x"; DROP TABLE users; --`, "x`y", "x y", "x-y", "x.y", "1x", "", "é", "x\x00", "x'", strings.Repeat("x", 65),
		"x\n",
	} {
		for _, d := range []core.Dialect{core.Postgres, core.MySQL, core.SQLite} {
			if bad != "" {
				if _, err := sqloutbox.Migrations(sqloutbox.Config{Dialect: d, Prefix: bad}); err == nil {
					t.Errorf("%s: prefix %q was accepted", d, bad)
				}
				if _, err := sqloutbox.New(&sql.DB{}, sqloutbox.Config{Dialect: d, Schema: bad}); err == nil {
					t.Errorf("%s: schema %q was accepted", d, bad)
				}
			}
		}
	}
	for name, cfg := range map[string]sqloutbox.Config{
		"no dialect":                         {},
		"an unknown dialect":                 {Dialect: "oracle"},
		"a schema on SQLite":                 {Dialect: core.SQLite, Schema: "main"},
		"a prefix that makes too long names": {Dialect: core.Postgres, Prefix: strings.Repeat("p", 51)},
		"a prefix that makes too long names of partitions": {
			Dialect: core.Postgres, Prefix: strings.Repeat("p", 42), PartitionEvery: time.Hour,
		},
		"partitions on SQLite":      {Dialect: core.SQLite, PartitionEvery: time.Hour},
		"partitions on MySQL":       {Dialect: core.MySQL, PartitionEvery: 24 * time.Hour},
		"partitions that are short": {Dialect: core.Postgres, PartitionEvery: time.Hour - 1},
		"negative partitions":       {Dialect: core.Postgres, PartitionEvery: -time.Hour},
	} {
		if _, err := sqloutbox.Migrations(cfg); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := sqloutbox.Migrations(sqloutbox.Config{
		Dialect: core.Postgres,
		Prefix:  strings.Repeat("p", 50),
	}); err != nil {
		t.Errorf("the longest prefix was refused: %v", err)
	}
	if _, err := sqloutbox.New(nil, sqloutbox.Config{Dialect: core.SQLite}); err == nil {
		t.Error("a nil pool was accepted")
	}
}

// Mistakes in a call are reported before any SQL: the pool of these repositories leads nowhere.
func TestBadCalls(t *testing.T) {
	for _, d := range []core.Dialect{core.Postgres, core.MySQL, core.SQLite} {
		repo, err := sqloutbox.New(&sql.DB{}, sqloutbox.Config{Dialect: d})
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		rows := []core.NewRow{{}}
		if _, err := repo.Insert(ctx, nil, core.InsertRequest{Rows: rows}); !errors.Is(err, core.ErrNoTransaction) {
			t.Errorf("Insert without a transaction: %v", err)
		}
		other := core.Postgres
		if d == other {
			other = core.SQLite
		}
		if _, err := repo.Insert(ctx, sqltx.WrapTx(&sql.DB{}, other, nil), core.InsertRequest{Rows: rows}); err == nil {
			t.Error("Insert in a transaction of another dialect was accepted")
		}
		aborted := sqltx.NewTracker(d)
		aborted.Abort(errors.New("deadlock"))
		if _, err := repo.Insert(ctx, sqltx.WrapTx(&sql.DB{}, d, aborted),
			core.InsertRequest{Rows: rows}); !errors.Is(err, core.ErrTxAborted) {
			t.Errorf("Insert in an aborted transaction: %v", err)
		}
		for name, req := range map[string]core.ClaimRequest{
			"no node":              {ClaimNo: 1, Lease: time.Second, MaxLease: time.Minute, Limit: 1},
			"no number":            {Node: "n", Lease: time.Second, MaxLease: time.Minute, Limit: 1},
			"no lease":             {Node: "n", ClaimNo: 1, MaxLease: time.Minute, Limit: 1},
			"a lease beyond limit": {Node: "n", ClaimNo: 1, Lease: time.Hour, MaxLease: time.Minute, Limit: 1},
		} {
			if _, err := repo.ClaimUnordered(ctx, req); err == nil {
				t.Errorf("ClaimUnordered with %s was accepted", name)
			}
			if _, _, err := repo.ClaimHeads(ctx, req, core.KeyID{}); err == nil {
				t.Errorf("ClaimHeads with %s was accepted", name)
			}
			if _, err := repo.ClaimKey(ctx, req, core.KeyID{1}); err == nil {
				t.Errorf("ClaimKey with %s was accepted", name)
			}
		}
		if _, err := repo.MarkFailed(ctx, "n", []core.Failure{{Kind: 9}}); err == nil {
			t.Error("an unknown kind of failure was accepted")
		}
		if _, err := repo.Redrive(ctx, core.AdminRequest{IDs: []core.RowID{{1}}, Reason: "r"}); !errors.Is(err,
			core.ErrInvalidRequest) {
			t.Errorf("Redrive without an actor: %v", err)
		}
		if _, err := repo.Discard(ctx, core.AdminRequest{IDs: []core.RowID{{1}}, Actor: "a"}); !errors.Is(err,
			core.ErrInvalidRequest) {
			t.Errorf("Discard without a reason: %v", err)
		}
	}
}

func TestTextArray(t *testing.T) {
	for want, items := range map[string][]string{
		`{}`: nil, `{"a","b"}`: {"a", "b"}, `{"NULL",""}`: {"NULL", ""}, `{"a\"b\\c","{,}"}`: {`a"b\c`, "{,}"},
	} {
		if got := sqloutbox.TextArray(items); got != want {
			t.Errorf("%q became %s, want %s", items, got, want)
		}
	}
}

func TestCleanText(t *testing.T) {
	for in, want := range map[string]string{
		"a\x00b": "ab", "\xff": "\uFFFD", "äöü": "äö", "abcde": "abcd",
		"abc": "abc", "": "",
	} {
		if got := sqloutbox.Clean(in, 4); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
