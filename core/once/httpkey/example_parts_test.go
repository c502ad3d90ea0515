package httpkey_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// A client may write the members of its JSON in another order when it sends a request again.
func ExampleCanonicalJSON() {
	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	r.Header.Set("Content-Type", "application/json")
	first := httpkey.CanonicalJSON(r, []byte(`{"to": "ada", "cents": 42}`))
	again := httpkey.CanonicalJSON(r, []byte(`{"cents":42,"to":"ada"}`))
	fmt.Println(string(first) == string(again))
	// Output: true
}

// A policy of a service begins with the default one.
func ExampleDefaultPolicy() {
	for _, status := range []int{201, 422, 429, 500} {
		switch httpkey.DefaultPolicy(status) {
		case httpkey.Commit:
			fmt.Println(status, "commit the work, keep the answer")
		case httpkey.Keep:
			fmt.Println(status, "roll the work back, keep the answer")
		case httpkey.Release:
			fmt.Println(status, "roll the work back, the client may try again")
		}
	}
	// Output:
	// 201 commit the work, keep the answer
	// 422 roll the work back, keep the answer
	// 429 roll the work back, the client may try again
	// 500 roll the work back, the client may try again
}

// The statement of a handler was chosen as the victim of a deadlock. Its second run succeeds.
func ExampleRetry() {
	db := outboxtest.NewRepository()
	keys, err := httpkey.New(httpkey.Config{
		Keys: once.Config{Store: db.OnceStore()}, Transactor: db.Transactor(),
		Scope: func(*http.Request) string { return "ada" },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	runs := 0
	pay := func(ctx context.Context) error { // in a service: tx.Create(&payment).Error
		if runs++; runs > 1 {
			return nil
		}
		tx, _ := core.TxFromContext(ctx)
		return tx.(*outboxtest.Tx).Deadlock()
	}
	h := keys.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := pay(r.Context()); err != nil {
			if !httpkey.Retry(r.Context(), err) {
				http.Error(w, "try again later", http.StatusInternalServerError)
			}
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("42 EUR"))
	r.Header.Set("Idempotency-Key", "k1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, "after", runs, "runs")
	// Output: 201 after 2 runs
}
