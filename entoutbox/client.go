package entoutbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"entgo.io/ent"
	"entgo.io/ent/dialect"

	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/adapter/capture"
)

// client is a client of generated code that has a hook of an outbox, with its transactions and
// copies. Clients can have tables of their own, in other schemas.
type client struct {
	of       identity
	driver   *driver
	outboxes []*Outbox
	tables   map[string]*entity // by name, without quotes
	bare     map[string]*entity // by name without the schema; nil: several tables have it
}

// entity is a type of a client, with its table.
type entity struct {
	name    string // of the type: Order
	table   string // as Ent writes it
	goType  reflect.Type
	typed   reflect.Value // client.Order
	columns []string      // that of the id first, without quotes
	id      []int         // the field of the id; nil: the type has none
}

func newClient(of identity, d *driver, tables map[string]*entity) *client {
	c := &client{of: of, driver: d, tables: tables, bare: map[string]*entity{}}
	for name, e := range tables {
		name = name[strings.LastIndexByte(name, '.')+1:]
		if _, again := c.bare[name]; again {
			e = nil
		}
		c.bare[name] = e
	}
	return c
}

// errTextRead ends a query of which only the text is needed.
var errTextRead = errors.New("outbox: the text has been read")

// reader is a driver that keeps the text of a query.
type reader struct {
	dialect.Driver
	text string
}

func (r *reader) Query(_ context.Context, query string, _, _ any) error {
	r.text = query
	return errTextRead
}

// readEntities finds out which table and which columns each type of a client has. Nothing in the
// generated code says so, but the query for all its entities does.
func readEntities(ctx context.Context, c reflect.Value, drv dialect.Driver) map[string]*entity {
	tables := map[string]*entity{}
	for i := range c.Elem().NumField() {
		f := c.Elem().Type().Field(i)
		if !f.IsExported() {
			continue
		}
		typed := c.Elem().Field(i)
		t := entityOf(typed)
		if t == nil {
			continue
		}
		r := &reader{Driver: drv}
		if _, err := all(ctx, typed, r); !errors.Is(err, errTextRead) {
			continue // it cannot be used at all: a policy is missing
		}
		e := &entity{name: f.Name, goType: t, typed: typed}
		if !e.read(r.text) {
			continue
		}
		if id, ok := t.FieldByName("ID"); ok {
			e.id = id.Index
		}
		tables[unquote(e.table)] = e
	}
	return tables
}

// read takes table and columns out of SELECT "t"."id", "t"."name" FROM "t".
func (e *entity) read(text string) bool {
	list, table, ok := strings.Cut(strings.TrimPrefix(text, "SELECT "), " FROM ")
	if !ok {
		return false
	}
	for column := range strings.SplitSeq(list, ", ") {
		e.columns = append(e.columns, unquote(column[strings.LastIndexByte(column, '.')+1:]))
	}
	e.table, _, _ = strings.Cut(table, " ")
	return true
}

var unquote = strings.NewReplacer(`"`, "", "`", "").Replace

// keys is how many columns the key has: one or none. Ent does not say which fields are the key of a
// type without an id.
func (e *entity) keys() int {
	if e.id == nil {
		return 0
	}
	return 1
}

// quoted returns the columns as RETURNING needs them.
func (e *entity) quoted(drv *driver) []string {
	all := make([]string, len(e.columns))
	for i, c := range e.columns {
		if drv.Dialect() == dialect.Postgres {
			all[i] = e.table[strings.LastIndexByte(e.table, '.')+1:] + `."` + c + `"`
		} else {
			all[i] = "`" + c + "`"
		}
	}
	return all
}

// counted reports whether the database counts the ids.
func (e *entity) counted() bool {
	if e.id == nil {
		return false
	}
	t := e.goType.FieldByIndex(e.id).Type
	return t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64
}

// key returns the id of an entity, which a pointer points to.
func (e *entity) key(model reflect.Value) (string, error) {
	if e.id == nil {
		return "", nil
	}
	var k adapter.Key
	if err := k.Add(model.Elem().FieldByIndex(e.id).Interface(), false); err != nil {
		return "", fmt.Errorf("outbox: id of %s: %w", e.name, err)
	}
	return k.Stored(), nil
}

// entities makes entities of rows, as the query for all of them does. The rows never pass through
// the driver of the client, which may have a cache or a log. drv becomes the driver of the
// entities.
func (e *entity) entities(
	ctx context.Context, d *driver, rows *capture.Answer, drv dialect.Driver,
) ([]reflect.Value, error) {
	rows.Columns = e.columns
	found, err := all(ctx, e.typed, &replayer{Driver: d, rows: rows})
	if err != nil {
		return nil, err
	}
	models := make([]reflect.Value, found.Len())
	for i := range models {
		models[i] = found.Index(i)
		if err := setDriver(models[i], drv); err != nil {
			return nil, err
		}
	}
	return models, nil
}

// learn makes the driver of a mutation know its client and the outbox of its hook. It is an error
// if that driver is not one of this package.
func (o *Outbox) learn(ctx context.Context, m ent.Mutation) (*client, error) {
	id, ok := identityOf(m)
	if !ok {
		return nil, fmt.Errorf("outbox: %T was generated by a version of Ent that is not known", m)
	}
	if c, ok := o.clients.Load(id); ok {
		return c.(*client), nil
	}
	drv, ok := driverOfCode(reflect.ValueOf(m))
	if !ok {
		return nil, errNotWrapped
	}
	d, err := driverBelow(ctx, drv)
	if err != nil {
		return nil, err
	}
	c, err := d.learn(ctx, id, m, o)
	if err == nil {
		o.clients.Store(id, c)
	}
	return c, err
}

// learn adds the client of a mutation to those of the driver, and an outbox to those of the client.
func (d *driver) learn(ctx context.Context, id identity, m ent.Mutation, ob *Outbox) (*client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var clients []*client
	if known := d.clients.Load(); known != nil {
		clients = slices.Clone(*known)
	}
	i := slices.IndexFunc(clients, func(c *client) bool { return c.of == id })
	if i < 0 {
		generated, ok := clientOf(m)
		if !ok {
			return nil, fmt.Errorf("outbox: %T has no client: it was generated by a version of Ent that is not known",
				m)
		}
		i, clients = len(clients), append(clients, newClient(id, d, readEntities(ctx, generated, d)))
	}
	c := *clients[i]
	if !slices.Contains(c.outboxes, ob) {
		c.outboxes = append(slices.Clone(c.outboxes), ob)
	}
	clients[i] = &c
	d.clients.Store(&clients)
	return &c, nil
}

// find returns a type by the name of its table. of is the client to look in first, or nil. Ent leaves
// the schema out of the statements that clear edges.
func (d *driver) find(table string, of *identity) (c *client, e *entity) {
	known := d.clients.Load()
	if known == nil {
		return nil, nil
	}
	for _, one := range *known {
		found := one.tables[table]
		if found == nil && !strings.Contains(table, ".") {
			found = one.bare[table]
		}
		if found == nil || e != nil && (of == nil || one.of != *of) {
			continue
		}
		c, e = one, found
	}
	return c, e
}
