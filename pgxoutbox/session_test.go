package pgxoutbox

import (
	"database/sql"
	"errors"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ormoutbox/ormoutbox/core"
)

// Only a tag proves a commit, whatever came after it, and only an error of the server proves that
// there was none.
func TestJudgeCommit(t *testing.T) {
	t.Parallel()
	refused := &pgconn.PgError{Severity: "ERREUR", SeverityUnlocalized: "ERROR", Code: "23505"}
	fatal := &pgconn.PgError{Severity: "FATAL", Code: "57P01"}
	for _, tc := range []struct {
		tag     string
		err     error
		outcome core.Outcome
		want    error
	}{
		{"COMMIT", nil, core.Committed, nil},
		{"COMMIT", io.ErrUnexpectedEOF, core.Committed, nil},
		{"ROLLBACK", nil, core.RolledBack, pgx.ErrTxCommitRollback},
		{"", refused, core.RolledBack, refused},
		{"", fatal, core.Unknown, fatal},
		{"", io.ErrUnexpectedEOF, core.Unknown, io.ErrUnexpectedEOF},
		{"ROLLBACK", io.ErrUnexpectedEOF, core.Unknown, io.ErrUnexpectedEOF},
	} {
		outcome, err := judgeCommit(pgconn.NewCommandTag(tc.tag), tc.err)
		if outcome != tc.outcome || !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("%q, %v: %s, %v", tc.tag, tc.err, outcome, err)
		}
	}
	if outcome, err := judgeCommit(pgconn.NewCommandTag("SELECT 1"), nil); outcome != core.Unknown || err == nil {
		t.Errorf("another tag: %s, %v", outcome, err)
	}
}

// A Config without a connection is refused with a sentence, and not with a panic of pgx.
func TestConnectorRefusesAnEmptyConfig(t *testing.T) {
	t.Parallel()
	pool := sql.OpenDB(Connector(Config{}))
	defer pool.Close()
	if err := pool.PingContext(t.Context()); !errors.Is(err, errConfig) {
		t.Errorf("Ping: %v", err)
	}
	if _, err := Conn(7); err == nil {
		t.Error("Conn of a number is no error")
	}
}
