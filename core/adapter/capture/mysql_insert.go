package capture

import (
	"context"
	"database/sql"
	"database/sql/driver"
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
	case c.st.Op == core.OpUpdate: // MariaDB has no such statement, and returns an error
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
	// A DO NOTHING returns the rows that were there too. Such a row moves LAST_INSERT_ID on by one.
	return c.noting(ctx, s, in, "\n, ", func(_ []any, found bool) bool { return !found })
}

// noting executes an INSERT of MariaDB that notes in LAST_INSERT_ID which rows it has found. keep
// is called for each returned row, and reports whether the statement changed the row.
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
	res, err := c.send(ctx, s, in.end.text, in.end.args)
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

func (c *Capture) send(ctx context.Context, s Session, text string, args []any) (sql.Result, error) {
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

// of returns the values of some columns in each row of VALUES. A row that lacks one of the columns,
// or has NULL there, has nil.
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

// findable returns nil, or an error if the rows of an upsert cannot be found by a unique key.
func (in *insert) findable(u unique) error {
	if !u.whole {
		return fmt.Errorf("the unique key %s has prefixes or expressions", u.name)
	}
	rows, err := in.of(u.columns)
	if err != nil || slices.ContainsFunc(rows, func(r []any) bool { return r == nil }) {
		return fmt.Errorf("a row has no value for its unique key %s", u.name)
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
