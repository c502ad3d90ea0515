package once_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

const createHTTPPayments = "CREATE TABLE http_payments (name VARCHAR(64))"

// httpPayments is a payment endpoint on a database, in one of the two forms.
type httpPayments struct {
	db      testdb.DB
	pool    *sql.DB
	tx      bool
	handler http.HandlerFunc // pay, unless a test sets another
	runs    atomic.Int64
}

// eachHTTPPayments runs fn for both forms on every database.
func eachHTTPPayments(t *testing.T, fn func(t *testing.T, p *httpPayments)) {
	t.Helper()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		for name, tx := range map[string]bool{"lease": false, "transaction": true} {
			t.Run(name, func(t *testing.T) {
				db := db
				if db.Dialect == core.SQLite {
					db = testdb.SQLite(t)
				}
				pool := db.Open(t)
				fixture.MustExec(t, pool, "DROP TABLE IF EXISTS http_payments")
				fixture.MustExec(t, pool, createHTTPPayments)
				p := &httpPayments{db: db, pool: pool, tx: tx}
				p.handler = p.pay
				fixture.NewOnceStore(t, pool, sqlonce.Config{Dialect: db.Dialect, Prefix: name + "_"})
				fn(t, p)
			})
		}
	})
}

// keys returns the middleware of one process of the service.
func (p *httpPayments) keys(t testing.TB, configure func(*httpkey.Config)) *httpkey.Middleware {
	t.Helper()
	cfg := httpkey.Config{Scope: func(r *http.Request) string { return r.Header.Get("X-User") }}
	cfg.Keys.Wait, cfg.Keys.StoreTimeout = time.Minute, 20*time.Second // on a busy machine
	prefix := "lease_"
	if p.tx {
		prefix, cfg.Transactor = "transaction_", sqltx.NewTransactor(p.pool, p.db.Dialect)
	}
	store, err := sqlonce.New(p.pool, sqlonce.Config{Dialect: p.db.Dialect, Prefix: prefix})
	fixture.NoError(t, err)
	cfg.Keys.Store = store
	if configure != nil {
		configure(&cfg)
	}
	keys, err := httpkey.New(cfg)
	fixture.NoError(t, err)
	return keys
}

// server returns one process of the service.
func (p *httpPayments) server(t testing.TB, configure func(*httpkey.Config)) http.Handler {
	t.Helper()
	keys := p.keys(t, configure)
	mux := http.NewServeMux()
	mux.Handle("POST /payments", keys.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.runs.Add(1)
		p.handler(w, r)
	})))
	return mux
}

// insert stores a payment, in the transaction of the request if there is one.
func (p *httpPayments) insert(ctx context.Context, name string) error {
	exec := p.pool.ExecContext
	if p.tx {
		tx, err := sqltx.FromContext(ctx)
		if err != nil {
			return err
		}
		exec = tx.ExecContext
	}
	_, err := exec(ctx, "INSERT INTO http_payments (name) VALUES ('"+name+"')")
	return err
}

func (p *httpPayments) pay(w http.ResponseWriter, r *http.Request) {
	if err := p.insert(r.Context(), "paid"); err != nil {
		if !httpkey.Retry(r.Context(), err) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		return
	}
	w.Header().Set("Location", "/payments/1")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "run %d \x00\xff", p.runs.Load())
}

func (p *httpPayments) wantPayments(t *testing.T, want int) {
	t.Helper()
	var got int
	if err := p.pool.QueryRow("SELECT COUNT(*) FROM http_payments").Scan(&got); err != nil || got != want {
		t.Errorf("%d payments (%v), want %d", got, err, want)
	}
}

func payBy(h http.Handler, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-User", "ada")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func wantPaid(t *testing.T, w *httptest.ResponseRecorder, status int, body string, replayed bool) {
	t.Helper()
	if got := w.Header().Get("Idempotency-Replayed") == "true"; w.Code != status ||
		!strings.HasPrefix(w.Body.String(), body) || got != replayed {
		t.Errorf("answered %d %q, replayed %t, want %d %q %t", w.Code, w.Body, got, status, body, replayed)
	}
}

