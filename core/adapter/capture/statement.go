package capture

import (
	"context"
	"database/sql"
	"reflect"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// Statement describes one statement of an adapter.
type Statement struct {
	Op core.Op
	// Of names the table or the type in errors.
	Of string
	// Columns are the columns to read, the key's first, quoted and qualified as RETURNING needs
	// them. Keys is how many of them are the key.
	Columns []string
	Keys    int
	// Models are the models that the statement was given, in the order of the rows of an INSERT.
	Models []Model
	// Counted: the database generates the first column of the key by counting, if the statement
	// does not give it.
	Counted bool
	// DoNothing: an INSERT passes over existing rows.
	DoNothing bool
	// ReadText is for ORMs that do not provide some of the above: the text is parsed for the
	// treatment of existing rows by an INSERT, for a RETURNING, and for the name of the table. Op
	// is then OpCreate for every INSERT, and Columns are not qualified.
	ReadText bool

	// On are the functions to call for each row.
	On []adapter.Mapper
	// LeftOut is called in place of a refusal if the database cannot name the rows, because the
	// table has no key. The statement then causes no events. Nil: it is refused. Adapters set it
	// for types that only OnAll asks for.
	LeftOut func()
	// Scan turns rows into models. Each row has the values of Columns, as the driver gave them.
	Scan func(rows *Answer) ([]reflect.Value, error)
	// Key returns the key of a model that Scan made, "" if the type has no key.
	Key func(model reflect.Value) (string, error)
	// Assign gives a model with recorded events the generated key of its row, before the events are
	// published. Nil: the ORM has done so.
	Assign func(model, row reflect.Value)
}

// Model is one model that a statement was given.
type Model struct {
	Value reflect.Value // a pointer
	// Recorder is nil unless its events are to go out with the row.
	Recorder *core.Recorder
	// Keys are the values of the model's key, or Literals. An update may set the key: then Keys has
	// the old key and the new one. It is empty if the key is not set.
	Keys [][]any
	// Apart: the model does not stand for a row of the statement, but holds the values of an
	// update.
	Apart bool
}

// Literal is a value as it stands in the text of a statement.
type Literal string

// Session runs statements where the ORM runs its own.
type Session interface {
	// Send runs a statement that returns no rows.
	Send(ctx context.Context, text string, args []any) (sql.Result, error)
	// Ask runs a statement that returns rows, and reads them all. After an error it returns the
	// rows before the error.
	Ask(ctx context.Context, text string, args []any) (*Answer, error)
	// Read is Ask for a statement of the capture, which is not to be kept in a cache of statements.
	Read(ctx context.Context, text string, args []any) (*Answer, error)
}

// Tx is the transaction of a statement.
type Tx interface {
	core.Tx
	// RefuseCommit makes Commit roll back and return err, until lift is called or the changes so
	// far are rolled back to a savepoint.
	RefuseCommit(err error) (lift func())
	// OnRollback is as in sqltx.Tracker.
	OnRollback(key any, fn func(to core.RecorderMark))
}
