package httpkey_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
)

// A handler that wrote nothing has written to another ResponseWriter, or has left its error to a
// framework that answers later. Its work does not count.
func TestAHandlerThatWritesNothing(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		a.handler = func(_ http.ResponseWriter, r *http.Request) { a.effect(r) }
		for range 2 {
			w := a.do(request())
			if info := <-a.answers; w.Code != http.StatusInternalServerError ||
				w.Header().Get("Idempotency-Replayed") != "" || !errors.Is(info.Err, httpkey.ErrNoResponse) ||
				!strings.Contains(info.Err.Error(), "WriteHeader") {
				t.Errorf("%d %s, told %+v", w.Code, w.Body, info)
			}
		}
		if a.tx {
			a.wantRuns(2, 0)
		} else {
			a.wantRuns(2, 2)
		}
		// The key is free.
		a.handler = func(w http.ResponseWriter, r *http.Request) { a.effect(r); w.WriteHeader(http.StatusOK) }
		equal(t, a.do(request()).Code, http.StatusOK, "after the mistake")
		equal(t, a.do(request()).Header().Get("Idempotency-Replayed"), "true", "then")
	})
}

// The names of wildcards, and the place of the middleware, may change while clients send their
// requests again.
func TestARouteIsNotItsNames(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.runs.Add(1); a.handler(w, r) })
		mux := func(pattern string, h http.Handler) http.Handler {
			m := http.NewServeMux()
			m.Handle(pattern, h)
			return m
		}
		inMux := func(pattern string) http.Handler { return mux(pattern, a.keys.Wrap(h)) }
		routed := func(route string) http.Handler {
			keys := a.another(func(c *httpkey.Config) { c.Route = func(*http.Request) string { return route } })
			return keys.Wrap(h)
		}
		for name, server := range map[string]http.Handler{
			"no method": inMux("/payments/{id}/lines/{line}"), "name": inMux("POST /payments/{payment}/lines/{n}"),
			"outside of the mux": a.keys.Wrap(mux("POST /payments/{id}/lines/{line}", h)),
			"chi":                routed("/payments/{id:[0-9]+}/lines/{line}"),
			"echo, gin, fiber":   routed("/payments/:id/lines/:line"),
		} {
			key := "key of " + name
			a.server = inMux("POST /payments/{id}/lines/{line}")
			r := func() *http.Request {
				return requestWith(func(r *http.Request) {
					r.URL.Path = "/payments/7/lines/8"
					r.Header.Set("Idempotency-Key", key)
				})
			}
			first := a.do(r())
			equal(t, first.Code, http.StatusCreated, "first")
			a.server = server
			again := a.do(r())
			if again.Header().Get("Idempotency-Replayed") != "true" || again.Body.String() != first.Body.String() {
				t.Errorf("%s: %d %s", name, again.Code, again.Body)
			}
		}
	})
}

// A body without a length that was read outside cannot be compared.
func TestABodyOfUnknownLengthThatWasRead(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		w := a.do(requestWith(func(r *http.Request) {
			setBody(r, "chunked")
			r.ContentLength = -1
			_, _ = io.Copy(io.Discard, r.Body)
		}))
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "request-consumed") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		a.wantRuns(0, 0)
		equal(t, a.do(requestWith(func(r *http.Request) { r.Body, r.ContentLength = http.NoBody, 0 })).Code,
			http.StatusCreated, "no body")
		equal(t, a.do(requestWith(func(r *http.Request) {
			r.Header.Set("Idempotency-Key", "k2")
			setBody(r, "chunked")
			r.ContentLength = -1
		})).Code, http.StatusCreated, "a body of unknown length")
	})
}

// A quoted key may have parameters, as every item of RFC 9651.
func TestAKeyWithParameters(t *testing.T) {
	for header, want := range map[string]string{
		`"k";v=1`: "k", `"k";a;b="x;y";  c=?1`: "k", `"k;v=1"`: "k;v=1", `"k";a=:aGk=:`: "k", `"k";v=1.5 `: "k",
		`"k"; v`: "k",
	} {
		if key, err := httpkey.ParseKey(header); err != nil || key != want {
			t.Errorf("%s: %q, %v", header, key, err)
		}
	}
	for _, header := range []string{
		`"k";`, `"k" ;v=1`, `"k";V=1`, `"k";v="`, `"k", "l"`, `"k";v=1, "l"`, `"k"x`, `"k";v=`,
	} {
		if key, err := httpkey.ParseKey(header); err == nil {
			t.Errorf("%s: %q", header, key)
		}
	}
}

// zip is the middleware for compression that many services have copied: it sets the header before
// the handler, and does not look at Content-Length.
func zip(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		next.ServeHTTP(zipped{w, z}, r)
	})
}

type zipped struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (z zipped) Write(p []byte) (int, error) { return z.z.Write(p) }

// cors is middleware that answers each origin with its own name.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
		next.ServeHTTP(w, r)
	})
}

