package sqloutbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

const (
	learnTimeout  = 2 * time.Second
	learnAgain    = 30 * time.Second // after a failure, and when a transaction seems to be elsewhere
	maxNeighbours = 16
)

// place names a database in the same way on every connection to it.
type place struct {
	database string
	table    string // the oid of the table of events, on PostgreSQL
}

// String implements fmt.Stringer, for errors.
func (p place) String() string { return strings.TrimSpace(p.database + " " + p.table) }

// home is the place of the Repository's own pool and of the other pools that were met.
type home struct {
	names names

	mu         sync.Mutex
	place      place
	found      bool // place is set
	asking     bool
	asked      time.Time         // the last time that the background asked
	neighbours map[any]neighbour // by the results of begunOn
}

// neighbour is a pool other than the Repository's own.
type neighbour struct {
	place place
	same  bool // it is the place of the Repository
}

func (h *home) known() (place, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.place, h.found
}

func (h *home) neighbour(pool any) (n neighbour, met bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, met = h.neighbours[pool]
	return n, met
}

func (h *home) met(pool any, n neighbour) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.neighbours[pool]; !ok && len(h.neighbours) >= maxNeighbours {
		clear(h.neighbours) // a program that opens pools as it goes
	}
	if h.neighbours == nil {
		h.neighbours = map[any]neighbour{}
	}
	h.neighbours[pool] = n
}

// keep stores the place. Pools are compared again if it is another one than before.
func (h *home) keep(p place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.found && h.place != p {
		clear(h.neighbours)
	}
	h.place, h.found = p, true
}

// learn asks for the place in the background, unless that was tried a short while ago.
func (h *home) learn(q sqlkit.Querier) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asking || !h.asked.IsZero() && time.Since(h.asked) < learnAgain {
		return
	}
	h.asking, h.asked = true, time.Now()
	go func() {
		h.learnNow(context.Background(), q)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.asking = false
	}()
}

// learnNow asks for the place. It keeps the previous value if q does not answer in time.
func (h *home) learnNow(ctx context.Context, q sqlkit.Querier) {
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	if p, err := h.own(ctx, q); err == nil {
		h.keep(p)
	}
}

// ask returns the place of a connection.
func (h *home) ask(ctx context.Context, q sqlkit.Querier) (p place, err error) {
	text := outboxsql.ByDialect[func(names) string]{Postgres: postgresPlace, MySQL: mysqlPlace, SQLite: sqlitePlace}
	_, err = sqlkit.FirstRow(ctx, q, text.Of(h.names.dialect)(h.names), nil, &p.database, &p.table)
	return p, err
}

// own is ask for the Repository's own pool. A table that does not exist yet is an error, because it
// will have another oid.
func (h *home) own(ctx context.Context, q sqlkit.Querier) (place, error) {
	p, err := h.ask(ctx, q)
	if err == nil && p.table == "" && (outboxsql.ByDialect[bool]{Postgres: true}).Of(h.names.dialect) {
		err = errNoTable
	}
	return p, err
}

func postgresPlace(n names) string {
	return "SELECT current_database(), COALESCE(to_regclass('" + n.event + "')::oid::text, '')"
}

func mysqlPlace(n names) string {
	if n.schema != "" { // the tables are there, whatever the database of the connection
		return "SELECT '', ''"
	}
	return "SELECT COALESCE(DATABASE(), ''), ''"
}

func sqlitePlace(names) string {
	return "SELECT file, '' FROM pragma_database_list WHERE name = 'main'"
}

// inMemory reports whether a pool certainly has a database of its own, in memory.
func (h *home) inMemory(pool any) bool {
	onServer := func(any) bool { return false }
	of := outboxsql.ByDialect[func(any) bool]{Postgres: onServer, MySQL: onServer, SQLite: privateMemory}
	return of.Of(h.names.dialect)(pool)
}

var errNoTable = errors.New("there is no table of events")

// privateMemory reports whether a pool of SQLite without a file is certainly not on the database of
// another pool. The connections of a DSN with cache=shared or vfs=memdb may be. database/sql keeps
// the DSN in a field that it does not export. If the DSN is not found, nothing is certain.
func privateMemory(pool any) bool {
	db, ok := pool.(*sql.DB)
	if !ok {
		return false
	}
	dsn, ok := dsnIn(reflect.ValueOf(db).Elem().FieldByName("connector"), 4)
	dsn = strings.ToLower(dsn)
	return ok && !strings.Contains(dsn, "cache=shared") && !strings.Contains(dsn, "memdb")
}

// dsnIn returns the DSN of a connector, or of a connector that it wraps.
func dsnIn(connector reflect.Value, depth int) (dsn string, ok bool) {
	for connector.Kind() == reflect.Interface || connector.Kind() == reflect.Pointer {
		connector = connector.Elem()
	}
	if connector.Kind() != reflect.Struct || depth == 0 {
		return "", false
	}
	for i := range connector.NumField() {
		f, name := connector.Field(i), connector.Type().Field(i).Name
		if f.Kind() == reflect.String && strings.EqualFold(name, "dsn") {
			return f.String(), true
		}
		if f.Type() == reflect.TypeFor[driver.Connector]() {
			if dsn, ok := dsnIn(f, depth-1); ok {
				return dsn, true
			}
		}
	}
	return "", false
}

// CheckTx implements core.Repository. A transaction of the pool of r costs nothing. A transaction
// of an unknown pool passes, and costs nothing. The first transaction of each other pool costs one
// short query in it. The query names the database, on PostgreSQL with the table of events that the
// connection finds, on SQLite by its file. core.ErrOtherDatabase lists the limits.
//
// CheckTx never waits for the pool of r, because the transaction may hold the pool's last
// connection. Migrate and Check learn the name of r's own database. Otherwise the first CheckTx
// that needs the name asks for it in the background, and transactions of other pools pass
// meanwhile.
func (r *Repository) CheckTx(ctx context.Context, tx core.Tx) error {
	if d := tx.Dialect(); d != r.dialect {
		return fmt.Errorf("%w: the transaction is in %s and the outbox is in %s", core.ErrOtherDatabase, d,
			r.dialect)
	}
	pool := begunOn(tx)
	if pool == nil || r.same(pool) {
		return nil
	}
	other, met := r.home.neighbour(pool)
	if other.same {
		return nil
	}
	ours, known := r.home.known()
	if !met || known && other.place != ours { // the connection may find another table now
		var err error
		if other.place, err = r.home.ask(ctx, tx); err != nil {
			return fmt.Errorf("sqloutbox: which database the transaction is in: %w", err)
		}
	}
	private := other.place == place{} && r.home.inMemory(pool)
	other.same = known && other.place == ours && !private
	r.home.met(pool, other)
	if !other.same {
		r.home.learn(r.each())
	}
	switch {
	case private:
		return fmt.Errorf("%w: that is another one in memory", core.ErrOtherDatabase)
	case known && !other.same:
		return fmt.Errorf("%w: that is %q and the outbox is in %q", core.ErrOtherDatabase, other.place, ours)
	}
	return nil
}

// begunOn returns the *sql.DB or the Pool that a transaction was begun on, nil if it is not known.
func begunOn(tx core.Tx) any {
	switch t := tx.(type) {
	case interface{ Pool() *sql.DB }:
		if db := t.Pool(); db != nil {
			return db
		}
	case interface{ Pool() Pool }:
		if p := t.Pool(); p != nil {
			return p
		}
	}
	return nil
}
