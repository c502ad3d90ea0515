package httpkey_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// The test checks for each status whether the response is kept and whether the effects of the
// handler commit.
func TestPolicyOfStatus(t *testing.T) {
	forms(t, func(t *testing.T, tx bool) {
		for status, policy := range map[int]httpkey.ResponsePolicy{
			200: httpkey.Commit, 201: httpkey.Commit, 202: httpkey.Commit, 204: httpkey.Commit, 302: httpkey.Commit,
			303: httpkey.Commit, 304: httpkey.Commit, 400: httpkey.Keep, 402: httpkey.Keep, 404: httpkey.Keep,
			410: httpkey.Keep, 422: httpkey.Keep, 401: httpkey.Release, 403: httpkey.Release, 408: httpkey.Release,
			409: httpkey.Release, 425: httpkey.Release, 429: httpkey.Release,
			500: httpkey.Release, 502: httpkey.Release, 503: httpkey.Release, 504: httpkey.Release,
		} {
			a := newAPI(t, tx, nil)
			a.handler = func(w http.ResponseWriter, r *http.Request) {
				a.effect(r)
				w.WriteHeader(status)
			}
			runs, effects := 1, 1
			for i := range 2 {
				w := a.do(request())
				replayed := i == 1 && policy != httpkey.Release
				wantResponse(t, w, status, "", replayed)
				if replayed {
					a.wantAnswer("replayed")
				} else if info := a.wantAnswer("executed"); info.Policy != policy || info.Status != status {
					t.Errorf("%d: told %+v, want %s", status, info, policy)
				}
			}
			if policy == httpkey.Release {
				runs, effects = 2, 2
			}
			if tx && policy != httpkey.Commit {
				effects = 0
			}
			a.wantRuns(runs, effects)
			if t.Failed() {
				t.Fatalf("status %d", status)
			}
		}
	})
}

// Config.Policy may keep a 500, as some APIs do, and commit with a 4xx.
func TestOwnPolicy(t *testing.T) {
	forms(t, func(t *testing.T, tx bool) {
		a := newAPI(t, tx,
			func(c *httpkey.Config) { c.Policy = func(int) httpkey.ResponsePolicy { return httpkey.Commit } })
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			a.effect(r)
			http.Error(w, "broken", http.StatusInternalServerError)
		}
		a.do(request())
		wantResponse(t, a.do(request()), http.StatusInternalServerError, "broken\n", true)
		a.wantRuns(1, 1)
	})
}

// The first response has all headers. A replay has only the kept headers.
func TestHeaders(t *testing.T) {
	each(t, func(c *httpkey.Config) { c.KeepHeaders = []string{"x-request-cost"} }, func(t *testing.T, a *api) {
		kept := map[string]string{
			"Content-Type": "text/csv", "Content-Encoding": "identity", "Etag": `"1"`, "Location": "/x",
			"Vary": "Accept", "X-Request-Cost": "7",
		}
		secret := map[string]string{
			"Set-Cookie": "session=1", "Authorization": "Bearer x", "Www-Authenticate": "Basic", "X-Trace": "1",
			"Connection": "close", "Keep-Alive": "1", "Upgrade": "x",
		}
		a.handler = func(w http.ResponseWriter, _ *http.Request) {
			for _, m := range []map[string]string{kept, secret} {
				for k, v := range m {
					w.Header().Set(k, v)
				}
			}
			w.Header().Add("Vary", "Origin")
			io.WriteString(w, "body")
			w.Header().Set("Location", "/too/late")
		}
		for i := range 2 {
			w := a.do(request())
			wantResponse(t, w, http.StatusOK, "body", i == 1)
			for k, v := range kept {
				if got := w.Header().Get(k); got != v {
					t.Errorf("response %d: %s is %q, want %q", i+1, k, got, v)
				}
			}
			if got := w.Header().Values("Vary"); len(got) != 2 {
				t.Errorf("response %d: Vary is %q", i+1, got)
			}
			for k := range secret {
				if got := w.Header().Get(k); (got != "") != (i == 0) {
					t.Errorf("response %d: %s is %q", i+1, k, got)
				}
			}
		}
	})
}

// Headers that an outer middleware has set reach the client, and the handler may change them.
func TestHeadersOfOuterMiddleware(t *testing.T) {
	a := newAPI(t, false, nil)
	a.handler = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Del("X-Mode")
		a.pay(w, r)
	}
	for range 2 {
		w := httptest.NewRecorder()
		w.Header().Set("X-Request-Id", "r1")
		w.Header().Set("X-Mode", "default")
		a.server.ServeHTTP(w, request())
		equal(t, w.Header().Get("X-Request-Id"), "r1", "headers %v", w.Header())
		if first := w.Header().Get("Idempotency-Replayed") == ""; first && w.Header().Get("X-Mode") != "" {
			t.Errorf("headers %v", w.Header())
		}
	}
}

