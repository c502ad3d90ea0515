package httpkey_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// A payment in the transaction form. Here everything is in memory. In a service the store is
// sqlonce.New(db, ...). The Transactor is sqltx.NewTransactor(db, "") or that of the ORM's adapter.
func Example() {
	db := outboxtest.NewRepository()
	keys, err := httpkey.New(httpkey.Config{
		Keys:       once.Config{Store: db.OnceStore()},
		Transactor: db.Transactor(),
		// A service gets the principal from its authentication.
		Scope: func(r *http.Request) string { return r.Header.Get("X-Customer") },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	payments := 0
	pay := func(w http.ResponseWriter, r *http.Request) {
		if _, ok := core.TxFromContext(r.Context()); ok { // sqltx.FromContext, gormoutbox.FromContext ...
			payments++
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "payment %d", payments)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", keys.Wrap(http.HandlerFunc(pay)))

	send := func(key, body string) {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
		r.Header.Set("X-Customer", "ada")
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%d %s (replayed: %t)\n", w.Code, w.Body, w.Header().Get("Idempotency-Replayed") == "true")
	}
	send("k1", "42 EUR")
	send("k1", "42 EUR")
	send("k2", "42 EUR")
	send("k1", "9000 EUR")
	// Output:
	// 201 payment 1 (replayed: false)
	// 201 payment 1 (replayed: true)
	// 201 payment 2 (replayed: false)
	// 422 {"type":"https://github.com/ormoutbox/ormoutbox/problems/idempotency-key-reused","title":"Idempotency-Key was used for a different request","status":422,"detail":"Use a new key for a new request."} (replayed: false)
}

// The lease form is for work with effects elsewhere. The provider gets the key too. If the process
// crashes before it records the provider's answer, the payment is still made once.
func ExampleKeyOf() {
	keys, err := httpkey.New(httpkey.Config{
		Keys:  once.Config{Store: outboxtest.NewOnceStore()},
		Scope: func(*http.Request) string { return "ada" },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("POST /charges", keys.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := httpkey.KeyOf(r.Context())
		fmt.Println("provider called with", key)
		w.WriteHeader(http.StatusOK)
	})))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/charges", nil)
		r.Header.Set("Idempotency-Key", "k1")
		mux.ServeHTTP(httptest.NewRecorder(), r)
	}
	// Output:
	// provider called with http/POST /charges|ada|k1
}

// An Observer counts answers, as a metric does.
func ExampleConfig_observer() {
	count := map[string]int{}
	keys, err := httpkey.New(httpkey.Config{
		Keys:  once.Config{Store: outboxtest.NewOnceStore()},
		Scope: func(*http.Request) string { return "ada" },
		// In a service, use a mutex or a counter of a metrics library.
		Observer: func(i httpkey.Info) { count[i.Answer]++ },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := keys.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	}))
	for _, key := range []string{"k1", "k1", "k2", ""} {
		r := httptest.NewRequest(http.MethodPost, "/orders", nil)
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	fmt.Println(count["executed"], count["replayed"], count["missing_key"])
	// Output: 2 1 1
}
