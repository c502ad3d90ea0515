package sqlonce_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

var dialects = []core.Dialect{core.Postgres, core.MySQL, core.SQLite}

// Names that are not plain identifiers are refused before any SQL is sent.
func TestHostileNames(t *testing.T) {
	for _, bad := range []string{
		`x"; DROP TABLE users; --`, "x`y", "x y", "x-y", "x.y", "1x", "é", "x\x00", "x'", strings.Repeat("x", 65),
		"x\n",
	} {
		for _, d := range dialects {
			if _, err := sqlonce.Migrations(sqlonce.Config{Dialect: d, Prefix: bad}); err == nil {
				t.Errorf("%s: prefix %q was accepted", d, bad)
			}
			if _, err := sqlonce.New(&sql.DB{}, sqlonce.Config{Dialect: d, Schema: bad}); err == nil {
				t.Errorf("%s: schema %q was accepted", d, bad)
			}
		}
	}
	for name, cfg := range map[string]sqlonce.Config{
		"no dialect":                         {},
		"an unknown dialect":                 {Dialect: "oracle"},
		"a schema on SQLite":                 {Dialect: core.SQLite, Schema: "main"},
		"a prefix that makes too long names": {Dialect: core.Postgres, Prefix: strings.Repeat("p", 38)},
	} {
		if _, err := sqlonce.Migrations(cfg); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := sqlonce.Migrations(sqlonce.Config{
		Dialect: core.Postgres,
		Prefix:  strings.Repeat("p", 37),
	}); err != nil {
		t.Errorf("the longest prefix was refused: %v", err)
	}
	if _, err := sqlonce.New(nil, sqlonce.Config{Dialect: core.SQLite}); err == nil {
		t.Error("a nil pool was accepted")
	}
}

// The database cuts no name that has the longest prefix.
func TestLongestNames(t *testing.T) {
	for _, d := range dialects {
		migrations, err := sqlonce.Migrations(sqlonce.Config{Dialect: d, Prefix: strings.Repeat("p", 37)})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range migrations {
			for _, word := range strings.FieldsFunc(m.Up,
				func(r rune) bool { return strings.ContainsRune(" \n\t`\"(),;.", r) }) {
				if strings.HasPrefix(word, "ppp") && len(word) > 63 {
					t.Errorf("%s: %s has %d bytes", d, word, len(word))
				}
			}
		}
	}
}

// Mistakes in a call are reported before any SQL is sent. The pool of these stores has no database.
func TestBadCalls(t *testing.T) {
	for _, d := range dialects {
		s, err := sqlonce.New(&sql.DB{}, sqlonce.Config{Dialect: d})
		if err != nil {
			t.Fatal(err)
		}
		if s.Dialect() != d {
			t.Errorf("dialect %s, want %s", s.Dialect(), d)
		}
		ctx := t.Context()
		good := once.Request{Key: once.Key{Scope: "s", ID: "i"}, Owner: "o", Lease: time.Second, TTL: time.Hour}
		claim := once.Claim{Key: good.Key, Owner: "o", Fence: 1}
		if _, err := s.Acquire(ctx, once.Request{}); !errors.Is(err, once.ErrInvalidKey) ||
			!errors.Is(err, once.ErrInvalidRequest) {
			t.Errorf("Acquire of nothing: %v", err)
		}
		if err := s.Extend(ctx, claim, 0); !errors.Is(err, once.ErrInvalidRequest) {
			t.Errorf("Extend by nothing: %v", err)
		}
		if err := s.Complete(ctx, claim, once.Result{}, 0); !errors.Is(err, once.ErrInvalidRequest) {
			t.Errorf("Complete for no time: %v", err)
		}
		if n, err := s.Cleanup(ctx, 0); n != 0 || err != nil {
			t.Errorf("Cleanup of none: %d, %v", n, err)
		}

		other := core.Postgres
		if d == other {
			other = core.SQLite
		}
		aborted := sqltx.NewTracker(d)
		aborted.Abort(errors.New("deadlock"))
		for name, tt := range map[string]struct {
			tx   core.Tx
			want error
		}{
			"no transaction":                   {nil, core.ErrNoTransaction},
			"a transaction of another dialect": {sqltx.WrapTx(&sql.DB{}, other, nil), nil},
			"an aborted transaction":           {sqltx.WrapTx(&sql.DB{}, d, aborted), core.ErrTxAborted},
		} {
			_, acquire := s.AcquireTx(ctx, tt.tx, good)
			for call, err := range map[string]error{
				"AcquireTx": acquire, "CompleteTx": s.CompleteTx(ctx, tt.tx, claim, once.Result{}),
				"ReleaseTx": s.ReleaseTx(ctx, tt.tx, claim),
			} {
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
					t.Errorf("%s in %s: %v", call, name, err)
				}
			}
		}
	}
}
