package outboxsql

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

// Params has a dialect's way to write parameters.
type Params struct {
	Mark func(n int, cast string) string // the n-th parameter
	ID   func(id core.RowID) any
	Time func(t time.Time) any
	// Listed gives a statement that has {ids}, or on PostgreSQL $1, a list of ids as parameters.
	Listed func(text string, ids []core.RowID) (string, []any)
	// CompareRows: a comparison of several columns at once uses an index.
	CompareRows bool
	// Copies: a FROM (SELECT ... LIMIT) is written into a table of its own first, and one with
	// texts is slow.
	Copies bool
}

func question(int, string) string { return "?" }

func rawID(id core.RowID) any { return id[:] }

func listIDs(text string, ids []core.RowID) (string, []any) {
	return strings.Replace(text, "{ids}", sqlkit.List(len(ids)), 1), IDArgs(ids)
}

// IDArgs returns the ids as parameters, followed by more.
func IDArgs[T core.RowID | core.KeyID](ids []T, more ...any) []any {
	args := make([]any, 0, len(ids)+len(more))
	for i := range ids {
		b := [16]byte(ids[i])
		args = append(args, b[:])
	}
	return append(args, more...)
}

// UUIDArray writes ids as the text of an array of PostgreSQL.
func UUIDArray(ids []core.RowID) string {
	texts := make([]string, len(ids))
	for i := range ids {
		texts[i] = ids[i].String()
	}
	return "{" + strings.Join(texts, ",") + "}"
}

// MySQLTime is the layout of a time.
const MySQLTime = "2006-01-02 15:04:05.000000"

var allParams = ByDialect[*Params]{
	Postgres: &Params{
		Mark:        func(n int, cast string) string { return "$" + strconv.Itoa(n) + "::" + cast },
		ID:          func(id core.RowID) any { return id.String() },
		Time:        func(t time.Time) any { return t.UTC().Format("2006-01-02 15:04:05.000000Z07:00") },
		Listed:      func(text string, ids []core.RowID) (string, []any) { return text, []any{UUIDArray(ids)} },
		CompareRows: true,
	},
	MySQL: &Params{
		Mark: question, ID: rawID, Time: func(t time.Time) any { return t.UTC().Format(MySQLTime) }, Listed: listIDs,
		Copies: true,
	},
	SQLite: &Params{
		Mark: question, ID: rawID, Time: func(t time.Time) any { return t.UnixMicro() }, Listed: listIDs,
		CompareRows: true,
	},
}

// ParamsOf returns the parameters of a dialect.
func ParamsOf(d core.Dialect) *Params { return allParams.Of(d) }

// ByDialect has one value for each dialect.
type ByDialect[T any] struct{ Postgres, MySQL, SQLite T }

// Of returns the value for a dialect that is known.
func (b ByDialect[T]) Of(d core.Dialect) T {
	switch d {
	case core.Postgres:
		return b.Postgres
	case core.MySQL:
		return b.MySQL
	default:
		return b.SQLite
	}
}

// Tables is what package sqlops gets of a sqloutbox.Repository.
type Tables struct {
	Dialect core.Dialect
	// Expand fills the words of a statement: the names of tables, and pieces of SQL of the dialect.
	Expand func(text string) string

	// InTx runs several statements as a transaction of its own. Single and Read run a single
	// statement, and Read's only reads. All of them are repeated if other transactions made them
	// fail.
	InTx, Single, Read sqlkit.Run

	// Redrive and Discard change and audit the rows with these ids, which ascend, as far as their
	// status and req.Seen allow.
	Redrive, Discard func(ctx context.Context, q sqlkit.Querier, ids []core.RowID, req core.AdminRequest) (int, error)
	// NextKeySeq takes the next number of s.Lane for the row s.NewID.
	NextKeySeq func(ctx context.Context, q sqlkit.Querier, s Source) (seq int64, err error)
	// Audit writes an audit row about s, and AuditWhole an audit row without an event, about a
	// topic or none.
	Audit      func(ctx context.Context, q sqlkit.Querier, action string, s Source, req core.AdminRequest) error
	AuditWhole func(ctx context.Context, q sqlkit.Querier, action, topic string, req core.AdminRequest) error

	// Schema of the tables, and how statements about other tables beside them are run. Transactor is
	// nil where only the adapter has one.
	Schema     string
	Beside     sqlstore.Runner
	Transactor core.Transactor
}
