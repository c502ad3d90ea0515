package repository_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// filler writes many rows with plain SQL.
type filler struct {
	t       *testing.T
	dialect core.Dialect
	pool    *sql.DB

	// What statements say for a time, and for nothing.
	now, later, noTime, noLane, noSeq string
}

func newFiller(t *testing.T, db testdb.DB, pool *sql.DB) *filler {
	f := &filler{t: t, dialect: db.Dialect, pool: pool, noTime: "NULL", noLane: "NULL", noSeq: "NULL"}
	switch db.Dialect {
	case core.Postgres:
		f.now, f.later = "clock_timestamp()", "clock_timestamp() + interval '1 day'"
		f.noTime, f.noLane, f.noSeq = "NULL::timestamptz", "NULL::bytea", "NULL::bigint"
	case core.MySQL:
		f.now, f.later = "UTC_TIMESTAMP(6)", "UTC_TIMESTAMP(6) + INTERVAL 1 DAY"
	default:
		f.now, f.later = "unixepoch() * 1000000", "(unixepoch() + 86400) * 1000000"
	}
	return f
}

// rows writes count rows of a kind, whose ids begin with it. The other arguments are SQL, in which
// n counts from 1.
func (f *filler) rows(kind, count int, topic, lane, seq, status, available, done string) {
	f.t.Helper()
	payload := "'p'"
	if f.dialect == core.SQLite {
		payload = "x'70'"
	}
	q := fmt.Sprintf("INSERT INTO outbox_event (id, event_id, event_type, topic, lane, key_seq, payload, "+
		"status, available_at, occurred_at, created_at, done_at) "+
		"SELECT %s, 'x', 't', %s, %s, %s, %s, %s, %s, %s, %s, %s FROM %s",
		f.rowID(kind), topic, lane, seq, payload, status, available, f.now, f.now, done, f.series(count))
	if _, err := f.pool.ExecContext(f.t.Context(), q); err != nil {
		f.t.Fatalf("%v\n%s", err, q)
	}
}

func (f *filler) series(count int) string {
	switch f.dialect {
	case core.Postgres:
		return fmt.Sprintf("generate_series(1, %d) AS s(n)", count)
	case core.MySQL:
		return fixture.Numbers(count)
	default:
		return fmt.Sprintf("(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < %d) "+
			"SELECT n FROM s) s", count)
	}
}

// rowID is 16 bytes: the kind, then the number.
func (f *filler) rowID(kind int) string {
	switch f.dialect {
	case core.Postgres:
		return fmt.Sprintf("('000000%02x-0000-8000-8000-' || lpad(to_hex(n), 12, '0'))::uuid", kind)
	case core.MySQL:
		return fmt.Sprintf("UNHEX(CONCAT('000000%02x000080008000', LPAD(HEX(n), 12, '0')))", kind)
	default:
		return fmt.Sprintf("unhex('000000%02x000080008000' || printf('%%012x', n))", kind)
	}
}

// lanes are 16 bytes: the prefix, then the number.
func (f *filler) lanes(prefix [4]byte) string {
	switch f.dialect {
	case core.Postgres:
		return fmt.Sprintf("decode('%x' || lpad(to_hex(n), 24, '0'), 'hex')", prefix)
	case core.MySQL:
		return fmt.Sprintf("UNHEX(CONCAT('%x', LPAD(HEX(n), 24, '0')))", prefix)
	default:
		return fmt.Sprintf("unhex('%x' || printf('%%024x', n))", prefix)
	}
}

func (f *filler) bytes(l core.KeyID) string {
	if f.dialect == core.Postgres {
		return fmt.Sprintf("'\\x%x'::bytea", l[:])
	}
	return fmt.Sprintf("x'%x'", l[:])
}
