package capture

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// findBy decides how the rows of an upsert of several rows are found. A row with a key of its own is
// found by it: InnoDB looks there first. A row with a generated key is found by the only other
// unique key of the table. Without one, it is new.
func (c *Capture) findBy(ctx context.Context, s Session, in insert, generated int) (named bool, err error) {
	others, err := c.on.others(ctx, s, in.table)
	if err != nil {
		c.release()
		return false, err
	}
	c.others = others
	if len(others) == 0 || generated == 0 {
		return true, nil
	}
	var why error
	switch {
	case generated < len(in.values):
		why = errors.New("other rows give their keys")
	case len(others) > 1:
		why = errors.New("the table has several unique keys")
	default:
		why = in.findable(others[0])
	}
	if why == nil {
		c.by = others[0].quoted()
		return true, nil
	}
	if mariaDB, err := c.on.isMariaDB(ctx, s); mariaDB || err != nil {
		return false, err
	}
	return false, c.refuseBefore(fmt.Errorf("it is an upsert of several rows with generated keys, and %w: "+
		"insert models one by one", why))
}

// upsertedReturning executes an upsert of several rows on MariaDB whose rows only RETURNING can name.
// The database then does not say how many rows were affected: each new row counts as one, and each
// that was found as two, as if it had got other values.
func (c *Capture) upsertedReturning(ctx context.Context, s Session, in insert) (sql.Result, error) {
	r := result{ctx: ctx, session: s, dialect: c.tx.Dialect()}
	a, err := c.noting(ctx, s, in, "\nRETURNING ", func(row []any, found bool) bool {
		r.rows++
		switch {
		case found:
			r.rows++
		case r.id == 0:
			r.id, _ = strconv.ParseInt(textOf(row[0]), 10, 64)
		}
		return true
	})
	if a == nil || err != nil {
		return nil, err
	}
	return r, nil
}

// noneElsewhere reports whether no row of VALUES has found another row by another unique key. The
// row with its own key may be there because of another row of VALUES.
func (c *Capture) noneElsewhere(ctx context.Context, s Session, in insert, keys [][]any) (bool, error) {
	for _, u := range c.others {
		if in.findable(u) != nil {
			return false, nil //nolint:nilerr // it cannot be asked
		}
		rows, err := in.of(u.columns)
		if err != nil {
			return false, err
		}
		for from := 0; from < len(rows); from += partOfKeys {
			var found []string
			var args []any
			for i := from; i < min(from+partOfKeys, len(rows)); i++ {
				c.by = u.quoted()
				is, isArgs := c.in(rows[i : i+1])
				c.by = nil
				own, ownArgs := c.in(keys[i : i+1])
				found = append(found, "("+is+" AND NOT "+own+")")
				args = append(append(args, isArgs...), ownArgs...)
			}
			a, err := s.Read(ctx, "SELECT COUNT(*) FROM "+in.table+" WHERE "+strings.Join(found, " OR "), args)
			if err != nil || textOf(a.Rows[0][0]) != "0" {
				return false, err
			}
		}
	}
	return true, nil
}

// allThere reports whether each key has a row.
func (c *Capture) allThere(ctx context.Context, s Session, table string, keys [][]any) (bool, error) {
	for part := range slices.Chunk(keys, partOfKeys) {
		var exists []string
		var args []any
		for _, key := range part {
			in, inArgs := c.in([][]any{key})
			exists = append(exists, "EXISTS (SELECT 1 FROM "+table+" WHERE "+in+")")
			args = append(args, inArgs...)
		}
		a, err := s.Read(ctx, "SELECT "+strings.Join(exists, " AND "), args)
		if err != nil || textOf(a.Rows[0][0]) != "1" {
			return false, err
		}
	}
	return true, nil
}

