package capture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// mostRows is how many rows one update or delete may change, because their models are in memory at
// once. The rows of an INSERT are there already.
const mostRows = 100_000

// Capture is the capture of one statement. Use it from one goroutine.
type Capture struct {
	st   Statement
	tx   Tx
	on   *Server
	lift func() // takes the refusal of COMMIT back; nil when there is none

	ended     bool                 // the context had ended before, so that nothing was sent
	params    int                  // of the text
	returns   bool                 // the text has a RETURNING, if the ORM reports it
	sent      bool                 // the statement was executed
	rows      []row                // in the order in which the database named them
	unordered bool                 // that is not the order of the models
	by        *unique              // the key by which rows are looked for; nil: the primary key
	rest      [][]any              // for each row of VALUES, the columns of the key after a counted one
	others    []unique             // the other unique keys of the table, if they matter
	extra     int                  // columns after the statement's, for the filter alone
	filter    func(row []any) bool // reports whether a returned row was changed; nil: all were
	told      []row                // each row once, as it was in the end

	*captured // of one Publish, which has an outcome of its own

	taken   []taken
	takeErr error
	saved   []core.Recorder // of the models, in their order
}

// row is one row as the database returned it.
type row struct {
	model reflect.Value
	key   string
	of    string // one character for each model with a Recorder: '1' if this is its row
}

// errPanicked is the reason why a transaction must not commit after a statement whose events were
// not written, because a function of the program panicked or ended its goroutine. The panic itself
// goes on.
var errPanicked = errors.New("outbox: a function panicked before the events of its statement were written")

// New begins the capture of a statement. tx refuses to commit from now on.
func New(st Statement, tx Tx, on *Server) *Capture {
	c := &Capture{st: st, tx: tx, on: on, saved: make([]core.Recorder, len(st.Models))}
	c.lift = tx.RefuseCommit(errPanicked)
	for i := range st.Models {
		if r := st.Models[i].Recorder; r != nil {
			c.saved[i] = *r
			tx.OnRollback(r, core.UndoRecorded(r))
		}
	}
	return c
}

// release lets the transaction commit again.
func (c *Capture) release() {
	if c.lift != nil {
		c.lift()
		c.lift = nil
	}
}

// refuse makes COMMIT return err.
func (c *Capture) refuse(err error) {
	c.release()
	c.lift = c.tx.RefuseCommit(err)
}

// Exec executes a statement that returns no rows to the ORM. RowsAffected of the result is the same
// as without the capture.
func (c *Capture) Exec(ctx context.Context, s Session, text string, args []any) (sql.Result, error) {
	res, err := c.exec(ctx, s, text, args)
	if err != nil {
		c.told = nil // a refused statement has no events
	}
	return res, err
}

func (c *Capture) exec(ctx context.Context, s Session, text string, args []any) (sql.Result, error) {
	c.ended = ctx.Err() != nil
	if err := c.read(text, args); err != nil {
		return nil, err
	}
	if c.params != len(args) && c.tx.Dialect() != core.SQLite {
		return c.unread(s.Send(ctx, text, args))
	}
	if c.tx.Dialect() == core.MySQL {
		return c.execMySQL(ctx, s, text, args)
	}
	return c.execReturning(ctx, s, text, args)
}

func (c *Capture) execReturning(ctx context.Context, s Session, text string, args []any) (sql.Result, error) {
	a, err := c.returning(ctx, s, text, args, "\nRETURNING ")
	if err != nil {
		return nil, err
	}
	return result{ctx: ctx, session: s, rows: int64(len(a.Rows)), dialect: c.tx.Dialect()}, nil
}

