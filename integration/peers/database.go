package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
)

// create makes an empty database, and returns its address and what drops it.
func (d database) create(ctx context.Context) (dsn string, drop func() error, err error) {
	if d.server == "" {
		return "", func() error { return nil }, nil // the folder of the run has it
	}
	admin := os.Getenv(d.server)
	if admin == "" {
		return "", nil, fmt.Errorf("%s is not set: make test-peers starts the servers", d.server)
	}
	name := "peers_" + strings.ToLower(rand.Text()[:10])
	driver, force := "mysql", ""
	if strings.HasPrefix(admin, "postgres") {
		driver, force = "pgx", " WITH (FORCE)"
		u, err := url.Parse(admin)
		if err != nil {
			return "", nil, err
		}
		u.Path = "/" + name
		dsn = u.String()
	} else {
		cfg, err := mysql.ParseDSN(admin)
		if err != nil {
			return "", nil, err
		}
		cfg.DBName, cfg.Loc, cfg.ParseTime = name, time.Local, true
		dsn = cfg.FormatDSN()
	}
	server, err := sql.Open(driver, admin)
	if err != nil {
		return "", nil, err
	}
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, fmt.Errorf("%s: %w", d.server, err)
	}
	return dsn, func() error {
		defer server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := server.ExecContext(ctx, "DROP DATABASE IF EXISTS "+name+force)
		return err
	}, nil
}