// What outer middleware says of a response is about that response, and not about its repetition.
func TestHeadersOfOuterMiddlewareAreItsOwn(t *testing.T) {
	keep := func(c *httpkey.Config) { c.KeepHeaders = []string{"Access-Control-*", "X-*"} }
	forms(t, func(t *testing.T, tx bool) {
		a := newAPI(t, tx, keep)
		big := strings.Repeat("a long answer ", 1000)
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			a.effect(r)
			w.Header().Add("Vary", "Accept")
			w.Header().Set("X-Payment", "1")
			w.Header().Set("Access-Control-Expose-Headers", "X-Payment")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, big)
		}
		inner := a.server
		a.server = cors(zip(inner))
		get := func(origin string, gzipped bool) (*http.Response, string) {
			w := a.do(requestWith(func(r *http.Request) {
				r.Header.Set("Origin", origin)
				r.Header.Set("X-Request-Id", "for "+origin)
				if gzipped {
					r.Header.Set("Accept-Encoding", "gzip")
				}
			}))
			res := w.Result()
			defer res.Body.Close()
			var body io.Reader = res.Body
			if gzipped {
				z, err := gzip.NewReader(body)
				must(t, err)
				body = z
			}
			text, err := io.ReadAll(body)
			must(t, err)
			return res, string(text)
		}
		for n, try := range []struct {
			origin string
			gzip   bool
		}{{"https://a", true}, {"https://b", false}, {"https://c", true}} {
			res, body := get(try.origin, try.gzip)
			h := res.Header
			if h.Get("Access-Control-Allow-Origin") != try.origin || h.Get("X-Request-Id") != "for "+try.origin ||
				(h.Get("Content-Encoding") == "gzip") != try.gzip || body != big || h.Get("X-Payment") != "1" ||
				h.Get("Access-Control-Expose-Headers") != "X-Payment" || h.Get("Content-Length") != "" ||
				!slices.Equal(h.Values("Vary"), []string{"Accept-Encoding", "Accept"}) ||
				(n > 0) != (h.Get("Idempotency-Replayed") == "true") {
				t.Errorf("request %d: %s, %d bytes, %v", n+1, res.Status, len(body), h)
			}
		}
		a.wantRuns(1, 1)
		w := a.do(requestWith(func(r *http.Request) {
			r.Header.Set("Accept-Encoding", "gzip")
			setBody(r, "another")
		}))
		if w.Code != http.StatusUnprocessableEntity || w.Header().Get("Content-Length") != "" {
			t.Errorf("a problem behind compression: %d %v", w.Code, w.Header())
		}
	})
}

// form is a request with fields and a file, encoded with its own boundary.
func form(t *testing.T, change func(w *multipart.Writer)) *http.Request {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if change == nil {
		change = func(w *multipart.Writer) {
			must(t, w.WriteField("cents", "100"))
			must(t, w.WriteField("to", "bob"))
			f, err := w.CreateFormFile("scan", "scan.png")
			must(t, err)
			_, _ = f.Write([]byte("\x89PNG"))
		}
	}
	change(w)
	must(t, w.Close())
	return requestWith(func(r *http.Request) {
		setBody(r, b.String())
		r.Header.Set("Content-Type", w.FormDataContentType())
	})
}

// A client encodes a form again for each attempt, with a boundary of its own.
func TestAFormThatIsEncodedAgain(t *testing.T) {
	for name, configure := range map[string]func(*httpkey.Config){
		"default": nil, "CanonicalJSON": func(c *httpkey.Config) { c.Canonical = httpkey.CanonicalJSON },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, configure, func(t *testing.T, a *api) {
				equal(t, a.do(form(t, nil)).Code, http.StatusCreated, "first")
				equal(t, a.do(form(t, nil)).Header().Get("Idempotency-Replayed"), "true", "encoded again")
				equal(t, a.do(form(t, func(w *multipart.Writer) { // as a client with a map of fields writes it
					f, err := w.CreateFormFile("scan", "scan.png")
					must(t, err)
					_, _ = f.Write([]byte("\x89PNG"))
					must(t, w.WriteField("to", "bob"))
					must(t, w.WriteField("cents", "100"))
				})).Header().Get("Idempotency-Replayed"), "true", "fields in another order")
				for what, change := range map[string]func(w *multipart.Writer){
					"value": func(w *multipart.Writer) {
						must(t, w.WriteField("cents", "101"))
						must(t, w.WriteField("to", "bob"))
					},
					"the same text, cut elsewhere": func(w *multipart.Writer) {
						must(t, w.WriteField("centst", "100obob"))
					},
					"name of the file": func(w *multipart.Writer) {
						must(t, w.WriteField("cents", "100"))
						must(t, w.WriteField("to", "bob"))
						f, err := w.CreateFormFile("scan", "other.png")
						must(t, err)
						_, _ = f.Write([]byte("\x89PNG"))
					},
				} {
					equal(t, a.do(form(t, change)).Code, http.StatusUnprocessableEntity, "another %s", what)
				}
				broken := form(t, nil)
				setBody(broken, "no form")
				equal(t, a.do(broken).Code, http.StatusUnprocessableEntity, "a form that is none")
				a.wantRuns(1, 1)
			})
		})
	}
}

// What a status means is in a header that is kept with it.
func TestHeadersOfAStatusAreKept(t *testing.T) {
	for status, name := range map[int]string{
		http.StatusPartialContent: "Content-Range", http.StatusMethodNotAllowed: "Allow",
	} {
		each(t, nil, func(t *testing.T, a *api) {
			a.handler = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(name, "kept")
				w.WriteHeader(status)
			}
			for range 2 {
				equal(t, a.do(request()).Header().Get(name), "kept", "%s of a %d", name, status)
			}
		})
	}
}