// Query executes a statement with a RETURNING of its own, and returns the rows of that. After an
// error it returns the rows before the error.
func (c *Capture) Query(ctx context.Context, s Session, text string, args []any) (*Answer, error) {
	c.ended = ctx.Err() != nil
	var a *Answer
	err := c.read(text, args)
	switch {
	case err != nil:
	case c.params != len(args) && c.tx.Dialect() != core.SQLite:
		if a, err = s.Ask(ctx, text, args); err == nil {
			err = c.unreadable()
		} else {
			c.release()
		}
	case !c.returns && c.tx.Dialect() == core.MySQL:
		_, err = c.execMySQL(ctx, s, text, args)
	case !c.returns: // a comment hides it
		_, err = c.returning(ctx, s, text, args, "\nRETURNING ")
	case c.tx.Dialect() == core.MySQL:
		a, err = c.queryMySQL(ctx, s, text, args)
	default:
		a, err = c.returning(ctx, s, text, args, "\n, ")
	}
	if a == nil {
		a = &Answer{}
		if err == nil {
			a.Columns = []string{}
		}
	}
	if err != nil {
		c.told = nil
	}
	return a, err
}

// read finds out how many parameters a text has, and whether a RETURNING counts. The ORM is
// believed unless a comment may hide something.
func (c *Capture) read(text string, args []any) error {
	c.params, c.returns = len(args), true
	comment := strings.Contains(text, "--") || strings.Contains(text, "/*") || strings.Contains(text, "#")
	if !c.st.ReadText && !comment {
		return nil
	}
	all, err := tokens(c.tx.Dialect(), text)
	if c.st.ReadText {
		if err != nil {
			return c.refuseBefore(err)
		}
		c.readText(text, all)
	}
	if err == nil {
		c.params, c.returns = countParams(all), hasReturning(all)
	}
	return nil
}

// unread is the result of a statement with more arguments than parameters. It was sent as it is,
// for the error of its driver.
func (c *Capture) unread(res sql.Result, err error) (sql.Result, error) {
	if err == nil {
		return res, c.unreadable()
	}
	c.release()
	return res, err
}

func (c *Capture) unreadable() error {
	err := fmt.Errorf("%w: %s of %s has more arguments than parameters", core.ErrNoAggregateID, c.st.Op, c.st.Of)
	c.refuse(err)
	return err
}

// failed lets the transaction commit again if the statement has done nothing.
func (c *Capture) failed(err error) {
	if c.ended || answered(err) {
		c.release()
	}
}

// returning executes a statement with more columns in its RETURNING, and returns the columns that
// it had without them.
func (c *Capture) returning(ctx context.Context, s Session, text string, args []any, with string) (*Answer, error) {
	bits, bitArgs := c.bits(c.params)
	if err := c.tooMany(len(args), len(bitArgs)); err != nil {
		return nil, err
	}
	columns := c.st.Columns
	if bits != "" {
		columns = append(slices.Clip(columns), bits)
		args = slices.Insert(slices.Clone(args), c.params, bitArgs...)
	}
	a, err := s.Ask(ctx, text+with+strings.Join(columns, ", "), args)
	if err != nil {
		c.failed(err)
		if a == nil || len(a.Columns) < len(columns) {
			return &Answer{}, err
		}
		return a.part(0, len(a.Columns)-len(columns)), err
	}
	own := len(a.Columns) - len(columns)
	if own < 0 {
		return &Answer{Columns: []string{}}, c.unanswered(ctx, s, a)
	}
	c.sent = true
	if len(a.Rows) == 0 {
		c.release()
		return a.part(0, own), nil
	}
	if err := c.name(a, own, bits != ""); err != nil {
		c.refuse(err)
		return a.part(0, own), err
	}
	return a.part(0, own), nil
}

// tooMany refuses a statement that has no room for the parameters of bits.
func (c *Capture) tooMany(args, bitArgs int) error {
	if bitArgs == 0 || args+bitArgs <= c.mostParams() {
		return nil
	}
	c.release()
	return fmt.Errorf("%w: %s of %s has too many models with recorded events for the parameters of one "+
		"statement: save them in batches", core.ErrTooManyRows, c.st.Op, c.st.Of)
}

