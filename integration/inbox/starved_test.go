package inbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// spy keeps what is logged.
type spy struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *spy) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

// has reports whether a line has all the texts.
func (s *spy) has(texts ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(s.buf.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			return true
		}
	}
	return false
}

// listen replaces the default logger, until the test and those in it have ended.
func listen(t *testing.T) *spy {
	t.Helper()
	var log spy
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &log
}

// toldOf waits until the log names the cause.
func (s *spy) toldOf(t *testing.T, db testdb.DB, more ...string) {
	t.Helper()
	texts := append(more, "the function calls the pool, it waits for itself", "dialect="+string(db.Dialect))
	fixture.Await(t, "the log names the cause", func() bool { return s.has(texts...) })
}

// A function that asks the pool for a second connection, when there is one, waits for itself. The
// log says so: for the inbox, for keys of HTTP, and for commands.
//
//nolint:paralleltest // it replaces the default logger
func TestAPoolOfOneIsTold(t *testing.T) {
	for name, run := range map[string]func(
		t *testing.T, ctx context.Context, db testdb.DB, pool *sql.DB, use func() error){
		"inbox": func(t *testing.T, ctx context.Context, db testdb.DB, pool *sql.DB, use func() error) {
			w := newInboxWorld(t, db, inboxSQL(pool, db.Dialect), func(c *coreinbox.Config) {
				c.Handler = "h"
			})
			msg := inboxMessage("e")
			msg.SetContext(ctx)
			_, _ = w.in.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, use() })(msg)
		},
		"HTTP": func(t *testing.T, ctx context.Context, db testdb.DB, pool *sql.DB, use func() error) {
			keys, err := httpkey.New(httpkey.Config{
				Keys: once.Config{
					Store: fixture.NewOnceStore(t, db.Open(t), sqlonce.Config{Dialect: db.Dialect}),
				},
				Transactor: sqltx.NewTransactor(pool, db.Dialect),
				Scope:      func(*http.Request) string { return "ada" },
			})
			fixture.NoError(t, err)
			r := httptest.NewRequest(http.MethodPost, "/", nil).WithContext(ctx)
			r.Header.Set("Idempotency-Key", "k")
			keys.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_ = use()
				w.WriteHeader(http.StatusOK)
			})).ServeHTTP(httptest.NewRecorder(), r)
		},
		"command": func(t *testing.T, ctx context.Context, db testdb.DB, pool *sql.DB, use func() error) {
			commands, err := command.New(once.Config{
				TxStore: fixture.NewOnceStore(t, db.Open(t), sqlonce.Config{Dialect: db.Dialect}),
			})
			fixture.NoError(t, err)
			_, _, _ = command.RunInTx(ctx, commands, sqltx.NewTransactor(pool, db.Dialect),
				command.Command{Type: "pay", Key: "1"},
				func(context.Context, core.Tx) (int, error) { return 0, use() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := listen(t)
			testdb.Each(t, func(t *testing.T, db testdb.DB) {
				pool := db.Open(t)
				pool.SetMaxOpenConns(1)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan struct{})
				go func() {
					defer close(done)
					run(t, ctx, db, pool, func() error { return pool.PingContext(ctx) })
				}()
				log.toldOf(t, db, "connections=1")
				cancel()
				<-done
			})
		})
	}
}

// That is told of the Transactor of every adapter, as soon as its functions hold all connections.
//
//nolint:paralleltest // it replaces the default logger
func TestAFullPoolOfEveryAdapterIsTold(t *testing.T) {
	for way, open := range adapters.Ways {
		t.Run(way, func(t *testing.T) {
			log := listen(t)
			adapters.EachDatabase(t, way, func(t *testing.T, db testdb.DB) {
				a := open(t, db)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var all sync.WaitGroup
				begun := make(chan struct{}, 31)
				hold := func() {
					_ = sqltx.RetryTx(ctx, a.Transactor, func(ctx context.Context, _ core.Tx) error {
						begun <- struct{}{}
						<-ctx.Done()
						return ctx.Err()
					})
				}
				all.Go(hold)
				<-begun
				for range 30 { // the pools have 30 connections, so one of these waits
					all.Go(hold)
				}
				log.toldOf(t, db, "connections=30")
				cancel()
				all.Wait()
			})
		})
	}
}
