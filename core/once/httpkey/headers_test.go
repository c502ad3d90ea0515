package httpkey_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
)

// Headers of Config.KeepHeaders are kept unchanged, in the spelling of the handler.
func TestKeptHeaders(t *testing.T) {
	forms(t, func(t *testing.T, tx bool) {
		a := newAPI(t, tx,
			func(c *httpkey.Config) { c.KeepHeaders = []string{"Access-Control-*", "x-*", "Server-Timing"} })
		kept := http.Header{
			"X-Content-Type-Options": {"nosniff"}, // by default
			"X-Request-Id":           {"r-1"}, "X-Latin": {"caf\xe9", "\xff\x00\x01", "plain"}, "x-as-written": {"<&>"},
			"Access-Control-Allow-Origin":   {"https://shop.example"},
			"Access-Control-Expose-Headers": {"Location", "ETag"}, "Server-Timing": {"db;dur=1", "app;dur=2"},
		}
		dropped := http.Header{
			"Set-Cookie": {"session=1"}, "Other": {"o"}, "Www-Authenticate": {"Basic"},
			"set-cookie": {"s=2"},
		}
		a.handler = func(w http.ResponseWriter, _ *http.Request) {
			for _, headers := range []http.Header{kept, dropped} {
				for k, v := range headers {
					w.Header()[k] = slices.Clone(v)
				}
			}
			w.WriteHeader(http.StatusCreated)
		}
		first, again := a.do(request()).Header(), a.do(request()).Header()
		if again.Get("Idempotency-Replayed") != "true" {
			t.Fatal("not replayed")
		}
		for k, want := range kept {
			if !slices.Equal(again[k], want) || !slices.Equal(first[k], want) {
				t.Errorf("%s: first %q, replayed %q, want %q", k, first[k], again[k], want)
			}
		}
		for k := range dropped {
			if again[k] != nil {
				t.Errorf("%s of the first response was given to a later one: %q", k, again[k])
			}
		}
	})
}

// http.Error sets a header that prevents browsers from reading its text as HTML. A replay has the
// header too.
func TestErrorsKeepNosniff(t *testing.T) {
	forms(t, func(t *testing.T, tx bool) {
		a := newAPI(t, tx, nil)
		a.handler = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<script>", http.StatusBadRequest) }
		a.do(request())
		if w := a.do(request()); w.Header().Get("Idempotency-Replayed") != "true" ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("headers %v", w.Header())
		}
	})
}
