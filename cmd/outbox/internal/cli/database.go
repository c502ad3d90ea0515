package cli

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/spf13/cobra"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// database is the database of a command.
type database struct {
	*sql.DB
	dialect core.Dialect
	server  string          // host and port; empty: it is a file
	name    string          // where it is, without a password
	pgx     *pgx.ConnConfig // on PostgreSQL
	missing bool            // the file of SQLite does not exist yet
}

// howToName is the advice if no database can be read from an address.
const howToName = "use postgres://user:password@host/database, mysql://user:password@host/database, " +
	"user:password@tcp(host:3306)/database or sqlite:path"

// open opens the database of the command and asks whether it answers.
func (a *app) open(ctx context.Context, absent, create bool) (*database, error) {
	db, err := a.connect(absent || create)
	if err != nil {
		return nil, err
	}
	if db.missing && !create { // a dry run makes no file
		_ = db.Close()
		if db.DB, err = sql.Open("sqlite", ":memory:"); err != nil {
			return nil, err
		}
	}
	db.SetMaxOpenConns(8)
	limit := connectTimeout
	if a.timeout > 0 {
		limit = min(limit, a.timeout)
	}
	asking, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err = db.PingContext(asking); err == nil {
		if err = db.supported(asking); err == nil {
			return db, nil
		}
		return nil, errors.Join(err, db.Close())
	}
	if errors.Is(asking.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("%s does not answer within %s: is it the address of such a database?", db.name, limit)
	} else {
		err = db.unreachable(err)
	}
	return nil, errors.Join(err, db.Close())
}

// supported refuses a server that the tables cannot be in.
func (db *database) supported(ctx context.Context) error {
	_, err := sqloutbox.NewWithDialect(ctx, db.DB, db.dialect, sqloutbox.Config{})
	if err != nil {
		return fmt.Errorf("%s: %w", db.name, errors.Unwrap(err)) // without the hint for a program
	}
	return nil
}

// withDatabase runs fn with the database of the command.
func (a *app) withDatabase(c *cobra.Command, fn func(ctx context.Context, db *database) error) error {
	return a.withFile(c, false, false, fn)
}

// withFile is withDatabase, for commands for which the file of SQLite may be absent. With create it
// is made.
func (a *app) withFile(
	c *cobra.Command, absent, create bool, fn func(ctx context.Context, db *database) error,
) error {
	ctx, cancel := a.limited(c)
	defer cancel()
	db, err := a.open(ctx, absent, create)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return fn(ctx, db)
}

// withKind is withDatabase for a command of one kind of tables. It reports missing tables.
func (a *app) withKind(c *cobra.Command, kind string, fn func(ctx context.Context, db *database) error) error {
	return a.withDatabase(c, func(ctx context.Context, db *database) error {
		err := fn(ctx, db)
		if err != nil && codeOf(err) == ExitFailed {
			err = db.withTables(ctx, kindNamed(kind), a.schema, a.prefix, err)
		}
		return err
	})
}

// sqliteNow is the time in microseconds, as the tables have it.
const sqliteNow = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"

