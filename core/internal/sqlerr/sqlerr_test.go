package sqlerr_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// These types have the shapes of the errors of the drivers, so that the test imports no driver.
type (
	pgx      struct{ code string } // jackc/pgx, lib/pq
	pgdriver struct{ code string } // uptrace/bun
	mysql    struct {
		Number  uint16
		Message string
	} // go-sql-driver
	modernc   struct{ code int }                 // modernc.org/sqlite
	mattn     struct{ Code, ExtendedCode errNo } // mattn/go-sqlite3
	errNo     int
	unrelated struct{ Number, Code string }
)

func (e *pgx) Error() string           { return e.code }
func (e *pgx) SQLState() string        { return e.code }
func (e pgdriver) Error() string       { return e.code }
func (e pgdriver) Field(k byte) string { return map[byte]string{'C': e.code}[k] }
func (e *mysql) Error() string         { return e.Message }
func (e *modernc) Error() string       { return "no such table: x" }
func (e *modernc) Code() int           { return e.code }
func (e mattn) Error() string          { return "sqlite" }
func (e *unrelated) Error() string     { return "unrelated" }

func TestCodes(t *testing.T) {
	for name, wrap := range map[string]func(error) error{
		"bare":    func(err error) error { return err },
		"wrapped": func(err error) error { return fmt.Errorf("orm: %w", fmt.Errorf("driver: %w", err)) },
		"joined": func(err error) error {
			return errors.Join(errors.New("first"), fmt.Errorf("%w and %w", errors.New("second"), err))
		},
	} {
		for _, err := range []error{&pgx{"23505"}, pgdriver{"23505"}} {
			if got := sqlerr.State(wrap(err)); got != "23505" {
				t.Errorf("%s %T: SQLSTATE %q", name, err, got)
			}
		}
		if got := sqlerr.MySQL(wrap(&mysql{Number: 1062})); got != 1062 {
			t.Errorf("%s: number %d", name, got)
		}
		if got := sqlerr.SQLite(wrap(&modernc{2067})); got != 2067 {
			t.Errorf("%s: code %d", name, got)
		}
		if got := sqlerr.SQLite(wrap(mattn{19, 2067})); got != 2067 {
			t.Errorf("%s: code %d", name, got)
		}
		if got := sqlerr.SQLite(wrap(mattn{5, 0})); got != 5 {
			t.Errorf("%s: code %d", name, got)
		}
	}
	for _, err := range []error{nil, errors.New("x"), &unrelated{"1", "2"}, (*unrelated)(nil), context.Canceled} {
		if sqlerr.State(err) != "" || sqlerr.MySQL(err) != 0 || sqlerr.SQLite(err) != 0 {
			t.Errorf("%v has a code", err)
		}
	}
}