// Trailers reach only the first client, because they are not kept.
func TestTrailers(t *testing.T) {
	a := newAPI(t, true, nil)
	a.handler = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		a.pay(w, r)
		w.Header().Set("X-Sum", "1")
		w.Header().Set(http.TrailerPrefix+"X-Late", "2")
	}
	srv := a.serve()
	for i := range 2 {
		resp := send(t, srv, "")
		wantResponse(t, recorded(t, resp), http.StatusCreated, "run 1", i == 1)
		sum, late := resp.Trailer.Get("X-Sum"), resp.Trailer.Get("X-Late")
		if first := i == 0; (sum == "1") != first || (late == "2") != first {
			t.Errorf("response %d has trailers %v", i+1, resp.Trailer)
		}
	}
}

func TestBodyNotAllowed(t *testing.T) {
	a := newAPI(t, true, nil)
	a.handler = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Errorf("Write: %v", err)
		}
	}
	for i := range 2 {
		wantResponse(t, a.do(request()), http.StatusNoContent, "", i == 1)
	}
}

// serve runs a on a real server, where connections can be hijacked and clients can leave.
func (a *api) serve() *httptest.Server {
	srv := httptest.NewServer(a.server)
	a.t.Cleanup(srv.Close)
	return srv
}

func send(t *testing.T, srv *httptest.Server, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/payments", strings.NewReader(body))
	must(t, err)
	r.Header.Set("Idempotency-Key", "k1")
	r.Header.Set("X-User", "ada")
	resp, err := srv.Client().Do(r)
	must(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// recorded returns the rest of a response.
func recorded(t *testing.T, resp *http.Response) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(w, resp.Body); err != nil {
		t.Fatal(err)
	}
	return w
}

// In the lease form a flushed response goes to the client at once and is not kept. The work counts
// as done.
func TestFlushInLeaseForm(t *testing.T) {
	a := newAPI(t, false, nil)
	read := make(chan struct{})
	a.handler = func(w http.ResponseWriter, r *http.Request) {
		a.effect(r)
		w.Header().Set("Trailer", "X-Sum")
		io.WriteString(w, "first ")
		noError(t, http.NewResponseController(w).Flush())
		<-read
		io.WriteString(w, "second")
		w.Header().Set("X-Sum", "12")
	}
	srv := a.serve()
	resp := send(t, srv, "")
	buf := make([]byte, len("first "))
	if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != "first " {
		t.Fatalf("read %q: %v", buf, err)
	}
	close(read)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "second" || resp.Trailer.Get("X-Sum") != "12" {
		t.Errorf("read %q, trailer %v: %v", rest, resp.Trailer, err)
	}
	wantProblem(t, recorded(t, send(t, srv, "")), http.StatusConflict, "idempotency-response-not-kept")
	a.wantRuns(1, 1)
	a.wantAnswer("executed")
	a.wantAnswer("not_kept")
}

// A streamed response that is an error releases the key, like any other error.
func TestFlushedErrorReleases(t *testing.T) {
	a := newAPI(t, false, nil)
	a.handler = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		w.(http.Flusher).Flush()
	}
	for range 2 {
		wantResponse(t, a.do(request()), http.StatusBadGateway, "", false)
	}
	a.wantRuns(2, 0)
}

// In the transaction form no response is sent before the commit. So flushing does nothing, and the
// response is kept.
func TestFlushInTransactionForm(t *testing.T) {
	a := newAPI(t, true, nil)
	a.handler = func(w http.ResponseWriter, r *http.Request) {
		a.pay(w, r)
		noError(t, http.NewResponseController(w).Flush())
	}
	w := a.do(request())
	wantResponse(t, w, http.StatusCreated, "run 1", false)
	if w.Flushed {
		t.Error("flushed")
	}
	wantResponse(t, a.do(request()), http.StatusCreated, "run 1", true)
}

func TestHijackInLeaseForm(t *testing.T) {
	a := newAPI(t, false, nil)
	a.handler = func(w http.ResponseWriter, r *http.Request) {
		a.effect(r)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhijacked")
		rw.Flush()
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("Write: %v", err)
		}
	}
	srv := a.serve()
	wantResponse(t, recorded(t, send(t, srv, "")), http.StatusOK, "hijacked", false)
	wantProblem(t, recorded(t, send(t, srv, "")), http.StatusConflict, "idempotency-response-not-kept")
	a.wantRuns(1, 1)
}

