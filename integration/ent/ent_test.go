package ent_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	_ "github.com/ormoutbox/ormoutbox/integration/internal/entclient/runtime" // the hooks and policies of the schema
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// entEnv is a database opened with Ent and an outbox.
type entEnv struct {
	*entclient.Client
	*fixture.FastPath
	db  testdb.DB
	drv dialect.Driver
	ob  *entoutbox.Outbox
}

// eachEnt runs fn on each database.
func eachEnt(t *testing.T, fn func(t *testing.T, e *entEnv), options ...func(*entoutbox.Config)) {
	t.Helper()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		fn(t, openEnt(t, db, options...))
	})
}

func openEnt(t *testing.T, db testdb.DB, options ...func(*entoutbox.Config)) *entEnv {
	t.Helper()
	if db.Dialect == core.SQLite {
		db.DSN += "&_pragma=foreign_keys(1)" // Ent requires it
	}
	e := &entEnv{
		db: db, FastPath: fixture.NewFastPath(t, db),
		drv: entsql.OpenDB(adapters.EntDialect(db), db.Open(t)),
	}
	var cfg entoutbox.Config
	e.Watch(&cfg)
	for _, set := range options {
		set(&cfg)
	}
	var err error
	e.ob, err = entoutbox.New(e.drv, cfg)
	fixture.NoError(t, err)
	e.Outbox = e.ob.Outbox()
	e.Client = entclient.NewClient(entclient.Driver(e.ob.Driver()))
	migrateEnt.Lock()
	defer migrateEnt.Unlock()
	fixture.NoError(t, e.Schema.Create(t.Context()))
	return e
}

// migrateEnt is held during Ent's migration, which completes the generated tables. These are
// global.
var migrateEnt sync.Mutex

// wantRows compares the events in the table, each as its type and, if it has one, its aggregate id,
// in the order of their insertion.
func (e *entEnv) wantRows(t *testing.T, want ...string) {
	t.Helper()
	if got := e.Events(t); !slices.Equal(got, want) {
		t.Fatalf("events in the table are %q, want %q", got, want)
	}
}

// inTx runs fn in a transaction that the client begins, without WithTx.
func (e *entEnv) inTx(t *testing.T, fn func(tx *entclient.Tx) error) error {
	t.Helper()
	tx, err := e.Tx(t.Context())
	fixture.NoError(t, err)
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// onAny reports every mutation as "Type.op", and counts.
func onAny(calls *int) entoutbox.Mapper {
	return entoutbox.OnMutation(func(ctx context.Context, m ent.Mutation, _ ent.Value) ([]core.Event, error) {
		if calls != nil {
			*calls++
		}
		return []core.Event{{Type: m.Type() + "." + entoutbox.OpOf(ctx).String()}}, nil
	})
}
