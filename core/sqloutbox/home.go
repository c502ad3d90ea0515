package sqloutbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"strings"
	"sync"
	"time"

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

func (r *Repository) place(ctx context.Context, q sqlkit.Querier) (p place, err error) {
	_, err = sqlkit.FirstRow(ctx, q, r.names.dialect.place(r.names), nil, &p.database, &p.table)
	return p, err
}

// home is the place of the Repository's own pool and of the other pools that were met. The zero
// value is ready for use.
type home struct {
	mu         sync.Mutex
	place      place
	found      bool // place is set
	asking     bool
	asked      time.Time         // the last time that the background asked
	neighbours map[any]neighbour // by what begunOn returns
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
func (h *home) learn(ask func(context.Context, sqlkit.Querier) (place, error), q sqlkit.Querier) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asking || !h.asked.IsZero() && time.Since(h.asked) < learnAgain {
		return
	}
	h.asking, h.asked = true, time.Now()
	go func() {
		h.learnNow(context.Background(), ask, q)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.asking = false
	}()
}

// learnNow asks for the place. It keeps what it knew if q does not answer in time.
func (h *home) learnNow(ctx context.Context, ask func(context.Context, sqlkit.Querier) (place, error),
	q sqlkit.Querier,
) {
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	if p, err := ask(ctx, q); err == nil {
		h.keep(p)
	}
}

// own is place for the Repository's own pool. A table that does not exist yet is an error, because
// it will have another oid.
func (r *Repository) own(ctx context.Context, q sqlkit.Querier) (place, error) {
	p, err := r.place(ctx, q)
	if err == nil && r.names.dialect.placeHasTable && p.table == "" {
		err = errNoTable
	}
	return p, err
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

// dsnIn returns the DSN of a connector, or of the one that it wraps.
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
