package cli

import (
	"sync"
	"time"
)

const (
	// calmAfter is how long a pool has one connection when its first outbox begins. Otherwise the
	// statements of each start would open several at once.
	calmAfter = 3 * time.Second
	// connectionIdle is how long a connection stays open that no outbox needs at rest.
	connectionIdle = 15 * time.Second
)

// databases are the databases that a fleet has open. Outboxes on the same database of a server share
// its pool, and its connection that listens.
type databases struct {
	mu   sync.Mutex
	open map[poolKey]*sharedDatabase
}

// poolKey names a pool of connections.
type poolKey struct {
	databaseURL string
	connections int
}

// sharedDatabase is a database with the number of outboxes that use it.
type sharedDatabase struct {
	*database
	wakes *sharedListener // nil: it is not PostgreSQL
	users int
}

func (o *relaySettings) poolKey() poolKey { return poolKey{o.databaseURL, o.connections} }

// take returns the database of an outbox, whose address a has. It sends nothing. give gives the
// database back, and closes it after its last outbox.
func (d *databases) take(a *app, o *relaySettings) (db *sharedDatabase, give func() error, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := o.poolKey()
	if db = d.open[name]; db == nil {
		plain, err := a.connect(false)
		if err != nil {
			return nil, nil, err
		}
		db = &sharedDatabase{database: plain}
		if db.server == "" { // each outbox of a file keeps a connection that watches the file
			db.limit(o.connections)
			return db, db.Close, nil
		}
		db.limit(1)
		time.AfterFunc(calmAfter, func() { db.limit(o.connections) })
		if db.pgx != nil {
			db.wakes = &sharedListener{cfg: db.pgx}
		}
		d.open[name] = db
	}
	db.users++
	return db, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if db.users--; db.users > 0 {
			return nil
		}
		delete(d.open, name)
		return db.Close()
	}, nil
}

// limit limits the connections of the pool.
func (db *database) limit(connections int) {
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(connectionIdle)
}
