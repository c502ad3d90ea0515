package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// poolSize is the number of connections of each pool: enough for 32 producers and a relay.
const poolSize = 40

// env is a database for one run.
type env struct {
	opts     options
	progress io.Writer
	section  *Section // the one that runs
	machine  string
	durable  bool // every commit is synced

	name   string // of the database
	config *pgx.ConnConfig
	db     *sql.DB

	postmaster int // process of the server; 0 if it is not known
}

func openEnv(ctx context.Context, opts options, progress io.Writer) (*env, error) {
	var suffix [4]byte
	rand.Read(suffix[:])
	e := &env{opts: opts, progress: progress, name: "outbox_bench_" + hex.EncodeToString(suffix[:])}
	if err := e.onServer(ctx, "CREATE DATABASE "+e.name); err != nil {
		return nil, fmt.Errorf("%w (is the server up? `make services-up`)", err)
	}
	u, err := url.Parse(opts.postgres)
	if err == nil {
		u.Path = "/" + e.name
		e.config, err = pgx.ParseConfig(u.String())
	}
	if err == nil {
		e.db = sized(stdlib.OpenDB(*e.config))
		err = e.prepare(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func sized(db *sql.DB) *sql.DB {
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	return db
}

// poolKind is a way to connect database/sql with PostgreSQL.
type poolKind struct {
	simple bool // the simple protocol, for an ORM that writes values into the text of its statements
	via    bool // through pgxoutbox
}

// open opens a pool as the documentation of the adapters shows it.
func (k poolKind) open(cfg *pgx.ConnConfig) *sql.DB {
	cfg = cfg.Copy()
	if k.simple {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	}
	switch {
	case k.via:
		return sized(sql.OpenDB(pgxoutbox.Connector(pgxoutbox.Config{Conn: *cfg})))
	case k.simple: // the connections prepare the statements of the outbox
		return sized(sql.OpenDB(sqltx.Connector(stdlib.GetConnector(*cfg), core.Postgres)))
	}
	return sized(stdlib.OpenDB(*cfg))
}

// openPGX opens a pool of pgx, as pgxpool alone does or as pgxoutbox.OpenPool does.
func openPGX(ctx context.Context, cfg *pgx.ConnConfig, via bool) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(cfg.ConnString())
	if err != nil {
		return nil, err
	}
	c.ConnConfig, c.MaxConns = cfg.Copy(), poolSize
	if via {
		pgxoutbox.DeferBegin(c)
	}
	return pgxpool.NewWithConfig(ctx, c)
}

// prepare creates the tables of the competitors and asks the server what it is.
func (e *env) prepare(ctx context.Context) error {
	if _, err := e.db.ExecContext(ctx, businessSchema+handSchema); err != nil {
		return err
	}
	backend, err := e.count(ctx, "SELECT pg_backend_pid()")
	if err != nil {
		return err
	}
	e.postmaster = findPostmaster(int(backend))
	setting := func(name string) (value string) {
		if err == nil {
			err = e.db.QueryRowContext(ctx, "SHOW "+name).Scan(&value)
		}
		return value
	}
	version, _, _ := strings.Cut(setting("server_version"), " ")
	e.machine = fmt.Sprintf("%s, %s/%s, %d CPUs, PostgreSQL %s", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU(), version)
	e.durable = setting("fsync") != "off" && setting("synchronous_commit") != "off"
	return err
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
	db, err := sql.Open("pgx", e.opts.postgres)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, statement)
	return err
}

// onMySQL makes a database on a server of MySQL or MariaDB, until drop is called.
func (e *env) onMySQL(ctx context.Context, server string) (dsn string, drop func() error, err error) {
	cfg, err := mysql.ParseDSN(server)
	if err != nil {
		return "", nil, err
	}
	admin, err := sql.Open("mysql", server)
	if err == nil {
		err = execAll(ctx, admin, "CREATE DATABASE "+e.name)
	}
	if err != nil {
		return "", nil, err
	}
	cfg.DBName = e.name
	return cfg.FormatDSN(), func() error {
		return errors.Join(execAll(context.WithoutCancel(ctx), admin, "DROP DATABASE "+e.name), admin.Close())
	}, nil
}

// exec runs statements one after the other, each in a transaction of its own.
func (e *env) exec(ctx context.Context, statements ...string) error {
	return execAll(ctx, e.db, statements...)
}

func execAll(ctx context.Context, db *sql.DB, statements ...string) error {
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
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
func (e *env) count(ctx context.Context, query string, args ...any) (int64, error) {
	return countOf(ctx, e.db, query, args...)
}

func countOf(ctx context.Context, db *sql.DB, query string, args ...any) (n int64, err error) {
	if err := db.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("%s: %w", query, err)
	}
	return n, nil
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
