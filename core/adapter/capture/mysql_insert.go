package capture

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// insert is an INSERT in its parts.
type insert struct {
	table    string
	columns  []string  // in lower case
	values   [][]piece // of each row
	ignore   bool
	replace  bool
	onUpdate bool             // ON DUPLICATE KEY UPDATE
	sets     map[string]piece // its assignments
	end      piece            // the text up to the end of that, or of VALUES
	rest     piece            // RETURNING
}

// parseInsert reads INSERT INTO t (columns) VALUES (...), (...).
func parseInsert(text string, args []any) (in insert, err error) {
	all, err := tokens(core.MySQL, text)
	if err != nil {
		return in, err
	}
	if n := countParams(all); n != len(args) {
		return in, fmt.Errorf("%w: it has %d parameters and %d arguments", errText, n, len(args))
	}
	i := 0
	is := func(w string) bool {
		if i < len(all) && all[i].kind == word && all[i].text == w {
			i++
			return true
		}
		return false
	}
	if in.replace = is("REPLACE"); !in.replace && !is("INSERT") {
		return in, fmt.Errorf("%w: it is no INSERT", errText)
	}
	in.ignore = is("IGNORE")
	is("INTO")
	from := i
	for i < len(all) && all[i].kind != open && all[i].text != "VALUES" && all[i].text != "VALUE" {
		i++
	}
	if i == from || i == len(all) {
		return in, errText
	}
	in.table = text[all[from].at:all[i-1].end]
	if all[i].kind == open {
		for i++; i < len(all) && all[i].kind != shut; i++ {
			if all[i].kind != comma {
				in.columns = append(in.columns, bare(text[all[i].at:all[i].end]))
			}
		}
		i++
	}
	if !is("VALUES") && !is("VALUE") {
		return in, errors.New("outbox: it inserts the rows of a SELECT")
	}
	i = in.readValues(all, i, text, args)
	stop := token{at: len(text), argument: len(args)}
	on := len(all)
	for j := i; j < len(all); j++ {
		switch {
		case all[j].depth > 0 || all[j].kind != word:
		case all[j].text == "ON":
			on = j
		case all[j].text == "RETURNING":
			stop = all[j]
		}
	}
	if in.onUpdate = on+5 < len(all); in.onUpdate { // ON DUPLICATE KEY UPDATE
		if in.sets, err = assignments(all[on+4:], text, args, stop); err != nil {
			return in, err
		}
	}
	in.end = piece{text[:stop.at], args[:stop.argument]}
	in.rest = piece{text[stop.at:], args[stop.argument:]}
	return in, nil
}

// readValues reads the rows of VALUES from a token, and returns the token after them.
func (in *insert) readValues(all []token, i int, text string, args []any) int {
	for i < len(all) && all[i].kind == open {
		var values []piece
		depth, start := all[i].depth, all[i]
		start.at = start.end
		for i++; i < len(all); i++ {
			if all[i].depth == depth+1 && all[i].kind == comma || all[i].depth == depth && all[i].kind == shut {
				values = append(values, piece{text[start.at:all[i].at], args[start.argument:all[i].argument]})
				start = token{at: all[i].end, argument: all[i].argument}
				if all[i].kind == shut {
					break
				}
			}
		}
		in.values = append(in.values, values)
		if i++; i < len(all) && all[i].kind == comma {
			i++
		}
	}
	return i
}

// bare is a name without its quotes, in lower case.
func bare(name string) string { return strings.ToLower(strings.Trim(name, "`")) }

// of returns the values of some columns in each row of VALUES. A row without one of them, or with
// NULL, has nil.
func (in *insert) of(columns []string) (rows [][]any, err error) {
	rows = make([][]any, len(in.values))
	for i, values := range in.values {
		row := make([]any, len(columns))
		for k, column := range columns {
			if at := slices.Index(in.columns, bare(column)); at >= 0 && at < len(values) {
				if row[k], err = values[at].value(); err != nil {
					return nil, err
				}
			}
		}
		if !slices.Contains(row, nil) {
			rows[i] = row
		}
	}
	return rows, nil
}

// value is the value of one expression of VALUES, nil for DEFAULT and NULL.
func (p piece) value() (any, error) {
	text := strings.TrimSpace(p.text)
	switch {
	case text == "?" && len(p.args) == 1:
		v, err := driver.DefaultParameterConverter.ConvertValue(p.args[0])
		if err != nil {
			return p.args[0], nil //nolint:nilerr // the driver may know the type
		}
		return v, nil
	case strings.Contains(text, "(") || len(p.args) > 0:
		return nil, errors.New("outbox: a column of a key is an expression")
	case strings.EqualFold(text, "DEFAULT") || strings.EqualFold(text, "NULL") || text == "":
		return nil, nil
	}
	return Literal(text), nil
}

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

// findable says why the rows of an upsert would not be found by a unique key, or nil.
func (in *insert) findable(u unique) error {
	if !u.whole {
		return fmt.Errorf("the unique key %s is of prefixes or expressions", u.name)
	}
	rows, err := in.of(u.columns)
	if err != nil || slices.ContainsFunc(rows, func(r []any) bool { return r == nil }) {
		return fmt.Errorf("a row does not say its unique key %s", u.name)
	}
	for _, column := range u.columns {
		if set, ok := in.sets[column]; ok && !isValues(set.text, column) {
			return fmt.Errorf("it changes the unique key %s", u.name)
		}
	}
	return nil
}

// isValues reports whether an assignment is VALUES(column).
func isValues(text, column string) bool {
	all, err := tokens(core.MySQL, text)
	return err == nil && len(all) == 4 && all[0].text == "VALUES" && bare(text[all[2].at:all[2].end]) == column
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
			if found != nil && fmt.Sprint(found...) != fmt.Sprint(key...) {
				return nil, nil
			}
			found = key
		}
	}
	return found, nil
}

// unique returns the values of a unique key in the only row of VALUES, nil if one is NULL, which
// finds nothing. known is false if they are not known, or the statement may have changed them.
func (in *insert) unique(u unique) (values []any, known bool) {
	for _, column := range u.columns {
		at := slices.Index(in.columns, column)
		value, text := any(nil), "DEFAULT"
		if at >= 0 {
			var err error
			if value, err = in.values[0][at].value(); err != nil {
				return nil, false
			}
			text = strings.TrimSpace(in.values[0][at].text)
		}
		set, changes := in.sets[column]
		switch {
		case !u.whole || changes && !isValues(set.text, column):
			return nil, false
		case value == nil && strings.EqualFold(text, "DEFAULT"):
			value = Literal("DEFAULT(`" + column + "`)")
		case value == nil:
			return nil, true
		}
		values = append(values, value)
	}
	return values, true
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
	c.filter = func(row []any) bool { return !there[fmt.Sprint(row[:c.st.Keys]...)] }
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
		there[fmt.Sprint(key...)] = true
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
