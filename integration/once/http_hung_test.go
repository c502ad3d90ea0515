package once_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/integration/internal/wireproxy"
)

// farTransactor is a database that is 10 ms away, at each end of a transaction.
type farTransactor struct {
	core.Transactor
	begun *atomic.Int64
}

func (f farTransactor) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	const away = 10 * time.Millisecond
	f.begun.Add(1)
	<-time.After(away)
	defer func() { <-time.After(away) }()
	return f.Transactor.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		<-time.After(away)
		return fn(ctx, tx)
	})
}

// 128 clients repeat a finished request at once, at two processes that are far from the database.
// Each client gets the response, and those at one process share what one transaction has read. A
// client is refused only after it has waited, as on a machine that is busy, and asks again.
func TestHTTPKeyReplayStorm(t *testing.T) {
	t.Parallel()
	eachHTTPPayments(t, func(t *testing.T, p *httpPayments) {
		const requests, defaultWait = 128, 2 * time.Second
		var begun atomic.Int64
		far := func(c *httpkey.Config) {
			c.Keys.Wait = 0 // the default
			if c.Transactor != nil {
				c.Transactor = farTransactor{c.Transactor, &begun}
			}
		}
		servers := []http.Handler{p.server(t, far), p.server(t, far)}
		wantPaid(t, payBy(servers[0], "k1", "42"), http.StatusCreated, "run 1", false)
		var answers [requests]*httptest.ResponseRecorder
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() {
				for asked := time.Now(); ; asked = time.Now() {
					answers[i] = payBy(servers[i%2], "k1", "42")
					if answers[i].Code != http.StatusConflict || time.Since(asked) < defaultWait {
						return
					}
				}
			})
		}
		wg.Wait()
		for _, w := range answers {
			wantPaid(t, w, http.StatusCreated, "run 1", true)
		}
		fixture.Check(t, begun.Load() < requests/2, "%d transactions for %d requests", begun.Load(), requests)
		p.wantPayments(t, 1)
	})
}

// The database stops answering at COMMIT. The client still gets an answer, and the next attempt
// finds out whether the first was committed.
func TestHTTPKeyHungCommit(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) testdb.DB{
		"PostgreSQL": testdb.Postgres,
		"MariaDB":    testdb.MariaDB,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			proxy, err := wireproxy.New(fixture.ServerOf(t, db))
			fixture.NoError(t, err)
			t.Cleanup(proxy.Close)
			behind := fixture.Through(t, db, proxy, 2*time.Second)
			if db.Dialect == core.MySQL { // the usual configuration: the driver waits without a limit
				cfg, err := mysqldriver.ParseDSN(behind.DSN)
				fixture.NoError(t, err)
				cfg.ReadTimeout = 0
				behind.DSN = cfg.FormatDSN()
			}
			p := &httpPayments{db: db, pool: db.Open(t), tx: true}
			p.handler = p.pay
			fixture.MustExec(t, p.pool, "DROP TABLE IF EXISTS http_payments")
			fixture.MustExec(t, p.pool, createHTTPPayments)
			fixture.NewOnceStore(t, p.pool, sqlonce.Config{Dialect: db.Dialect, Prefix: "transaction_"})
			pool := behind.Open(t)
			h := p.server(t, func(c *httpkey.Config) {
				c.Transactor = sqltx.NewTransactor(pool, db.Dialect)
				// The limits are long enough for a busy machine to come to the COMMIT.
				c.Keys.StoreTimeout, c.Keys.Wait = 5*time.Second, 20*time.Second
			})

			proxy.CutNext(wireproxy.Silent)
			start := time.Now()
			w := payBy(h, "k1", "42")
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" ||
				!strings.Contains(w.Body.String(), "idempotency-store-unavailable") {
				t.Errorf("answered %d %s", w.Code, w.Body)
			}
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("answered after %s", took)
			}
			fixture.Must(t, proxy.Made() == 1, "no COMMIT fell silent")
			// This is another process, to which the database answers.
			wantPaid(t, payBy(p.server(t, nil), "k1", "42"), http.StatusCreated, "run 1", true)
			p.wantPayments(t, 1)
			proxy.Close() // ends the connection of the first process
		})
	}
}
