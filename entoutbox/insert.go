package entoutbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
)

// collision says what an INSERT does with a row that exists already.
type collision uint8

const (
	collisionFails collision = iota
	collisionUpdates
	collisionSkips
)

// insert is an INSERT of generated code, with the result that the database reported.
type insert struct {
	table     string // as the statement writes it
	onCollide collision
	rows      int // the number of rows in VALUES

	tells    bool         // generated code reads its result
	asks     bool         // it has RETURNING
	returned atomic.Int64 // rows that RETURNING returned
	affected int64        // without RETURNING: the count of the driver, negative when it has none
	undone   atomic.Bool  // it was rolled back to a savepoint
}

// readInsert reads the text of an INSERT. It returns nil for another statement. Generated code
// writes placeholders for data, so the text contains no data.
func readInsert(query string) *insert {
	const begin = "INSERT INTO "
	if !strings.HasPrefix(query, begin) {
		return nil
	}
	in := &insert{affected: -1}
	in.table, _, _ = strings.Cut(query[len(begin):], " ")
	in.rows = rowsOf(query)
	switch {
	case strings.Contains(query, " DO NOTHING"), setsItself(query):
		in.onCollide = collisionSkips
	case strings.Contains(query, " ON CONFLICT"), strings.Contains(query, " ON DUPLICATE KEY"):
		in.onCollide = collisionUpdates
	}
	return in
}

// setsItself reports whether an INSERT sets columns of existing rows to themselves. Ent writes
// DoNothing in that way for MySQL and MariaDB.
func setsItself(query string) bool {
	_, assignments, ok := strings.Cut(query, " ON DUPLICATE KEY UPDATE ")
	if !ok {
		return false
	}
	for a := range strings.SplitSeq(assignments, ", ") {
		column, value, ok := strings.Cut(a, " = ")
		if !ok || value != column && !strings.HasSuffix(value, "."+column) {
			return false
		}
	}
	return true
}

// rowsOf counts the rows after VALUES. It is 1 when there is no list of rows.
func rowsOf(query string) int {
	rows, depth := 0, 0
	inList := false
	for i := 0; i < len(query); i++ {
		switch c := query[i]; {
		case c == '\'' || c == '"' || c == '`': // a doubled quote ends one text and begins another
			if end := strings.IndexByte(query[i+1:], c); end >= 0 {
				i += end + 1
			}
		case c == '(':
			if depth == 0 && inList {
				rows++
			}
			depth++
		case c == ')':
			depth--
		case depth > 0 || c == ' ' || c == ',':
		case inList:
			return max(rows, 1) // the text after the list
		case strings.HasPrefix(query[i:], "VALUES") && query[i-1] == ' ':
			inList = true
			i += len("VALUES") - 1
		}
	}
	return max(rows, 1)
}

// group has the calls of one hook whose entities one INSERT stores. Ent passes the entities of a
// CreateBulk through the hooks one within the other, and executes the INSERT in the context of the
// last one. So the last entity is done first. When all calls are done, their events are recorded in
// the order of the builders, in one statement.
type group struct {
	insert *insert
	calls  []*call // the INSERT had the context of the last one
	open   int
	events map[*call][]core.Event
	before []core.Event // events of other rows, whose calls have ended
	failed bool         // one call failed, and the transaction will not commit
}