// upsertedOne executes an INSERT of one row with ON DUPLICATE KEY UPDATE. The statement notes in
// LAST_INSERT_ID which row it has found.
func (c *Capture) upsertedOne(ctx context.Context, s Session, in insert, key []any) (sql.Result, error) {
	k := c.st.Columns[0]
	var mark uint64
	text, args := in.end.text, in.end.args
	switch {
	case c.st.DoNothing && c.st.Counted && key == nil: // else the row is new, and sets LAST_INSERT_ID
		text += ", " + k + " = IF(LAST_INSERT_ID(" + k + " | ?), " + k + ", " + k + ")"
		args = append(slices.Clip(args), foundRow)
	case c.st.DoNothing:
		var b [8]byte
		_, _ = rand.Read(b[:])
		mark = binary.BigEndian.Uint64(b[:]) | 1<<63 // no row has such an id
		text += ", " + k + " = IF(LAST_INSERT_ID(?), " + k + ", " + k + ")"
		args = append(slices.Clip(args), mark)
	case c.st.Counted:
		text += ", " + k + " = LAST_INSERT_ID(" + k + ")"
	}
	res, err := c.sendInsert(ctx, s, text, args)
	if err != nil {
		return nil, err
	}
	out := upserted{Result: res, noted: strings.Contains(in.sets[bare(k)].text, "LAST_INSERT_ID")}
	if c.st.DoNothing {
		var last uint64
		last, _, err = lastInsertID(ctx, s)
		if err == nil && (mark != 0 && last == mark || mark == 0 && last >= foundRow) {
			c.release()
			c.sent = false // the row was there
			return out, nil
		}
	}
	if err == nil {
		err = c.nameUpserted(ctx, s, in, key)
	}
	if err != nil {
		c.refuse(err)
	}
	return out, err
}

// nameUpserted names the row of an upsert of one row: the row with its own key, else the row with
// the generated or noted id, else the row that another unique key has found.
func (c *Capture) nameUpserted(ctx context.Context, s Session, in insert, key []any) error {
	look := func(key []any) error {
		return c.readBack(ctx, s, in.table, [][]any{key}, !c.st.DoNothing)
	}
	own := key
	if own == nil {
		own = c.counted(0, lastID)
	}
	if c.given() == 1 {
		c.st.Models[0].Keys = append(c.st.Models[0].Keys, own)
	}
	if err := look(own); err != nil || len(c.rows) > 0 {
		return err
	}
	if c.st.Counted && key != nil {
		if err := look(c.counted(0, lastID)); err != nil || len(c.rows) > 0 {
			return err
		}
	}
	found, err := c.foundElsewhere(ctx, s, in)
	if err == nil && found != nil {
		if err := look(found); err != nil || len(c.rows) > 0 {
			return err
		}
	}
	if err == nil {
		err = c.missing(1)
	}
	return err
}

// foundElsewhere returns the key of the row that an upsert of one row has found by another unique key,
// nil if nobody knows it: one of several keys found it, and the server does not say in which order it
// looks.
func (c *Capture) foundElsewhere(ctx context.Context, s Session, in insert) (found []any, err error) {
	others, err := c.on.others(ctx, s, in.table)
	if err != nil {
		return nil, err
	}
	defer func() { c.by = nil }()
	for _, u := range others {
		values, known := in.unique(u)
		switch {
		case !known:
			return nil, nil
		case values == nil:
			continue
		}
		c.by = u.quoted()
		a, err := c.readKeys(ctx, s, in.table, c.st.Columns[:c.st.Keys], nil, [][]any{values}, !c.st.DoNothing)
		if err != nil {
			return nil, err
		}
		a.plain()
		for _, key := range a.Rows {
			if found != nil && keyText(found) != keyText(key) {
				return nil, nil
			}
			found = key
		}
	}
	return found, nil
}

// foundRow is added to the id of a row that a DO NOTHING has found. No row has such an id.
const foundRow = uint64(1) << 63

// upserted is the result of an INSERT that notes its row in LAST_INSERT_ID. Without that the driver
// has no id if no row was changed, unless the ORM itself notes the row.
type upserted struct {
	sql.Result
	noted bool
}

func (r upserted) LastInsertId() (int64, error) {
	if r.noted {
		id, err := r.Result.LastInsertId()
		return id & math.MaxInt64, err // without foundRow
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		return 0, err
	}
	id, err := r.Result.LastInsertId()
	return max(id, 0), err // the mark of DO NOTHING is no id
}