// 64 requests with one key come at once, at several processes. One is carried out, and all clients
// get the same response.
func TestHTTPKeyParallel(t *testing.T) {
	t.Parallel()
	eachHTTPPayments(t, func(t *testing.T, p *httpPayments) {
		const requests, processes = 64, 8
		var came sync.WaitGroup
		came.Add(requests)
		p.handler = func(w http.ResponseWriter, r *http.Request) {
			p.pay(w, r)
			came.Wait() // so that all other requests are on their way
		}
		var servers [processes]http.Handler
		for i := range servers {
			servers[i] = p.server(t, nil)
		}
		done := make(chan *httptest.ResponseRecorder)
		start := make(chan struct{})
		for i := range requests {
			go func() {
				<-start
				came.Done()
				done <- payBy(servers[i%processes], "k1", "42")
			}()
		}
		close(start)
		first := 0
		for range requests {
			w := <-done
			replayed := w.Header().Get("Idempotency-Replayed") == "true"
			if !replayed {
				first++
			}
			if w.Code != http.StatusCreated || w.Body.String() != "run 1 \x00\xff" ||
				w.Header().Get("Location") != "/payments/1" {
				t.Errorf("answered %d %q %v", w.Code, w.Body, w.Header())
			}
		}
		if first != 1 || p.runs.Load() != 1 {
			t.Errorf("%d first responses of %d runs, want one of one", first, p.runs.Load())
		}
		p.wantPayments(t, 1)
	})
}

// Many keys come at once, each twice. No request fails because of a deadlock.
func TestHTTPKeyManyKeys(t *testing.T) {
	t.Parallel()
	eachHTTPPayments(t, func(t *testing.T, p *httpPayments) {
		servers := [2]http.Handler{p.server(t, nil), p.server(t, nil)}
		const keys = 30
		done := make(chan *httptest.ResponseRecorder)
		for i := range 2 * keys {
			go func() { done <- payBy(servers[i%2], fmt.Sprintf("k%d", i/2), "42") }()
		}
		replayed := 0
		for range 2 * keys {
			w := <-done
			if w.Code != http.StatusCreated {
				t.Errorf("answered %d %s", w.Code, w.Body)
			}
			if w.Header().Get("Idempotency-Replayed") == "true" {
				replayed++
			}
		}
		fixture.Check(t, replayed == keys, "%d replays, want %d", replayed, keys)
		p.wantPayments(t, keys)
	})
}

// The status of the response decides whether the key and the effects are kept.
func TestHTTPKeyPolicy(t *testing.T) {
	t.Parallel()
	eachHTTPPayments(t, func(t *testing.T, p *httpPayments) {
		h, payments := p.server(t, nil), 0
		for i, tc := range []struct {
			status   int
			replayed bool
			effects  int // effects of two requests in the transaction form
		}{{201, true, 1}, {303, true, 1}, {422, true, 0}, {409, false, 0}, {500, false, 0}} {
			p.handler = func(w http.ResponseWriter, r *http.Request) {
				if err := p.insert(r.Context(), "x"); err != nil {
					t.Error(err)
				}
				http.Error(w, "body", tc.status)
			}
			for n := range 2 {
				wantPaid(t, payBy(h, fmt.Sprint("k", i), "42"), tc.status, "body", n == 1 && tc.replayed)
			}
			switch {
			case p.tx:
				payments += tc.effects
			case tc.replayed:
				payments++
			default:
				payments += 2
			}
			p.wantPayments(t, payments)
		}
	})
}

// After a failed statement, PostgreSQL refuses every further statement of the transaction. The
// response of the handler is still kept.
func TestHTTPKeyAfterFailedStatement(t *testing.T) {
	t.Parallel()
	eachHTTPPayments(t, func(t *testing.T, p *httpPayments) {
		fixture.MustExec(t, p.pool, "DROP TABLE IF EXISTS http_unique")
		fixture.MustExec(t, p.pool, "CREATE TABLE http_unique (id INTEGER PRIMARY KEY)")
		fixture.MustExec(t, p.pool, "INSERT INTO http_unique (id) VALUES (1)")
		p.handler = func(w http.ResponseWriter, r *http.Request) {
			exec := p.pool.ExecContext
			if p.tx {
				tx, err := sqltx.FromContext(r.Context())
				if err != nil {
					t.Error(err)
				}
				exec = tx.ExecContext
			}
			if _, err := exec(r.Context(), "INSERT INTO http_unique (id) VALUES (1)"); err == nil {
				t.Error("the constraint is not there")
			}
			http.Error(w, "there is one already", http.StatusUnprocessableEntity)
		}
		h := p.server(t, nil)
		wantPaid(t, payBy(h, "k1", "42"), 422, "there is one already", false)
		wantPaid(t, payBy(h, "k1", "42"), 422, "there is one already", true)
		if p.runs.Load() != 1 {
			t.Errorf("%d runs", p.runs.Load())
		}
	})
}

// A panic rolls the transaction back and frees the key.
func TestHTTPKeyPanic(t *testing.T) {
	t.Parallel()
	eachHTTPPayments(t, func(t *testing.T, p *httpPayments) {
		h := p.server(t, nil)
		p.handler = func(w http.ResponseWriter, r *http.Request) {
			p.pay(w, r)
			panic("boom")
		}
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic is lost")
				}
			}()
			payBy(h, "k1", "42")
		}()
		p.handler = p.pay
		wantPaid(t, payBy(h, "k1", "42"), http.StatusCreated, "run 2", false)
		if p.tx {
			p.wantPayments(t, 1)
		}
	})
}

