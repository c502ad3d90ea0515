package capture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// partOfKeys is how many keys one SELECT asks for.
const partOfKeys = 1000

// refuseBefore is the error of a statement that is not sent, because its rows could not be found
// afterwards.
func (c *Capture) refuseBefore(why error) error {
	c.release()
	return adapter.Errorf("%w: %s of %s: %w", core.ErrNoAggregateID, c.st.Op, c.st.Of, why)
}

// changed executes an UPDATE or a DELETE whose rows RETURNING cannot name. A SELECT with the
// statement's own condition names and locks the rows. Then the statement runs with their keys added
// to its condition, so that it changes exactly these.
func (c *Capture) changed(ctx context.Context, s Session, text string, args []any) (sql.Result, error) {
	if c.st.Keys == 0 {
		return nil, c.refuseBefore(errors.New("the table has no primary key"))
	}
	ch, err := parseChange(c.st.Op, text, args)
	if err != nil {
		return nil, c.refuseBefore(err)
	}
	if ch.as != "" {
		c.qualify(ch.as)
	}
	remove := ch.sets == nil
	found, err := c.lockRows(ctx, s, ch, remove)
	if err != nil {
		return nil, err
	}
	if len(found.Rows) == 0 {
		return c.unfound(ctx, s, text, args)
	}
	found.plain()
	keys := found.part(0, c.st.Keys)
	in, inArgs := c.in(keys.Rows)
	bound := piece{text: "\nWHERE ", args: append([]any{}, ch.head.args...)}
	if !ch.where.empty() {
		bound.text += "(" + ch.where.text + "\n) AND "
		bound.args = append(bound.args, ch.where.args...)
	}
	bound.args = append(append(bound.args, inArgs...), ch.tail.args...)
	if len(bound.args) > c.mostParams() {
		return nil, c.refuseBefore(fmt.Errorf("it would change %d rows, and their keys are too many for one statement",
			len(keys.Rows)))
	}
	res, err := c.send(ctx, s, ch.head.text+bound.text+in+"\n"+ch.tail.text, bound.args)
	if err != nil {
		return nil, err
	}
	if remove {
		return res, c.removed(ctx, s, res, ch.own.text, found)
	}
	if len(found.Columns) > c.st.Keys { // the statement has set the key
		keys = found.part(c.st.Keys, len(found.Columns))
	}
	err = c.readBack(ctx, s, ch.own.text, keys.Rows, true)
	if err == nil && len(c.rows) != len(keys.Rows) {
		err = c.missing(len(keys.Rows))
	}
	if err != nil {
		c.refuse(err)
	}
	return res, err
}

// missing is the error of rows that are not there by their keys after their statement.
func (c *Capture) missing(want int) error {
	return fmt.Errorf("%w: %s of %s changed %d rows, and %d were found by their keys", core.ErrNoAggregateID, c.st.Op,
		c.st.Of, want, len(c.rows))
}

// lockRows reads the keys of the rows that a statement will change, and whole rows for a DELETE. If
// an UPDATE sets a column of the key, the new key follows the old one.
func (c *Capture) lockRows(ctx context.Context, s Session, ch change, whole bool) (*Answer, error) {
	where, err := twice(ch.where)
	if err != nil {
		return nil, c.refuseBefore(err)
	}
	tail, err := twice(ch.tail)
	if err != nil {
		return nil, c.refuseBefore(err)
	}
	columns := c.st.Columns[:c.st.Keys]
	var q strings.Builder
	var args []any
	if whole {
		columns = c.st.Columns
		if bits, bitArgs := c.bits(0); bits != "" {
			columns, args = append(slices.Clip(columns), bits), bitArgs
			if err := c.tooMany(len(where.args)+len(tail.args), len(bitArgs)); err != nil {
				return nil, err
			}
		}
	} else if c.setsKey(ch) {
		columns = append([]string{}, columns...)
		for _, k := range c.st.Columns[:c.st.Keys] {
			if set, ok := ch.sets[column(k)]; ok {
				columns, args = append(columns, set.text+"\n"), append(args, set.args...)
			} else {
				columns = append(columns, k)
			}
		}
	}
	with, err := twice(ch.with)
	if err != nil {
		return nil, c.refuseBefore(err)
	}
	args = append(slices.Clone(with.args), args...)
	q.WriteString(with.text + "SELECT ")
	if ch.as != "" {
		q.WriteString("DISTINCT ") // a row can join several
	}
	q.WriteString(strings.Join(columns, ", ") + "\nFROM " + ch.table.text + "\n")
	args = append(args, ch.table.args...)
	if !where.empty() {
		q.WriteString(" WHERE " + where.text)
		args = append(args, where.args...)
	}
	q.WriteString("\n" + tail.text + "\nFOR UPDATE")
	a, err := s.Read(ctx, q.String(), append(args, tail.args...))
	if err != nil {
		c.failed(err)
		return nil, err
	}
	if len(a.Rows) > mostRows {
		c.release()
		return nil, fmt.Errorf("%w: %s of %s would change more than %d rows", core.ErrTooManyRows, c.st.Op, c.st.Of,
			mostRows)
	}
	return a, nil
}

func (c *Capture) setsKey(ch change) bool {
	return slices.ContainsFunc(c.st.Columns[:c.st.Keys], func(k string) bool {
		_, ok := ch.sets[column(k)]
		return ok
	})
}

// column is the name of a column without its table and quotes.
func column(quoted string) string { return bare(quoted[strings.LastIndex(quoted, ".")+1:]) }

