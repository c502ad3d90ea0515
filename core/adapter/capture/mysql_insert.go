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
)

// execMySQL executes a statement on MySQL or MariaDB.
func (c *Capture) execMySQL(ctx context.Context, s Session, text string, args []any) (sql.Result, error) {
	mariaDB, err := c.on.isMariaDB(context.WithoutCancel(ctx), s)
	if err != nil {
		c.release()
		return nil, err
	}
	head := strings.Fields(strings.ToUpper(text[:min(len(text), 64)]))
	// No soft delete, and RETURNING has the rows that IGNORE leaves.
	deletes := len(head) > 0 && head[0] == "DELETE" && !slices.Contains(head, "IGNORE")
	returning := mariaDB && (c.st.Op == core.OpCreate && !c.st.DoNothing || deletes)
	if c.st.Keys == 0 && !returning && c.st.LeftOut != nil {
		c.st.LeftOut()
		c.release()
		return s.Send(ctx, text, args)
	}
	switch c.st.Op {
	case core.OpUpdate, core.OpDelete:
		if mariaDB && deletes {
			return c.execReturning(ctx, s, text, args)
		}
		return c.changed(ctx, s, text, args)
	case core.OpCreate, core.OpUpsert:
	}
	if c.st.Keys == 0 {
		if mariaDB && c.st.Op == core.OpCreate && !c.st.DoNothing {
			return c.execReturning(ctx, s, text, args)
		}
		return nil, c.refuseBefore(errors.New("the table has no primary key"))
	}
	in, err := parseInsert(text, args)
	switch {
	case err == nil && mariaDB && !in.onUpdate && !in.ignore:
		return c.insertReturning(ctx, s, in, text, args)
	case err != nil && returning: // of a SELECT
		return c.insertReturning(ctx, s, in, text, args)
	case err != nil:
		return nil, c.refuseBefore(err)
	}
	return c.inserted(ctx, s, in)
}

// insertReturning executes an INSERT on MariaDB. The driver gets no id for a statement with
// RETURNING: it is the first generated key, or the last given one.
func (c *Capture) insertReturning(
	ctx context.Context, s Session, in insert, text string, args []any,
) (sql.Result, error) {
	a, err := c.returning(ctx, s, text, args, "\nRETURNING ")
	if err != nil {
		return nil, err
	}
	res := result{ctx: ctx, session: s, rows: int64(len(a.Rows)), dialect: core.MySQL}
	if c.st.Counted && len(c.rows) > 0 {
		keys, _ := in.of(c.st.Columns[:1])
		at := slices.IndexFunc(keys, c.generates)
		switch {
		case len(keys) == 0 && !slices.Contains(in.columns, bare(c.st.Columns[0])):
			at = 0
		case at < 0 || at >= len(c.rows):
			at = len(c.rows) - 1
		}
		res.id, _ = strconv.ParseInt(c.rows[at].key, 10, 64)
	}
	return res, nil
}

// generates reports whether the database generates a key of VALUES.
func (c *Capture) generates(key []any) bool {
	return key == nil || len(key) > 0 && c.st.Counted && (key[0] == int64(0) || key[0] == Literal("0"))
}

// queryMySQL executes a statement of MariaDB that has a RETURNING.
func (c *Capture) queryMySQL(ctx context.Context, s Session, text string, args []any) (*Answer, error) {
	switch {
	case c.st.Op == core.OpUpdate: // MariaDB has no such statement, and says so
		a, err := s.Ask(ctx, text, args)
		if err == nil {
			err = fmt.Errorf("%w: update of %s with RETURNING", core.ErrNoAggregateID, c.st.Of)
			c.refuse(err)
		} else {
			c.failed(err)
		}
		return a, err
	case !c.st.DoNothing:
		return c.returning(ctx, s, text, args, "\n, ")
	}
	in, err := parseInsert(text, args)
	if err != nil {
		return &Answer{}, c.refuseBefore(err)
	}
	if !in.onUpdate {
		return c.returning(ctx, s, text, args, "\n, ")
	}
	return c.skipped(ctx, s, in)
}

// skipped executes a DO NOTHING with a RETURNING, which returns the rows that were there too. Such
// a row moves LAST_INSERT_ID on by one.
func (c *Capture) skipped(ctx context.Context, s Session, in insert) (*Answer, error) {
	return c.noting(ctx, s, in, "\n, ", func(_ []any, found bool) bool { return !found })
}

// noting executes an INSERT of MariaDB that notes in LAST_INSERT_ID which rows it has found. keep is
// called for each row that is returned, and tells whether it is one of the changed ones.
func (c *Capture) noting(
	ctx context.Context, s Session, in insert, with string, keep func(row []any, found bool) bool,
) (*Answer, error) {
	k := c.st.Columns[0]
	before, err := s.Read(ctx, "SELECT LAST_INSERT_ID()", nil)
	if err != nil {
		c.release()
		return &Answer{}, err
	}
	last := textOf(before.Rows[0][0])
	columns := c.st.Columns
	c.st.Columns = append(slices.Clip(columns), "LAST_INSERT_ID()")
	c.filter = func(row []any) bool {
		now := textOf(row[len(row)-1])
		moved := now != last
		last = now
		return keep(row, moved)
	}
	c.extra = 1
	defer func() { c.st.Columns = columns }()
	text := in.end.text + ", " + k + " = IF(LAST_INSERT_ID(LAST_INSERT_ID() + 1), " + k + ", " + k + ")\n"
	text += in.rest.text
	return c.returning(ctx, s, text, append(slices.Clip(in.end.args), in.rest.args...), with)
}

