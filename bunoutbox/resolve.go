package bunoutbox

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// OnOption changes how On and OnContext register a function.
type OnOption = adapter.OnOption

// ResolveRows lets updates and deletes pass that do not say which rows they change, such as
// NewDelete().Model((*Order)(nil)).Where(...), or a slice and a further condition:
// Model(&orders).WherePK().Where(...). The rows that the statement is about to change are read and
// locked first (SELECT ... FOR UPDATE), and after an update they are read again. The function sees
// each row as it was stored, or as it was before it was deleted. If the statement then changes
// another number of rows, because other rows came to match its condition, its transaction does not
// commit. COMMIT returns an error wrapping core.ErrNoAggregateID, and the transaction can be tried
// again. On MySQL and MariaDB the same happens if some rows already have the new values, unless
// clientFoundRows=true is in the DSN.
//
// ResolveRows costs one SELECT before such a statement and one after an update, and memory for the
// rows; Config.MaxResolvedRows bounds them. Other statements cost nothing more. A condition must
// select the same rows twice. So a statement with LIMIT, further tables or a WITH is refused, and
// except on SQLite one with a subquery, whose rows are not locked. The option holds for all
// functions of the type.
func ResolveRows() OnOption { return adapter.ResolveRows() }

// lockRows reads and locks the rows that an update or a delete is about to change. If it cannot, it
// leaves s.known unchanged.
func (s *statement) lockRows(ctx context.Context) error {
	t := s.text
	subquery := strings.Contains(strings.ToUpper(t.where), "SELECT") && s.ob.own.Dialect() != core.SQLite
	if !t.understood || len(s.table.PKs) == 0 || t.others || t.with != "" || t.limited || t.where == "" || subquery {
		if t.understood {
			s.why += " in a way that ResolveRows could resolve (no LIMIT, further tables, WITH or subqueries)"
		}
		return nil
	}
	suffix := " FOR UPDATE"
	if s.ob.own.Dialect() == core.SQLite {
		// A transaction that has read cannot always begin to write. This statement takes the lock
		// of the only writer, and changes nothing.
		if _, err := s.query.NewRaw("?", bun.Safe("DELETE FROM "+t.target+" WHERE 1 = 0")).Exec(ctx); err != nil {
			return adapter.Errorf("outbox: lock %s: %w", s.table.Name, err)
		}
		suffix = ""
	}
	limit := s.ob.own.MaxRows()
	rows, err := s.read(ctx, fmt.Sprintf("%s LIMIT %d%s", t.where, limit+1, suffix))
	if err != nil {
		return err
	}
	if len(rows) > limit {
		return s.ob.own.TooManyRows(s.op, s.table.Name)
	}
	s.bound = s.known == byKeys
	s.known, s.resolved = byRows, rows
	return nil
}

// checkResolved compares the number of changed rows with the rows that were found before.
func (c *capture) checkResolved() error {
	n := int(c.affected)
	if n == len(c.resolved) || n < 0 || n < len(c.resolved) && c.boundOnMySQL() {
		return nil
	}
	hint := ""
	if c.ob.own.Dialect() == core.MySQL && c.op == core.OpUpdate {
		hint = " (clientFoundRows=true in the DSN counts those that are as they shall be)"
	}
	return fmt.Errorf("%w: %s of %s found %d rows before, and %d were changed%s: try the transaction again",
		core.ErrNoAggregateID, c.op, c.table.Name, len(c.resolved), n, hint)
}

// boundOnMySQL reports whether every row that was not counted already had the new values. That is
// so when the statement names its rows by their keys.
func (c *capture) boundOnMySQL() bool { return c.bound && c.uncounted() }

// read reads whole rows of the table of the statement.
func (s *statement) read(ctx context.Context, condition string) ([]row, error) {
	names := make([]string, 0, len(s.table.Fields))
	for _, f := range s.table.Fields {
		names = append(names, string(f.SQLName))
	}
	found := reflect.New(reflect.SliceOf(reflect.PointerTo(s.table.Type)))
	text := "SELECT " + strings.Join(names, ", ") + " FROM " + s.text.target + " WHERE " + condition
	if err := s.query.NewRaw("?", bun.Safe(text)).Scan(ctx, found.Interface()); err != nil {
		return nil, adapter.Errorf("outbox: read the rows of %s: %w", s.table.Name, err)
	}
	rows := make([]row, 0, found.Elem().Len())
	for _, model := range elements(found.Interface()) {
		key, err := keyOf(s.table, model)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{key, model})
	}
	return rows, nil
}

// readRows reads rows as the statement stored them. A missing row is an error, because the
// statement changed another row in its place.
func (c *capture) readRows(ctx context.Context, event *bun.QueryEvent, rows []row) ([]row, error) {
	if c.op == core.OpDelete {
		return nil, c.doubt("returned a part of its rows (Returning(\"*\") tells all of them)")
	}
	if len(rows) == 0 || len(c.table.PKs) == 0 {
		return rows, nil
	}
	gen := event.DB.QueryGen()
	keys := make([]string, len(rows))
	for i, r := range rows {
		keys[i] = keyTuple(gen, c.table, r.model)
	}
	read, err := c.read(ctx, keyColumns(c.table, "")+" IN ("+strings.Join(keys, ", ")+")")
	if err != nil {
		return nil, err
	}
	byKey := make(map[string]row, len(read))
	for _, r := range read {
		byKey[r.key] = r
	}
	fresh := make([]row, len(rows))
	for i, r := range rows {
		var ok bool
		if fresh[i], ok = byKey[r.key]; !ok {
			return nil, c.doubt("changed another row than that with the key " + r.key + ", or its key")
		}
	}
	return fresh, nil
}