// qualify adds the name of the table to the columns.
func (c *Capture) qualify(table string) {
	columns := slices.Clone(c.st.Columns)
	for i := range columns {
		columns[i] = table + "." + columns[i]
	}
	c.st.Columns = columns
}

// unfound executes a statement that has no row to change. The statement is sent unchanged: a
// condition that is never true would hide errors of its own condition.
func (c *Capture) unfound(ctx context.Context, s Session, text string, args []any) (sql.Result, error) {
	res, err := s.Send(ctx, text, args)
	if err != nil {
		c.failed(err)
		return nil, err
	}
	if n, err := res.RowsAffected(); err != nil || n > 0 {
		err = fmt.Errorf("%w: %s of %s changed %d rows that came after the outbox had looked: "+
			"run the transaction again", core.ErrNoAggregateID, c.st.Op, c.st.Of, n)
		c.refuse(err)
		return res, err
	}
	c.release()
	return res, nil
}

// removed names the rows of a DELETE, which were read before it. The database does not count rows that
// went with others of them (ON DELETE CASCADE), and IGNORE leaves some.
func (c *Capture) removed(ctx context.Context, s Session, res sql.Result, table string, found *Answer) error {
	n, err := res.RowsAffected()
	if err == nil && n != int64(len(found.Rows)) {
		left := map[string]bool{}
		for keys := range slices.Chunk(found.part(0, c.st.Keys).Rows, partOfKeys) {
			var a *Answer
			if a, err = c.readKeys(ctx, s, table, c.st.Columns[:c.st.Keys], nil, keys, true); err != nil {
				break
			}
			a.plain()
			for _, key := range a.Rows {
				left[keyText(key)] = true
			}
		}
		c.filter = func(row []any) bool { return !left[keyText(row[:c.st.Keys])] }
	}
	if err == nil {
		err = c.name(found, 0, len(found.Columns) > len(c.st.Columns))
	}
	if err != nil {
		c.refuse(err)
	}
	return err
}

// in returns the condition that the key is one of keys. Beyond some number of keys, integers stand
// in the text, and where the ORM writes values into its texts: nothing is prepared then.
func (c *Capture) in(keys [][]any) (text string, args []any) {
	var b strings.Builder
	b.WriteString(tuple(c.keyColumns()) + " IN (")
	inline := len(keys) > partOfKeys || c.params == 0
	for i, key := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		parts := make([]string, len(key))
		for k, v := range key {
			switch n := v.(type) {
			case Literal:
				parts[k] = string(n)
			case int64:
				if inline {
					parts[k] = strconv.FormatInt(n, 10)
				}
			case uint64:
				if inline {
					parts[k] = strconv.FormatUint(n, 10)
				}
			}
			if parts[k] == "" {
				parts[k] = "?"
				args = append(args, v)
			}
		}
		b.WriteString(tuple(parts))
	}
	b.WriteByte(')')
	return b.String(), args
}

func tuple(parts []string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	return "(" + strings.Join(parts, ",") + ")"
}

// keyColumns are the columns by which rows are looked for.
func (c *Capture) keyColumns() []string {
	if c.by != nil {
		return c.by.columns
	}
	return c.st.Columns[:c.st.Keys]
}

// readBack names rows by their keys, as they are stored now. Rows that were just inserted are read
// without a lock: a lock on a key that is not there would lock the gap.
func (c *Capture) readBack(ctx context.Context, s Session, table string, keys [][]any, lock bool) error {
	c.unordered = true
	bits, bitArgs := c.bits(0)
	columns := c.st.Columns
	if bits != "" {
		columns = append(slices.Clip(columns), bits)
	}
	all := &Answer{}
	for part := range slices.Chunk(keys, partOfKeys) {
		a, err := c.readKeys(ctx, s, table, columns, bitArgs, part, lock)
		if err != nil {
			return adapter.Errorf("outbox: read the rows that %s of %s changed: %w", c.st.Op, c.st.Of, err)
		}
		all.Columns, all.Types, all.Rows = a.Columns, a.Types, append(all.Rows, a.Rows...)
	}
	if len(all.Rows) == 0 {
		return nil
	}
	return c.name(all, 0, bits != "")
}

func (c *Capture) readKeys(
	ctx context.Context, s Session, table string, columns []string, args []any, keys [][]any, lock bool,
) (*Answer, error) {
	in, inArgs := c.in(keys)
	if len(args)+len(inArgs) == 0 && c.params > 0 { // else the answer is text, in which a FLOAT is rounded
		in, inArgs = in+" AND 0 = ?", []any{0}
	}
	query := func(hint string) string {
		q := "SELECT " + strings.Join(columns, ", ") + " FROM " + table + hint + " WHERE " + in
		if lock {
			q += " FOR UPDATE"
		}
		return q
	}
	args = append(slices.Clip(args), inArgs...)
	index := "PRIMARY"
	if c.by != nil {
		index = "`" + c.by.name + "`"
	}
	// An IN list of most of the table would make a scan, which locks the whole table.
	a, err := s.Read(ctx, query(" FORCE INDEX ("+index+")"), args)
	const noSuchIndex = 1176
	if sqlerr.MySQL(err) == noSuchIndex { // a view has none
		a, err = s.Read(ctx, query(""), args)
	}
	return a, err
}

// keyText is a text that no other key has.
func keyText(key []any) string { return fmt.Sprintf("%q", key) }
