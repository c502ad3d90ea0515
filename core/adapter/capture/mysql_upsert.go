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

	"github.com/ormoutbox/ormoutbox/core"
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

// upsertedReturning executes an upsert of several rows on MariaDB whose rows only RETURNING can
// name. The database then does not return a number of affected rows: each new row counts as one,
// and each existing one as two, as if its values had changed.
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
	res, err := c.send(ctx, s, text, args)
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

// foundElsewhere returns the key of the row that an upsert of one row has found by another unique
// key, or nil if several keys may have found it, because the order in which the server looks is not
// known.
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

// insertedSome executes a DO NOTHING of several rows, or an INSERT IGNORE.
func (c *Capture) insertedSome(
	ctx context.Context, s Session, in insert, keys [][]any, generated int,
) (sql.Result, error) {
	given := slices.DeleteFunc(slices.Clone(keys), func(k []any) bool { return k == nil })
	there, err := c.present(ctx, s, in.table, given)
	if err != nil {
		c.release()
		return nil, err
	}
	res, err := c.send(ctx, s, in.end.text, in.end.args)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (sql.Result, error) {
		if err != nil {
			c.refuse(err)
		}
		return res, err
	}
	n, err := res.RowsAffected()
	if err != nil || n == 0 {
		if err == nil {
			c.release()
		}
		return fail(err)
	}
	if generated > 0 {
		if keys, err = c.generatedSome(ctx, s, in.table, keys, given, there, n); err != nil {
			return fail(err)
		}
	}
	if int(n) == len(keys) && c.given() == len(keys) {
		for i, key := range keys {
			c.st.Models[i].Keys = [][]any{key}
		}
	}
	c.filter = func(row []any) bool { return !there[keyText(row[:c.st.Keys])] }
	if err := c.readBack(ctx, s, in.table, keys, false); err != nil {
		return fail(err)
	}
	if int64(len(c.rows)) != n {
		return fail(c.missing(int(n)))
	}
	return res, nil
}

// present returns the keys of rows that a plain read sees.
func (c *Capture) present(ctx context.Context, s Session, table string, keys [][]any) (map[string]bool, error) {
	there := map[string]bool{}
	if len(keys) == 0 {
		return there, nil
	}
	a, err := c.readKeys(ctx, s, table, c.st.Columns[:c.st.Keys], nil, keys, false)
	if err != nil {
		return nil, err
	}
	for _, key := range a.Rows {
		there[keyText(key)] = true
	}
	return there, nil
}

// generatedSome returns the keys that a DO NOTHING may have inserted: the given ones, and the ids
// of its block if it has used any. A given key above them moves the block on.
func (c *Capture) generatedSome(
	ctx context.Context, s Session, table string, keys, given [][]any, before map[string]bool, n int64,
) ([][]any, error) {
	if len(given) == 0 {
		return c.generated(ctx, s, keys)
	}
	after, err := c.present(ctx, s, table, given)
	if err != nil {
		return nil, err
	}
	if int64(len(after)-len(before)) == n {
		return given, nil // LAST_INSERT_ID is of another statement
	}
	first, _, err := lastInsertID(ctx, s)
	if err != nil {
		return nil, err
	}
	var moved any // a key that has moved the ids after it on
	for _, key := range keys {
		switch {
		case key == nil && moved != nil:
			return nil, fmt.Errorf("%w: %s of %s gives the key %v, and leaves keys after it to the database",
				core.ErrNoAggregateID, c.st.Op, c.st.Of, moved)
		case key == nil:
			continue
		}
		if id, err := strconv.ParseInt(textOf(key[0]), 10, 64); err != nil || id > 0 && uint64(id) >= first {
			moved = key[0]
		}
	}
	return c.generated(ctx, s, keys)
}
