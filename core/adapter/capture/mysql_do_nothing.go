package capture

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"

	"github.com/ormoutbox/ormoutbox/core"
)

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
	res, err := c.sendInsert(ctx, s, in.end.text, in.end.args)
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

// generatedSome returns the keys that a DO NOTHING may have inserted: those given, and the ids of its
// block if it has used any. A given key above them moves the block on.
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