// begins checks a statement before it is executed. It returns the insert if the statement is an
// INSERT of c. tells says whether generated code reads its result.
func (c *call) begins(ctx context.Context, query string, tells bool) (*insert, error) {
	if c == nil {
		return nil, nil
	}
	if opOf(c.mutation) != core.OpCreate {
		return nil, c.bound(query)
	}
	in := readInsert(query)
	if in == nil {
		return nil, nil
	}
	in.tells = tells
	if in.onCollide != collisionSkips || in.rows == 1 {
		return in, nil
	}
	for w := range c.same() {
		if !w.looksOwn(in) { // an INSERT of edges skips existing rows
			continue
		}
		if err := w.hook.ob.keyless(ctx, w.mutation,
			"in bulk with DoNothing does not say which rows were there already"); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// same iterates over the calls of the mutation. Each hook around it that captures it has one.
func (c *call) same() func(func(*call) bool) {
	return func(yield func(*call) bool) {
		for w := c; w != nil && w.mutation == c.mutation; w = w.within {
			if w.tx != nil && !yield(w) {
				return
			}
		}
	}
}

// executes notes a statement that was executed in the context of c. Without a count of the driver,
// the number of changed rows is -1.
func (c *call) executes(in *insert, res sql.Result) {
	if c == nil {
		return
	}
	changed := int64(-1)
	if res != nil {
		if n, err := res.RowsAffected(); err == nil {
			changed = n
		}
	}
	if in != nil {
		in.affected = changed
	}
	did := &effect{changed: changed}
	var tx core.Tx
	for w := range c.same() {
		if w.note(in, did) {
			tx = w.tx.core
		}
	}
	if tx != nil && (in != nil || changed != 0) {
		tx.OnOutcome(func(o core.Outcome) {
			if o == core.RolledBack {
				did.undone.Store(true)
				if in != nil {
					in.undone.Store(true)
				}
			}
		})
	}
}

// effect is the number of rows that a statement changed.
type effect struct {
	changed int64 // negative: the driver did not report a number
	undone  atomic.Bool
}

// changed returns how many rows the statements of the mutation changed, without statements that
// were rolled back to a savepoint. It is negative when a driver did not report a number. The caller
// holds tx.mu.
func (c *call) changed() (rows int64) {
	for _, e := range c.did {
		switch {
		case e.undone.Load():
		case e.changed < 0:
			return -1
		default:
			rows += e.changed
		}
	}
	return rows
}

// reads notes a statement that returns rows: an INSERT with RETURNING, or a SELECT, which changes
// nothing.
func (c *call) reads(in *insert) {
	if in != nil {
		c.executes(in, nil)
		return
	}
	if c == nil {
		return
	}
	for w := range c.same() {
		w.note(nil, &effect{})
	}
}

// note adds a statement to those of the mutation. It reports false, and adds nothing, if the
// mutation was done before.
func (c *call) note(in *insert, did *effect) bool {
	c.tx.mu.Lock()
	defer c.tx.mu.Unlock()
	if done, told := doneOf(c.mutation); told && done && !c.wasDone {
		return false // a hook ran it in the context of the mutation
	}
	c.seen = true
	if did.changed != 0 {
		c.did = append(c.did, did)
	}
	if in != nil {
		c.join(in)
	}
	return true
}

// join decides whether an INSERT is the one of the mutation, and groups the calls of its bulk.
func (c *call) join(in *insert) {
	var before []core.Event
	if g := c.group; g != nil {
		own := g.calls[len(g.calls)-1] == c
		if own && g.insert.table != in.table && !c.prefers(in, g.insert) {
			return
		}
		// If the group is its own, the create failed and is tried again. Otherwise the call was
		// taken for a part of another bulk.
		if before = g.drop(c); own {
			for _, o := range g.calls {
				o.group = nil
			}
		}
		c.group = nil
	}
	c.group = &group{insert: in, calls: c.bulk(in), events: map[*call][]core.Event{}, before: before}
	c.group.open = len(c.group.calls)
	for _, o := range c.group.calls {
		o.group = c.group
	}
}

// prefers compares two INSERTs into different tables that were executed in the context of one
// create. It reports whether the later one is the create's own. If so, an inner hook made the
// earlier one. If not, the later one is that of an edge.
func (c *call) prefers(later, earlier *insert) bool {
	if l, e := c.looksOwn(later), c.looksOwn(earlier); l != e {
		return l
	}
	return later.tells || len(c.mutation.AddedEdges()) == 0 // the result of edges is not read
}

// looksOwn reports whether generated code writes such an INSERT for an entity like that of c.
func (c *call) looksOwn(in *insert) bool {
	switch {
	case !c.hasID:
		return !in.tells
	case c.id == "": // the database generates the id, and returns it
		return in.tells
	}
	return in.tells || in.onCollide == collisionFails
}

// awaits reports whether the mutation still waits for its INSERT, which in may be.
func (c *call) awaits(in *insert) bool {
	g := c.group
	return g == nil || len(g.calls) == 1 && g.insert.table != in.table && c.prefers(in, g.insert)
}

// bulk returns the calls whose entities an INSERT stores. The INSERT was executed in the context of
// c, which is the last call. The calls before it are the innermost ones that still wait for their
// INSERT.
func (c *call) bulk(in *insert) []*call {
	calls := []*call{c}
	at := slices.Index(c.tx.open, c)
	for _, o := range slices.Backward(c.tx.open[:max(at, 0)]) {
		if len(calls) == in.rows {
			break
		}
		if o.hook == c.hook && o.op == core.OpCreate && o.awaits(in) && o.mutation != c.mutation &&
			o.mutation.Type() == c.mutation.Type() {
			calls = append(calls, o)
		}
	}
	slices.Reverse(calls)
	return calls
}

// drop removes c from the group. If no other call is open, it returns the events of the group.
func (g *group) drop(c *call) []core.Event {
	i := slices.Index(g.calls, c)
	if i < 0 {
		return nil
	}
	g.calls = slices.Delete(g.calls, i, i+1)
	g.open--
	return g.complete()
}

// keep holds the events of a call back until all calls of its bulk are done. It reports false for a
// bulk of one.
func (c *call) keep(events []core.Event) bool {
	c.tx.mu.Lock()
	defer c.tx.mu.Unlock()
	if c.group == nil || len(c.group.calls) == 1 {
		return false
	}
	c.group.events[c] = events
	return true
}

// end returns the events of all calls when c is the last call that ends.
func (g *group) end(c *call) []core.Event {
	if g == nil || !slices.Contains(g.calls, c) {
		return nil
	}
	g.open--
	return g.complete()
}

// complete returns the events of all calls, in the order of the builders, once all have ended.
func (g *group) complete() []core.Event {
	if g.open > 0 {
		return nil
	}
	all := g.before
	if g.failed || g.insert.undone.Load() {
		return all
	}
	last := g.last()
	for _, o := range g.calls {
		if id, _ := idOf(o.mutation); last[id] == nil || last[id] == o {
			all = append(all, g.events[o]...)
		}
	}
	return all
}

// last returns, for an upsert, the call that stored each entity last.
func (g *group) last() map[string]*call {
	if g.insert.onCollide != collisionUpdates {
		return nil
	}
	last := make(map[string]*call, len(g.calls))
	for _, o := range g.calls {
		if id, _ := idOf(o.mutation); id != "" {
			last[id] = o
		}
	}
	return last
}

// changes reports whether the INSERT stored the row of c. It turns c into an upsert if the row may
// have existed already.
func (in *insert) changes(c *call) (bool, error) {
	if in.onCollide != collisionFails {
		c.op = core.OpUpsert
	}
	if in.undone.Load() || in.onCollide == collisionSkips && in.rows > 1 { // AllowKeyless is set
		return false, nil
	}
	stored := in.affected
	if in.asks {
		stored = in.returned.Load()
	}
	switch {
	case stored == 0:
		return false, nil // MySQL and MariaDB: the upsert changed nothing
	case stored < 0, stored == int64(in.rows):
		return true, nil
	case in.onCollide == collisionUpdates && c.tx.driver.dialect == core.MySQL:
		return true, nil // an update counts 2, an unchanged row 0, and no row is skipped
	}
	return false, c.unknown(fmt.Errorf("it was to store %d rows and stored %d", in.rows, stored))
}

// counting counts the rows of RETURNING.
type counting struct {
	entsql.ColumnScanner
	n *atomic.Int64
}

func (r counting) Next() bool {
	ok := r.ColumnScanner.Next()
	if ok {
		r.n.Add(1)
	}
	return ok
}
