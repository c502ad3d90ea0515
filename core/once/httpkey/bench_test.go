package httpkey_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// BenchmarkMiddleware measures the middleware without its store: a request that passes, a new key
// in each form, and a replay.
func BenchmarkMiddleware(b *testing.B) {
	repo := outboxtest.NewRepository()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"payment":1}`)
	})
	for name, tc := range map[string]struct {
		method     string
		transactor core.Transactor
		newKeys    bool
	}{
		"pass":   {http.MethodGet, nil, false},
		"lease":  {http.MethodPost, nil, true},
		"tx":     {http.MethodPost, repo.Transactor(), true},
		"replay": {http.MethodPost, nil, false},
	} {
		b.Run(name, func(b *testing.B) {
			keys, err := httpkey.New(httpkey.Config{
				Keys:       once.Config{Store: repo.OnceStore()},
				Transactor: tc.transactor,
				Scope:      func(*http.Request) string { return "ada" },
			})
			must(b, err)
			h, n := keys.Wrap(handler), 0
			b.ReportAllocs()
			for b.Loop() {
				r := request()
				r.Method = tc.method
				if tc.newKeys {
					n++
					r.Header.Set("Idempotency-Key", strconv.Itoa(n))
				}
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