// each calls row for each row of a query.
func (db *database) each(ctx context.Context, query string, args []any, row func(rows *sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// noteDatabase names the database of a command that does not ask, because it may be the wrong one.
func (a *app) noteDatabase(db *database) {
	if a.json {
		return
	}
	text := "database: " + db.name
	if a.schema != "" {
		text += ", schema " + a.schema
	}
	if a.prefix != "" {
		text += ", prefix " + a.prefix
	}
	a.note("%s", text)
}

// connectTimeout is how long a database may take to accept a connection. The port of another kind
// of server often stays silent.
const connectTimeout = 15 * time.Second

// unreachable distinguishes a server that refuses from one that does not answer.
func (db *database) unreachable(err error) error {
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok {
		return fmt.Errorf("%s refuses the connection: %s (SQLSTATE %s)", db.name, refusal.Message, refusal.Code)
	}
	if _, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return fmt.Errorf("%s refuses the connection: %w", db.name, err)
	}
	return fmt.Errorf("%s does not answer: %w", db.name, &linesError{err})
}

// linesError has each line of the text of an error once. pgx repeats one for each way to connect.
type linesError struct{ err error }

func (e *linesError) Unwrap() error { return e.err }

func (e *linesError) Error() string {
	var lines []string
	for line := range strings.SplitSeq(e.err.Error(), "\n") {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// hintUnlisted warns that a name given to a command is not among the known ones, because it may be
// misspelled.
func (a *app) hintUnlisted(table, what, name, list string, known []string) {
	if name != "" && !slices.Contains(known, name) {
		a.note("no row of %s has the %s %q: is that its name? `%s` lists them", a.prefix+table, what, short(name), list)
	}
}

// address is the address of the database of the command. A file or a secret often ends with a line
// break, and a file of variables has quotes that are not part of the value.
func (a *app) address() string {
	address := strings.TrimSpace(a.databaseURL)
	address = cmp.Or(address, strings.TrimSpace(a.Getenv("DATABASE_URL")))
	for _, quote := range []string{`"`, "'"} {
		if inside, ok := strings.CutPrefix(address, quote); ok {
			address = strings.TrimSuffix(inside, quote)
		}
	}
	return address
}

// connect reads the address of the command. It sends nothing. The file of SQLite must be there,
// unless absent is set.
func (a *app) connect(absent bool) (*database, error) {
	address := a.address()
	if address == "" {
		return nil, usage("no database: set DATABASE_URL or --database-url (%s)", howToName)
	}
	db, err := connect(address)
	if err != nil {
		return nil, err
	}
	if db.missing && !absent {
		err := exit(ExitFailed, "there is no %s: is that its path? `outbox migrate up` makes a new one, with the "+
			"tables", db.name)
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// connect reads an address. It sends nothing.
func connect(address string) (*database, error) {
	scheme, rest, _ := strings.Cut(address, ":")
	switch strings.ToLower(scheme) {
	case "postgres", "postgresql":
		return connectPostgres(address)
	case "mysql", "mariadb":
		if strings.HasPrefix(rest, "//") {
			return connectMySQLURL(rest)
		}
	case "sqlite", "sqlite3", "file":
		return connectSQLite(rest)
	}
	if strings.Contains(address, ")/") || strings.Contains(address, "@/") { // user:password@tcp(host)/database
		cfg, err := mysql.ParseDSN(address)
		if err != nil {
			return nil, usage("the database's DSN: %w", err)
		}
		return connectMySQL(cfg)
	}
	return nil, usage("the kind of database is not known: %s", howToName)
}

func connectPostgres(address string) (*database, error) {
	cfg, err := pgx.ParseConfig(address)
	if err != nil { // pgx leaves the password out
		return nil, usage("the database's URL: %w", err)
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "outbox"
	}
	hosts := []string{net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))}
	for _, f := range cfg.Fallbacks { // the other hosts, and each again without TLS
		if host := net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port))); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	server := "postgres " + strings.Join(hosts, ",")
	return &database{
		DB: stdlib.OpenDB(*cfg), dialect: core.Postgres, pgx: cfg, server: server, name: server + "/" + cfg.Database,
	}, nil
}

// connectMySQLURL reads what follows mysql: in a URL.
func connectMySQLURL(rest string) (*database, error) {
	u, err := url.Parse("mysql:" + rest)
	if err != nil {
		return nil, usage("the database's URL: %w", parseError(err))
	}
	cfg, err := mysql.ParseDSN("/?" + u.RawQuery)
	if err != nil {
		return nil, usage("the database's URL: %w", err)
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	cfg.Net, cfg.Addr = "tcp", u.Host
	if u.Port() == "" {
		cfg.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	return connectMySQL(cfg)
}

func connectMySQL(cfg *mysql.Config) (*database, error) {
	cfg.ParseTime, cfg.Loc = true, time.UTC
	if cfg.DBName == "" {
		return nil, usage("the address names no database: %s", howToName)
	}
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, usage("the database's address: %w", err)
	}
	server := "mysql " + cfg.Addr
	return &database{DB: sql.OpenDB(c), dialect: core.MySQL, server: server, name: server + "/" + cfg.DBName}, nil
}

// connectSQLite reads what follows sqlite: or file: in an address.
func connectSQLite(rest string) (*database, error) {
	path, query, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
	if path == "" {
		return nil, usage("the address names no file: use sqlite:path")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, usage("the address of the file: %w", err)
	}
	if !strings.Contains(query, "busy_timeout") {
		values.Add("_pragma", "busy_timeout(10000)") // the service writes beside the command
	}
	if values.Get("_txlock") == "" {
		values.Set("_txlock", "immediate")
	}
	file, err := url.PathUnescape(path)
	if err != nil {
		file = path
	}
	_, err = os.Stat(file)
	missing := errors.Is(err, os.ErrNotExist) && file != ":memory:"
	db, err := sql.Open("sqlite", "file:"+path+"?"+values.Encode())
	if err != nil {
		return nil, err
	}
	return &database{DB: db, dialect: core.SQLite, name: "sqlite " + file, missing: missing}, nil
}

// quote quotes the name of a table, with the schema if there is one. The names were checked.
func (db *database) quote(schema, name string) string {
	mark := `"`
	if db.dialect == core.MySQL {
		mark = "`"
	}
	name = mark + name + mark
	if schema != "" {
		name = mark + schema + mark + "." + name
	}
	return name
}
