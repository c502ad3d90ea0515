package contracts_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/health"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The answers of the Idempotency-Key middleware.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	keys, err := httpkey.New(httpkey.Config{
		Keys:  once.Config{Store: outboxtest.NewOnceStore()},
		Scope: func(r *http.Request) string { return r.Header.Get("X-Customer") },
	})
	fixture.NoError(t, err)
	mux := http.NewServeMux()
	var p page
	var inside func()
	mux.Handle("POST /payments", keys.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if inside != nil {
			inside()
		}
		key, _ := httpkey.KeyOf(r.Context())
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(http.StatusCreated)
		w.Write([]byte("paid under " + key.String()))
	})))
	send := func(title, customer, key, body string) {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
		r.Header.Set("X-Customer", customer)
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		p.section(title)
		p.field("status", w.Code)
		for _, name := range slices.Sorted(maps.Keys(w.Header())) {
			value := strings.Join(w.Header()[name], ", ")
			if name == "Retry-After" {
				value = "(the seconds that are left of the lease)"
			}
			p.field("header "+name, value)
		}
		p.field("body", w.Body)
	}
	send("first", "ada", "k1", "42 EUR")
	send("again", "ada", "k1", "42 EUR")
	send("another request under the key", "ada", "k1", "9000 EUR")
	send("without a key", "ada", "", "42 EUR")
	send("a key that is none", "ada", "ä", "42 EUR")
	send("without a scope", "", "k2", "42 EUR")
	inside = func() {
		inside = nil
		send("while the first is carried out", "ada", "k3", "42 EUR")
	}
	send("the first of these two", "ada", "k3", "42 EUR")
	compare(t, "http-idempotency", p.String())
}

// The answers of the probes of a process that only inserts.
func TestProbes(t *testing.T) {
	t.Parallel()
	process := fixture.NewProcess(t, testdb.SQLite(t), core.Config{})
	var p page
	for _, probe := range []struct {
		name    string
		handler http.Handler
	}{{"live", health.Live(process.Outbox)}, {"ready", health.Ready(process.Outbox)}} {
		w := httptest.NewRecorder()
		probe.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		p.section(probe.name)
		p.field("status", w.Code)
		p.field("content-type", w.Header().Get("Content-Type"))
		p.field("body", strings.TrimSpace(w.Body.String()))
	}
	compare(t, "http-probes", p.String())
}
