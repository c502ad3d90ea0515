package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// poolSize is the number of connections of each pool: enough for 32 producers and a relay. Except
// in section producer, only two pools are open at a time, so that both fit into the stock
// max_connections of 100.
const poolSize = 40

// env is a database for one run.
type env struct {
	opts     options
	progress *progress
	machine  Machine

	admin string // URL of the server
	name  string
	dsn   string  // URL of the database
	db    *sql.DB // pool of poolSize

	postmaster int         // process of the server; 0 if it is not known
	distant    *delayProxy // in section network; nil elsewhere
}

func openEnv(ctx context.Context, opts options, p *progress) (*env, error) {
	u, err := url.Parse(opts.dsn)
	if err != nil {
		return nil, fmt.Errorf("-dsn: %w", err)
	}
	var suffix [4]byte
	rand.Read(suffix[:])
	e := &env{opts: opts, progress: p, admin: opts.dsn, name: "outbox_bench_" + hex.EncodeToString(suffix[:])}
	if err := e.onServer(ctx, "CREATE DATABASE "+e.name); err != nil {
		return nil, fmt.Errorf("%w (is the server up? `make services-up`)", err)
	}
	u.Path = "/" + e.name
	e.dsn = u.String()
	if e.db, err = e.open(ctx, e.dsn); err == nil {
		err = e.prepare(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// open opens a pool of database/sql.
func (e *env) open(ctx context.Context, dsn string) (*sql.DB, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	return db, e.sized(ctx, db)
}

// sized sets the number of connections of a pool.
func (*env) sized(ctx context.Context, db *sql.DB) error {
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	return db.PingContext(ctx)
}

// openSimple opens a pool that speaks the simple protocol, as bunoutbox.Open does: its connections
// prepare the statements of the outbox.
func (e *env) openSimple(ctx context.Context) (*sql.DB, error) {
	u, err := url.Parse(e.dsn)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	q.Set("default_query_exec_mode", "simple_protocol")
	u.RawQuery = q.Encode()
	db, err := sqltx.Open("pgx", u.String(), core.Postgres)
	if err != nil {
		return nil, err
	}
	return db, e.sized(ctx, db)
}

// openPGX opens a pool of pgx.
func (e *env) openPGX(ctx context.Context) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(e.dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = poolSize
	return pgxpool.NewWithConfig(ctx, cfg)
}

// openVia opens a pool of pgxoutbox for an ORM.
func (e *env) openVia(ctx context.Context, o orm) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(e.dsn)
	if err != nil {
		return nil, err
	}
	if o.simpleProtocol {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	}
	db := sql.OpenDB(pgxoutbox.Connector(pgxoutbox.Config{Conn: *cfg}))
	return db, e.sized(ctx, db)
}

// allows returns an error if the server allows fewer connections.
func (e *env) allows(ctx context.Context, connections int) error {
	n, err := e.count(ctx, "SELECT setting::int FROM pg_settings WHERE name = 'max_connections'")
	if err == nil && n < int64(connections) {
		err = fmt.Errorf("the server allows %d connections (max_connections), and this section opens up to %d; "+
			"scripts/services starts one that does, and -sections leaves this section out", n, connections)
	}
	return err
}

// prepare creates the tables of the competitors and asks the server what it is.
func (e *env) prepare(ctx context.Context) error {
	if _, err := e.db.ExecContext(ctx, businessSchema+handSchema); err != nil {
		return err
	}
	e.machine = Machine{Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU()}
	backend, err := e.count(ctx, "SELECT pg_backend_pid()")
	if err != nil {
		return err
	}
	e.postmaster = findPostmaster(int(backend))
	var version string
	if err := e.db.QueryRowContext(ctx, "SHOW server_version").Scan(&version); err != nil {
		return err
	}
	e.machine.Postgres, _, _ = strings.Cut("PostgreSQL "+version, " (")
	e.machine.Durable = true
	var shown []string
	for _, name := range []string{
		"fsync", "synchronous_commit", "full_page_writes", "wal_level", "shared_buffers",
		"max_wal_size",
	} {
		var value string
		if err := e.db.QueryRowContext(ctx, "SHOW "+name).Scan(&value); err != nil {
			return err
		}
		shown = append(shown, name+"="+value)
		if value == "off" {
			e.machine.Durable = false
		}
	}
	e.machine.Settings = strings.Join(shown, " ")
	return nil
}

// close drops the database.
func (e *env) close() error {
	var err error
	if e.db != nil {
		err = e.db.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // also after an interrupt
	defer cancel()
	return errors.Join(err, e.onServer(ctx, "DROP DATABASE IF EXISTS "+e.name+" WITH (FORCE)"))
}

func (e *env) onServer(ctx context.Context, statement string) error {
	db, err := sql.Open("pgx", e.admin)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, statement)
	return err
}

// exec runs statements one after the other, each in a transaction of its own.
func (e *env) exec(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := e.db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// checkpoint asks for a checkpoint now, because a later one would slow down the competitor that
// runs then. It does nothing if the user has no right to ask for one.
func (e *env) checkpoint(ctx context.Context) {
	_, _ = e.db.ExecContext(ctx, "CHECKPOINT")
}

// count runs a query that returns one number.
func (e *env) count(ctx context.Context, query string, args ...any) (n int64, err error) {
	if err := e.db.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("%s: %w", query, err)
	}
	return n, nil
}

// wal returns how many bytes of write-ahead log the server has written.
func (e *env) wal(ctx context.Context) (int64, error) {
	return e.count(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
}

// labelled runs fn with a label, by which a CPU profile shows the time of each competitor.
func labelled(ctx context.Context, name string, fn func(ctx context.Context) error) (err error) {
	runtime.GC() // frees the memory of the competitor before
	pprof.Do(ctx, pprof.Labels("competitor", name), func(ctx context.Context) { err = fn(ctx) })
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// await calls ready until it returns true, for at most limit.
func await(ctx context.Context, limit, pause time.Duration, ready func() (bool, error)) (bool, error) {
	deadline := time.Now().Add(limit)
	for {
		ok, err := ready()
		if ok || err != nil {
			return ok, err
		}
		if !time.Now().Before(deadline) {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(pause):
		}
	}
}