func TestJudgements(t *testing.T) {
	for _, tt := range []struct {
		err                                                  error
		unique, mysqlConstraint, sqliteConstraint, retryable bool
		refused                                              bool // as the answer to COMMIT
	}{
		{nil, false, false, false, false, false},
		{errors.New("x"), false, false, false, false, false},
		{driver.ErrBadConn, false, false, false, false, false},
		{context.DeadlineExceeded, false, false, false, false, false},
		{sql.ErrTxDone, false, false, false, false, true},
		{fmt.Errorf("%w: %w", driver.ErrBadConn, &pgx{"40001"}), false, false, false, true, false},
		{&pgx{"23505"}, true, false, false, false, true},
		{&pgx{"23503"}, false, false, false, false, true},
		{&pgx{"40001"}, false, false, false, true, true},
		{&pgx{"40P01"}, false, false, false, true, true},
		{&pgx{"40003"}, false, false, false, false, false},
		{&pgx{"25P02"}, false, false, false, false, true},
		{&pgx{"55P03"}, false, false, false, true, false},
		{&pgx{"57P01"}, false, false, false, false, false},
		{&pgx{"08006"}, false, false, false, false, false},
		{&mysql{Number: 1062}, true, true, false, false, false},
		{&mysql{Number: 1586}, true, true, false, false, false},
		{&mysql{Number: 1452}, false, true, false, false, false},
		{&mysql{Number: 4025}, false, true, false, false, false},
		{&mysql{Number: 1213}, false, false, false, true, true},
		{&mysql{Number: 1205}, false, false, false, true, true},
		{&mysql{Number: 1020}, false, false, false, true, true},
		{&mysql{Number: 3101}, false, false, false, true, true},
		{&mysql{Number: 1180}, false, false, false, false, true},
		{
			fmt.Errorf("streaming replication fragment(provider status: Not connected): %w", &mysql{Number: 1180}),
			false, false, false, false, false,
		},
		{&mysql{Number: 1146}, false, false, false, false, false},
		{&mysql{Number: 1053}, false, false, false, false, false},
		{&modernc{1555}, true, false, true, false, true},
		{&modernc{2067}, true, false, true, false, true},
		{&modernc{787}, false, false, true, false, true},
		{&modernc{1811}, false, false, false, false, true},
		{&modernc{5}, false, false, false, true, true},
		{&modernc{517}, false, false, false, true, true},
		{&modernc{6}, false, false, false, true, false},
		{&modernc{10}, false, false, false, false, false},
		{errors.New("commit unexpectedly resulted in rollback"), false, false, false, false, true},
		{
			fmt.Errorf("orm: %w", errors.New("pq: Could not complete operation in a failed transaction")), false, false,
			false, false, true,
		},
	} {
		name := fmt.Sprintf("%T %v", tt.err, tt.err)
		for what, got := range map[string][2]bool{
			"UniqueViolation":  {sqlerr.UniqueViolation(tt.err), tt.unique},
			"MySQLConstraint":  {sqlerr.MySQLConstraint(tt.err), tt.mysqlConstraint},
			"SQLiteConstraint": {sqlerr.SQLiteConstraint(tt.err), tt.sqliteConstraint},
			"Retryable":        {sqlerr.Retryable(tt.err), tt.retryable},
			"CommitRefused":    {sqlerr.CommitRefused(tt.err), tt.refused},
		} {
			if got[0] != got[1] {
				t.Errorf("%s of %s is %t", what, name, got[0])
			}
		}
	}
}

func TestTimeLimit(t *testing.T) {
	for err, want := range map[error]bool{
		&pgx{"57014"}: true, pgdriver{"55P03"}: true, &pgx{"25P04"}: true, &pgx{"57P01"}: false,
		&mysql{Number: 1969}: true, &mysql{Number: 3024}: true, &mysql{Number: 1205}: true, &mysql{Number: 1213}: false,
		errors.New("x"): false,
	} {
		if got := sqlerr.TimeLimit(err); got != want {
			t.Errorf("TimeLimit of %T %v is %t", err, err, got)
		}
	}
}

func TestMissingTable(t *testing.T) {
	for _, err := range []error{&pgx{"42P01"}, &mysql{Number: 1146}, fmt.Errorf("x: %w", &modernc{1})} {
		if !sqlerr.MissingTable(err) {
			t.Errorf("%v is not a missing table", err)
		}
	}
	for _, err := range []error{
		nil, &pgx{"42703"}, &mysql{Number: 1054}, &modernc{19},
		errors.New("no such table: x"),
	} {
		if sqlerr.MissingTable(err) {
			t.Errorf("%v is a missing table", err)
		}
	}
}

func TestUnavailable(t *testing.T) {
	for _, err := range []error{
		driver.ErrBadConn, sql.ErrConnDone, errors.New("invalid connection"),
		fmt.Errorf("commit: %w", errors.New("conn closed")), &pgx{"08006"}, &pgx{"57P01"}, &pgx{"57P03"}, &pgx{"53300"},
		&pgx{"53100"}, &pgx{"25006"}, &pgx{"28P01"},
		pgdriver{"57P02"},
		&mysql{Number: 1040}, &mysql{Number: 1053}, &mysql{Number: 1290}, fmt.Errorf("x: %w", &mysql{Number: 1927}),
		&modernc{10}, &modernc{13},
		mattn{14, 0},
		&modernc{522},
	} {
		if !sqlerr.Unavailable(err) {
			t.Errorf("%T %v is not unavailable", err, err)
		}
	}
	for _, err := range []error{
		nil, errors.New("x"), errors.New("an invalid connection"), context.DeadlineExceeded, context.Canceled,
		sql.ErrNoRows, sql.ErrTxDone, &pgx{"23505"}, &pgx{"40001"}, &pgx{"42P01"}, &pgx{"57014"}, &pgx{"25P02"},
		&mysql{Number: 1062}, &mysql{Number: 1213}, &mysql{Number: 1146},
		&modernc{5}, &modernc{19}, &modernc{1},
	} {
		if sqlerr.Unavailable(err) {
			t.Errorf("%T %v is unavailable", err, err)
		}
	}
}