// unanswered judges an answer with too few columns. MariaDB answers without any if it sees that the
// condition of a DELETE is never true, as of IN (NULL).
func (c *Capture) unanswered(ctx context.Context, s Session, a *Answer) error {
	if len(a.Columns) == 0 && c.tx.Dialect() == core.MySQL {
		n, err := s.Read(ctx, "SELECT ROW_COUNT()", nil)
		if err == nil && len(n.Rows) == 1 && textOf(n.Rows[0][0]) == "0" {
			c.release()
			return nil
		}
	}
	err := fmt.Errorf("outbox: %s of %s returned %d columns, fewer than it was asked for", c.st.Op, c.st.Of,
		len(a.Columns))
	c.refuse(err)
	return err
}

// name makes models of the returned rows.
func (c *Capture) name(a *Answer, own int, bits bool) error {
	if len(a.Rows) > mostRows && c.st.Op != core.OpCreate && c.st.Op != core.OpUpsert {
		return fmt.Errorf("%w: %s of %s changed %d rows, more than %d", core.ErrTooManyRows, c.st.Op, c.st.Of,
			len(a.Rows), mostRows)
	}
	end := own + len(c.st.Columns)
	if c.filter != nil {
		kept := &Answer{Columns: a.Columns, Types: a.Types}
		for _, row := range a.Rows {
			if c.filter(row[own:end]) {
				kept.Rows = append(kept.Rows, row)
			}
		}
		a = kept
		if len(a.Rows) == 0 {
			c.release()
			return nil
		}
	}
	models, err := c.st.Scan(a.part(own, end-c.extra))
	if err != nil {
		return adapter.Errorf("outbox: read the rows that %s of %s changed: %w", c.st.Op, c.st.Of, err)
	}
	c.rows = make([]row, len(models))
	for i, m := range models {
		r := row{model: m}
		if r.key, err = c.st.Key(m); err != nil {
			return err
		}
		if bits {
			switch of := a.Rows[i][end].(type) {
			case string:
				r.of = of
			case []byte:
				r.of = string(of)
			}
		}
		c.rows[i] = r
	}
	c.told = once(c.rows)
	c.take() // the ORM may put the rows it asked for over the models, with their recorders
	return nil
}

// once returns each row once, as it was in the end: one statement can change a row several times.
func once(rows []row) []row {
	at := make(map[string]int, len(rows))
	told := make([]row, 0, len(rows))
	for _, r := range rows {
		if i, again := at[r.key]; again && r.key != "" {
			told[i] = r
			continue
		}
		at[r.key] = len(told)
		told = append(told, r)
	}
	return told
}

// bits is a column that assigns rows to the models with a Recorder, so that the database compares
// keys and not their texts. used is the number of arguments before it.
func (c *Capture) bits(used int) (column string, args []any) {
	if c.st.Op == core.OpCreate && !c.st.DoNothing && !c.unordered {
		return "", nil // every row is inserted, in the order of the models
	}
	var all []string
	named := false
	for i := range c.st.Models {
		if c.st.Models[i].Recorder == nil {
			continue
		}
		var is []string
		for _, key := range c.st.Models[i].Keys {
			var parts []string
			for k, v := range key {
				value, ok := v.(Literal)
				if !ok {
					args = append(args, v)
					value = Literal(c.placeholder(used + len(args)))
				}
				parts = append(parts, c.keyColumns()[k]+" = "+string(value))
			}
			named = true
			is = append(is, strings.Join(parts, " AND "))
		}
		if len(is) == 0 {
			all = append(all, "'0'")
			continue
		}
		all = append(all, "CASE WHEN "+strings.Join(is, " OR ")+" THEN '1' ELSE '0' END")
	}
	if !named {
		return "", nil
	}
	if c.tx.Dialect() == core.MySQL { // where || is OR
		return "CONCAT(" + strings.Join(all, ", ") + ")", args
	}
	return joined(all), args
}

// joined writes the || of texts as a tree. Databases limit how deep an expression is, and a chain is
// as deep as it is long.
func joined(all []string) string {
	if len(all) == 1 {
		return all[0]
	}
	half := len(all) / 2
	return "(" + joined(all[:half]) + " || " + joined(all[half:]) + ")"
}