func TestHijackInTransactionForm(t *testing.T) {
	a := newAPI(t, true, nil)
	a.handler = func(w http.ResponseWriter, r *http.Request) {
		if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack: %v", err)
		}
		a.pay(w, r)
	}
	srv := a.serve()
	wantResponse(t, recorded(t, send(t, srv, "")), http.StatusCreated, "run 1", false)
}

// deadlines is a ResponseWriter with more methods for http.ResponseController.
type deadlines struct {
	*httptest.ResponseRecorder
	set time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.set = t; return nil }
func (d *deadlines) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, errors.New("not this one")
}

func TestResponseControllerUnwraps(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		deadline := time.Now().Add(time.Minute)
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			noError(t, http.NewResponseController(w).SetWriteDeadline(deadline))
			if _, _, err := w.(http.Hijacker).Hijack(); err == nil { // hijacking failed, so the response is kept
				t.Error("hijacked")
			}
			a.pay(w, r)
		}
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		a.server.ServeHTTP(w, request())
		if !w.set.Equal(deadline) {
			t.Errorf("deadline %s", w.set)
		}
		wantResponse(t, a.do(request()), http.StatusCreated, "run 1", true)
	})
}

// In the lease form the client gets a response beyond the limit, because the work is done. A
// repeated request does not do the work again.
func TestResponseTooLargeInLeaseForm(t *testing.T) {
	big := strings.Repeat("x", 101)
	for name, handler := range map[string]http.HandlerFunc{
		"at once": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, big) },
		"in pieces": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, big[:60])
			io.WriteString(w, big[60:])
		},
		"header": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", strings.Repeat("x", once.MaxMeta))
			io.WriteString(w, big[:100]) // this part could be kept
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, false, func(c *httpkey.Config) { c.Keys.MaxResult = 100 })
			a.handler = func(w http.ResponseWriter, r *http.Request) {
				a.effect(r)
				handler(w, r)
			}
			if w := a.do(request()); w.Code != http.StatusOK || w.Body.Len() < 100 {
				t.Errorf("answered %d with %d bytes", w.Code, w.Body.Len())
			}
			wantProblem(t, a.do(request()), http.StatusConflict, "idempotency-response-not-kept")
			a.wantRuns(1, 1)
		})
	}
}

// In the transaction form a response beyond the limit is an error, and the transaction is rolled
// back.
func TestResponseTooLargeInTransactionForm(t *testing.T) {
	a := newAPI(t, true, func(c *httpkey.Config) { c.Keys.MaxResult = 100 })
	var header atomic.Bool
	a.handler = func(w http.ResponseWriter, r *http.Request) {
		a.effect(r)
		if header.Load() {
			w.Header().Set("Link", strings.Repeat("x", once.MaxMeta))
			w.WriteHeader(http.StatusOK)
			return
		}
		if n, err := w.Write(make([]byte, 60)); n != 60 || err != nil {
			t.Errorf("Write: %d, %v", n, err)
		}
		if _, err := w.Write(make([]byte, 41)); !errors.Is(err, httpkey.ErrResponseTooLarge) {
			t.Errorf("Write: %v", err)
		}
	}
	for range 2 {
		wantProblem(t, a.do(request()), http.StatusInternalServerError, "idempotency-failed")
		if info := a.wantAnswer("store_error"); !errors.Is(info.Err, httpkey.ErrResponseTooLarge) {
			t.Errorf("told %v", info.Err)
		}
		header.Store(true)
	}
	a.wantRuns(2, 0)
}

// A result that another user of the store wrote under the key is not sent as a response.
func TestForeignResult(t *testing.T) {
	store := outboxtest.NewOnceStore()
	a := newAPI(t, false, func(c *httpkey.Config) { c.Keys.Store = store })
	a.do(request())
	key := a.wantAnswer("executed").Key
	key.ID = "k2"
	claimed, err := store.Acquire(t.Context(), once.Request{Key: key, Owner: "x", Lease: time.Second, TTL: time.Hour})
	must(t, err)
	must(t, store.Complete(t.Context(), once.Claim{Key: key, Owner: "x", Fence: claimed.Fence},
		once.Result{Data: []byte("x")}, time.Hour))
	w := a.do(requestWith(func(r *http.Request) { r.Header.Set("Idempotency-Key", "k2") }))
	wantProblem(t, w, http.StatusInternalServerError, "idempotency-failed")
}

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
	each(t, nil, func(t *testing.T, a *api) {
		a.handler = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<script>", http.StatusBadRequest) }
		a.do(request())
		if w := a.do(request()); w.Header().Get("Idempotency-Replayed") != "true" ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("headers %v", w.Header())
		}
	})
}