var errNotCounted = errors.New("the database makes its key, and not by counting")

// inserted executes an INSERT whose rows RETURNING cannot name.
func (c *Capture) inserted(ctx context.Context, s Session, in insert) (sql.Result, error) {
	keys, err := in.of(c.st.Columns[:c.st.Keys])
	if err != nil {
		return nil, c.refuseBefore(err)
	}
	if c.st.Counted && c.st.Keys > 1 { // the first column may be generated, and not the others
		if c.rest, err = in.of(c.st.Columns[1:c.st.Keys]); err != nil {
			return nil, c.refuseBefore(err)
		}
		if slices.ContainsFunc(c.rest, func(k []any) bool { return k == nil }) {
			return nil, c.refuseBefore(errNotCounted)
		}
	}
	generated := 0
	for i, k := range keys {
		if c.generates(k) {
			keys[i] = nil
			generated++
		}
	}
	switch {
	case generated > 0 && !c.st.Counted:
		return nil, c.refuseBefore(errNotCounted)
	case len(keys) == 1 && in.onUpdate:
		return c.upsertedOne(ctx, s, in, keys[0])
	case c.st.DoNothing:
		return c.insertedSome(ctx, s, in, keys, generated)
	case in.onUpdate:
		switch named, err := c.findBy(ctx, s, in, generated); {
		case err != nil:
			return nil, err
		case !named:
			return c.upsertedReturning(ctx, s, in)
		}
	}
	res, err := c.sendInsert(ctx, s, in.end.text, in.end.args)
	if err != nil {
		return nil, err
	}
	switch {
	case c.by != nil:
		keys, err = in.of(c.by.columns)
	case generated > 0:
		keys, err = c.generated(ctx, s, keys)
	}
	if err == nil {
		err = c.nameInserted(ctx, s, in, keys)
	}
	if err != nil {
		c.refuse(err)
	}
	return res, err
}

func (c *Capture) sendInsert(ctx context.Context, s Session, text string, args []any) (sql.Result, error) {
	res, err := s.Send(ctx, text, args)
	if err != nil {
		c.failed(err)
		return nil, err
	}
	c.sent = true
	return res, nil
}

// lastID is the key that the database has generated for one row, or that an upsert has noted.
const lastID = Literal("LAST_INSERT_ID()")

// generated fills in the keys that the database has generated for one statement.
func (c *Capture) generated(ctx context.Context, s Session, keys [][]any) ([][]any, error) {
	if len(keys) == 1 { // nothing is to be counted
		return [][]any{c.counted(0, lastID)}, nil
	}
	first, step, err := lastInsertID(ctx, s)
	if err != nil {
		return nil, err
	}
	all := make([][]any, len(keys))
	for i, k := range keys {
		if all[i] = k; k == nil {
			all[i] = c.counted(i, first)
			first += step
		}
	}
	return all, nil
}

// counted is the key of a row of VALUES with a generated id.
func (c *Capture) counted(row int, id any) []any {
	key := []any{id}
	if c.rest != nil {
		key = append(key, c.rest[row]...)
	}
	return key
}

// lastInsertID asks the database, because a trigger clears the id that the driver got.
func lastInsertID(ctx context.Context, s Session) (id, step uint64, err error) {
	a, err := s.Read(ctx, "SELECT LAST_INSERT_ID(), @@auto_increment_increment", nil)
	if err != nil {
		return 0, 0, err
	}
	if id, err = strconv.ParseUint(textOf(a.Rows[0][0]), 10, 64); err != nil {
		return 0, 0, err
	}
	step, err = strconv.ParseUint(textOf(a.Rows[0][1]), 10, 64)
	return id, step, err
}

// nameInserted names the rows with these keys. A key can be there twice in an upsert.
func (c *Capture) nameInserted(ctx context.Context, s Session, in insert, keys [][]any) error {
	upsert := in.onUpdate || in.replace
	if c.given() == len(keys) { // the models may not have the keys yet
		for i, key := range keys {
			c.st.Models[i].Keys = [][]any{key}
		}
	}
	if err := c.readBack(ctx, s, in.table, keys, upsert); err != nil {
		return err
	}
	if len(c.rows) == len(keys) {
		return nil
	}
	if upsert { // a key can be there twice, and the database may take two texts for one key
		all, err := c.allThere(ctx, s, in.table, keys)
		if err == nil && all && len(c.others) > 0 && c.by == nil {
			all, err = c.noneElsewhere(ctx, s, in, keys)
		}
		if all || err != nil {
			return err
		}
	}
	return c.missing(len(keys))
}