// mostParams is how many parameters a statement can have.
func (c *Capture) mostParams() int {
	if c.tx.Dialect() == core.SQLite {
		return 32_766
	}
	return 65_535
}

func (c *Capture) placeholder(n int) string {
	if c.tx.Dialect() == core.Postgres {
		return "$" + strconv.Itoa(n)
	}
	return "?"
}

// Tell calls the On functions for each changed row, and publishes their events and the recorded
// events whose rows were changed. ctx carries the transaction for the functions. After an error the
// transaction refuses to commit.
func (c *Capture) Tell(ctx context.Context, publish func(events []core.Event) error) error {
	return c.tell(publish, func() error {
		if err := c.putBack(); err != nil {
			return err
		}
		return c.mapped(ctx, c.captured, c.st.On)
	})
}

// TellOther calls the On functions of another outbox, which publishes their events. Call it before
// Tell.
func (c *Capture) TellOther(ctx context.Context, on []adapter.Mapper, publish func(events []core.Event) error) error {
	if !c.sent {
		return nil
	}
	var other captured
	err := c.mapped(ctx, &other, on)
	if err == nil && len(other.Events()) > 0 {
		err = publish(other.Events())
	}
	if err != nil {
		c.Conclude(core.RolledBack)
		c.refuse(err)
	}
	return err
}

// mapped calls On functions for each changed row.
func (c *Capture) mapped(ctx context.Context, into *captured, on []adapter.Mapper) error {
	for _, r := range c.told {
		for _, fn := range on {
			if err := into.Map(ctx, fn, c.st.Op, r.model, r.key); err != nil {
				return err
			}
		}
	}
	return nil
}

// TellRecorded publishes events that were recorded on the models since the statement was sent: by
// their hooks, or by hooks of their associations.
func (c *Capture) TellRecorded(publish func(events []core.Event) error) error {
	if !c.sent || len(c.told) == 0 {
		return nil
	}
	if c.take(); c.takeErr == nil && len(c.taken) == 0 {
		return nil
	}
	return c.tell(publish, func() error { return nil })
}

func (c *Capture) tell(publish func(events []core.Event) error, first func() error) (err error) {
	if !c.sent || len(c.told) == 0 {
		return nil
	}
	returned := false
	defer func() {
		if !returned || err != nil {
			c.Conclude(core.RolledBack)
		}
		if err != nil {
			c.refuse(err)
		}
	}()
	if err = first(); err == nil {
		err = c.takeErr
	}
	for _, t := range c.taken {
		if err == nil && c.st.Assign != nil && t.row.model.IsValid() {
			c.st.Assign(t.model, t.row.model)
		}
		c.Add(t.events, t.model, t.row.key)
	}
	if err == nil && len(c.Events()) > 0 {
		err = publish(c.Events())
	}
	if err == nil {
		c.release()
	}
	returned = true
	return err
}

// answered reports whether an error is the database's answer. Any other error may have come after
// the statement was executed.
func answered(err error) bool {
	const interrupted = 9 // SQLite has stopped on the way
	lite := sqlerr.SQLite(err)
	return sqlerr.State(err) != "" || sqlerr.MySQL(err) != 0 || lite != 0 && lite != interrupted
}

// result is the result of a statement that was sent with RETURNING.
type result struct {
	ctx     context.Context //nolint:containedctx // LastInsertId has none, and asks the database
	session Session
	rows    int64
	id      int64 // on MariaDB
	dialect core.Dialect
}

func (r result) RowsAffected() (int64, error) { return r.rows, nil }

// LastInsertId asks the database, because hardly anybody calls it.
func (r result) LastInsertId() (int64, error) {
	switch r.dialect {
	case core.MySQL:
		return r.id, nil
	case core.Postgres:
		return 0, errors.New("outbox: LastInsertId is not supported by this database")
	case core.SQLite:
	}
	a, err := r.session.Read(r.ctx, "SELECT last_insert_rowid()", nil)
	if err != nil {
		return 0, err
	}
	id, _ := a.Rows[0][0].(int64)
	return id, nil
}