// Another process works on the key for longer than a request waits, so the answer is 409. The
// request leaves nothing behind that blocks the next one.
func TestHTTPKeyInFlight(t *testing.T) {
	t.Parallel()
	eachHTTPPayments(t, func(t *testing.T, p *httpPayments) {
		entered, stop := make(chan struct{}), make(chan struct{})
		p.handler = func(w http.ResponseWriter, r *http.Request) {
			close(entered)
			<-stop
			p.pay(w, r)
		}
		quick := func(c *httpkey.Config) { c.Keys.Wait = 300 * time.Millisecond }
		a, b := p.server(t, quick), p.server(t, quick)
		if p.db.Dialect == core.SQLite && p.tx {
			b = a // a second process would wait for the only writer until its busy_timeout ends
		}
		first := make(chan *httptest.ResponseRecorder, 1)
		go func() { first <- payBy(a, "k1", "42") }()
		<-entered
		for range 3 {
			w := payBy(b, "k1", "42")
			if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "idempotency-key-in-flight") {
				t.Errorf("answered %d %s", w.Code, w.Body)
			}
			// In the lease form, the store knows how long the other process may keep the key.
			if after, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || p.tx && after != 1 ||
				!p.tx && (after < 20 || after > 30) {
				t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
			}
		}
		close(stop)
		wantPaid(t, <-first, http.StatusCreated, "run 1", false)
		// A server may need longer than the short Wait to end the transactions that gave up.
		patient := p.server(t, nil)
		wantPaid(t, payBy(patient, "k1", "42"), http.StatusCreated, "run 1", true)
		if w := payBy(patient, "k1", "43"); w.Code != http.StatusUnprocessableEntity {
			t.Errorf("another body was answered %d %s", w.Code, w.Body)
		}
		p.wantPayments(t, 1)
	})
}

// While the database is down, no request is carried out.
func TestHTTPKeyDatabaseDown(t *testing.T) {
	t.Parallel()
	eachHTTPPayments(t, func(t *testing.T, p *httpPayments) {
		h := p.server(t, nil)
		fixture.NoError(t, p.pool.Close())
		if w := payBy(h, "k1", "42"); w.Code != http.StatusServiceUnavailable || p.runs.Load() != 0 {
			t.Errorf("answered %d %s", w.Code, w.Body)
		}
	})
}

type httpGormPayment struct {
	ID   int64
	Name string
}

func (httpGormPayment) TableName() string { return "http_gorm_payments" }

// The handler finds the transaction of its ORM in the context.
func TestHTTPKeyGORM(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		gdb, err := gorm.Open(adapters.GORMDialector(db, nil), &gorm.Config{Logger: logger.Discard})
		fixture.NoError(t, err)
		pool, err := gdb.DB()
		fixture.NoError(t, err)
		t.Cleanup(func() { _ = pool.Close() })
		fixture.NoError(t, gdb.AutoMigrate(&httpGormPayment{}))
		keys, err := httpkey.New(httpkey.Config{
			Keys:       once.Config{Store: fixture.NewOnceStore(t, pool, sqlonce.Config{}), Wait: 30 * time.Second},
			Transactor: gormoutbox.Transactor(gdb),
			Scope:      func(r *http.Request) string { return r.Header.Get("X-User") },
		})
		fixture.NoError(t, err)
		h := keys.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tx, err := gormoutbox.FromContext(r.Context())
			if err == nil {
				err = tx.Create(&httpGormPayment{Name: "paid"}).Error
			}
			switch {
			case httpkey.Retry(r.Context(), err):
			case err != nil, r.Header.Get("Idempotency-Key") == "bad":
				http.Error(w, fmt.Sprint(err), http.StatusInternalServerError)
			default:
				w.WriteHeader(http.StatusCreated)
			}
		}))
		done := make(chan *httptest.ResponseRecorder)
		const requests = 20
		for range requests {
			go func() { done <- payBy(h, "k1", "42") }()
		}
		for range requests {
			if w := <-done; w.Code != http.StatusCreated {
				t.Errorf("answered %d %s", w.Code, w.Body)
			}
		}
		wantPaid(t, payBy(h, "bad", "42"), http.StatusInternalServerError, "", false)
		var n int64
		if fixture.NoError(t, gdb.Model(&httpGormPayment{}).Count(&n).Error); n != 1 {
			t.Errorf("%d payments, want 1", n)
		}
	})
}
