package httpkey_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// api is a service whose effects are events, so that the test can count them.
type api struct {
	*outboxtest.Outbox
	t       *testing.T
	tx      bool
	store   *outboxtest.OnceStore
	keys    *httpkey.Middleware
	another func(configure func(*httpkey.Config)) *httpkey.Middleware // on the same store
	handler http.HandlerFunc
	server  http.Handler
	runs    atomic.Int64 // of the handler
	answers chan httpkey.Info
}

// forms runs fn for the lease form and for the transaction form, each in a bubble with a clock of
// its own.
func forms(t *testing.T, fn func(t *testing.T, tx bool)) {
	t.Helper()
	for name, tx := range map[string]bool{"lease": false, "transaction": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fn(t, tx) })
		})
	}
}

// each runs fn with a service of each form, in a bubble with a clock of its own.
func each(t *testing.T, configure func(*httpkey.Config), fn func(t *testing.T, a *api)) {
	t.Helper()
	forms(t, func(t *testing.T, tx bool) { fn(t, newAPI(t, tx, configure)) })
}

func newAPI(t *testing.T, tx bool, configure func(*httpkey.Config)) *api {
	t.Helper()
	a := &api{t: t, tx: tx, Outbox: outboxtest.NewOutbox(t, core.Config{}), answers: make(chan httpkey.Info, 1000)}
	a.store = a.Repository.OnceStore()
	cfg := httpkey.Config{
		Keys:     once.Config{Store: a.store},
		Scope:    func(r *http.Request) string { return r.Header.Get("X-User") },
		Observer: func(i httpkey.Info) { a.answers <- i },
	}
	if tx {
		cfg.Transactor = a.Transactor
	}
	a.another = func(configure func(*httpkey.Config)) *httpkey.Middleware {
		cfg := cfg
		if configure != nil {
			configure(&cfg)
		}
		keys, err := httpkey.New(cfg)
		must(t, err)
		return keys
	}
	a.keys = a.another(configure)
	a.handler = a.pay
	h := a.keys.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.runs.Add(1)
		a.handler(w, r)
	}))
	mux := http.NewServeMux()
	mux.Handle("/payments", h)
	mux.Handle("/payments/{id}", h)
	mux.Handle("/refunds", h)
	a.server = mux
	return a
}

// pay has an effect, and answers with the number of its run.
func (a *api) pay(w http.ResponseWriter, r *http.Request) {
	a.effect(r)
	w.Header().Set("Location", "/payments/1")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "run %d", a.runs.Load())
}

// effect publishes an event in the transaction of the request, or in one of its own.
func (a *api) effect(r *http.Request) {
	a.t.Helper()
	publish := func(ctx context.Context, tx core.Tx) error {
		_, err := a.Publish(ctx, tx, core.Event{Type: "paid"})
		return err
	}
	var err error
	if tx, ok := core.TxFromContext(r.Context()); ok {
		err = publish(r.Context(), tx)
	} else {
		err = a.Transactor.RunInTx(r.Context(), publish)
	}
	noError(a.t, err)
}

// request is a payment by ada with key k1.
func request() *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"cents":100}`))
	r.Header.Set("Idempotency-Key", "k1")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-User", "ada")
	return r
}

func requestWith(change func(*http.Request)) *http.Request {
	r := request()
	change(r)
	return r
}

func setBody(r *http.Request, body string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
}

func (a *api) do(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	a.server.ServeHTTP(w, r)
	return w
}

// goDo sends a request in the background, and returns when all goroutines are blocked.
func (a *api) goDo(r *http.Request) <-chan *httptest.ResponseRecorder {
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() { done <- a.do(r) }()
	synctest.Wait()
	return done
}

func (a *api) wantRuns(runs, effects int) {
	a.t.Helper()
	equal(a.t, int(a.runs.Load()), runs, "the handler ran so often")
	equal(a.t, len(a.Repository.Rows()), effects, "effects")
}

// wantAnswer checks the oldest answer that was not checked yet.
func (a *api) wantAnswer(want string) httpkey.Info {
	a.t.Helper()
	got := <-a.answers
	equal(a.t, got.Answer, want, "answer (%v)", got.Err)
	return got
}

func wantResponse(t *testing.T, w *httptest.ResponseRecorder, status int, body string, replayed bool) {
	t.Helper()
	if w.Code != status || w.Body.String() != body {
		t.Errorf("answered %d %q, want %d %q", w.Code, w.Body, status, body)
	}
	if got := w.Header().Get("Idempotency-Replayed"); (got == "true") != replayed || (got == "") == replayed {
		t.Errorf("Idempotency-Replayed is %q", got)
	}
}

func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, name string) {
	t.Helper()
	least := 0
	if name == "idempotency-key-in-flight" || name == "idempotency-store-unavailable" {
		least = 1
	}
	wantProblemFor(t, w, status, name, least, least)
}

// wantLeased requires the answer to a request whose key is held by a lease. The answer says when
// the lease ends.
func wantLeased(t *testing.T, w *httptest.ResponseRecorder, least, most int) {
	t.Helper()
	wantProblemFor(t, w, http.StatusConflict, "idempotency-key-in-flight", least, most)
}

// wantProblemFor requires a problem whose Retry-After is between least and most seconds, and absent
// if both are 0.
func wantProblemFor(t *testing.T, w *httptest.ResponseRecorder, status int, name string, least, most int) {
	t.Helper()
	var p struct {
		Type, Title string
		Status      int
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil ||
		w.Header().Get("Content-Type") != "application/problem+json" {
		t.Fatalf("not a problem: %d %v %q: %v", w.Code, w.Header(), w.Body, err)
	}
	if w.Code != status || p.Status != status || p.Title == "" ||
		p.Type != "https://github.com/ormoutbox/ormoutbox/problems/"+name {
		t.Errorf("answered %d %s, want %d %s", w.Code, w.Body, status, name)
	}
	link := "<https://github.com/ormoutbox/ormoutbox/blob/main/docs/http-idempotency.md#" + name +
		`>; rel="describedby"`
	if got := w.Header().Get("Link"); got != link {
		t.Errorf("Link is %q, want %q", got, link)
	}
	text := w.Header().Get("Retry-After")
	if seconds, err := strconv.Atoi(text); most > 0 && (err != nil || seconds < least || seconds > most) ||
		most == 0 && text != "" {
		t.Errorf("Retry-After is %q, want %d to %d seconds", text, least, most)
	}
	equal(t, w.Header().Get("Idempotency-Replayed"), "", "a problem says that it is a replay")
}

// The first request is carried out, and the middleware adds nothing to its response.
func TestFirstRequest(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		w := a.do(request())
		wantResponse(t, w, http.StatusCreated, "run 1", false)
		want := http.Header{"Location": {"/payments/1"}}
		got := w.Result().Header
		got.Del("Content-Type") // the recorder adds it, as a server would do
		if !maps.EqualFunc(got, want,
			func(a, b []string) bool { return strings.Join(a, "|") == strings.Join(b, "|") }) {
			t.Errorf("headers %v, want %v", got, want)
		}
		a.wantRuns(1, 1)
		info := a.wantAnswer("executed")
		if info.Status != 201 || info.Policy != httpkey.Commit || info.Route != "/payments" || info.Method != "POST" ||
			info.Key.ID != "k1" || info.Key.Tenant != "ada" || info.Err != nil {
			t.Errorf("told %+v", info)
		}
	})
}

// The same key with the same request gets the stored response.
func TestReplay(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		first := a.do(request())
		for range 2 {
			w := a.do(request())
			wantResponse(t, w, http.StatusCreated, "run 1", true)
			if got, want := w.Header().Get("Location"), first.Header().Get("Location"); got != want {
				t.Errorf("Location %q, want %q", got, want)
			}
		}
		a.wantRuns(1, 1)
		a.wantAnswer("executed")
		if info := a.wantAnswer("replayed"); info.Status != 201 {
			t.Errorf("told %+v", info)
		}
	})
}

func TestReplayedHeaderName(t *testing.T) {
	a := newAPI(t, false, func(c *httpkey.Config) { c.ReplayedHeader = "Idempotent-Replayed" })
	a.do(request())
	w := a.do(request())
	if w.Header().Get("Idempotent-Replayed") != "true" || w.Header().Get("Idempotency-Replayed") != "" {
		t.Errorf("headers %v", w.Header())
	}
}

// A request that comes while the first is in flight waits for its response.
func TestInFlightWaits(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			a.pay(w, r)
		}
		first, second := a.goDo(request()), a.goDo(request())
		wantResponse(t, <-first, http.StatusCreated, "run 1", false)
		wantResponse(t, <-second, http.StatusCreated, "run 1", true)
		a.wantRuns(1, 1)
	})
}

// A request does not wait for the first one forever.
func TestInFlightConflict(t *testing.T) {
	forms(t, func(t *testing.T, tx bool) {
		for name, tc := range map[string]struct{ set, want time.Duration }{
			"default": {0, 2 * time.Second}, "set": {5 * time.Second, 5 * time.Second}, "not at all": {-1, 0},
		} {
			a := newAPI(t, tx, func(c *httpkey.Config) { c.Keys.Wait = tc.set })
			stop := make(chan struct{})
			a.handler = func(w http.ResponseWriter, r *http.Request) {
				<-stop
				a.pay(w, r)
			}
			first, start := a.goDo(request()), time.Now()
			if rest := 30 - int(tc.want.Seconds()); tx {
				wantProblem(t, a.do(request()), http.StatusConflict, "idempotency-key-in-flight")
			} else {
				wantLeased(t, a.do(request()), rest, rest)
			}
			if waited := time.Since(start); waited != tc.want {
				t.Errorf("%s: waited %s, want %s", name, waited, tc.want)
			}
			a.wantAnswer("in_flight")
			close(stop)
			wantResponse(t, <-first, http.StatusCreated, "run 1", false)
			wantResponse(t, a.do(request()), http.StatusCreated, "run 1", true)
			a.wantRuns(1, 1)
		}
	})
}

// A key that was used for another request is refused at once, even if the other request is still in
// flight.
func TestMismatch(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		stop := make(chan struct{})
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			<-stop
			a.pay(w, r)
		}
		other := func() *http.Request { return requestWith(func(r *http.Request) { setBody(r, `{"cents":999}`) }) }
		first, start := a.goDo(request()), time.Now()
		wantProblem(t, a.do(other()), http.StatusUnprocessableEntity, "idempotency-key-reused")
		if waited := time.Since(start); waited != 0 {
			t.Errorf("waited %s", waited)
		}
		a.wantAnswer("mismatch")
		close(stop)
		<-first
		wantProblem(t, a.do(other()), http.StatusUnprocessableEntity, "idempotency-key-reused")
		a.wantRuns(1, 1)
	})
}

func TestMissingKey(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		none := func() *http.Request { return requestWith(func(r *http.Request) { r.Header.Del("Idempotency-Key") }) }
		wantProblem(t, a.do(none()), http.StatusBadRequest, "idempotency-key-missing")
		a.wantAnswer("missing_key")
		a.wantRuns(0, 0)

		a = newAPI(t, a.tx, func(c *httpkey.Config) { c.Optional = true })
		for i := range 2 {
			wantResponse(t, a.do(none()), http.StatusCreated, fmt.Sprintf("run %d", i+1), false)
			a.wantAnswer("bypassed")
		}
		a.wantRuns(2, 2)
	})
}

func TestInvalidKey(t *testing.T) {
	a := newAPI(t, false, func(c *httpkey.Config) { c.Optional = true })
	for name, values := range map[string][]string{
		"empty": {""}, "blank": {" "}, "two": {"a", "a"}, "control": {"a\x01"}, "not ASCII": {"é"},
		"long": {strings.Repeat("k", 256)}, "open quote": {`"a`}, "list": {`"a", "b"`}, "empty string": {`""`},
		"bad escape": {`"\n"`},
	} {
		w := a.do(requestWith(func(r *http.Request) { r.Header["Idempotency-Key"] = values }))
		t.Run(name, func(t *testing.T) { wantProblem(t, w, http.StatusBadRequest, "idempotency-key-invalid") })
		a.wantAnswer("invalid_key")
	}
	a.wantRuns(0, 0)
}

// The quoted and the bare form of a key are the same key.
func TestQuotedKey(t *testing.T) {
	a := newAPI(t, false, nil)
	a.do(request())
	w := a.do(requestWith(func(r *http.Request) { r.Header.Set("Idempotency-Key", `"k1"`) }))
	wantResponse(t, w, http.StatusCreated, "run 1", true)
}

func TestMissingScope(t *testing.T) {
	a := newAPI(t, false, nil)
	w := a.do(requestWith(func(r *http.Request) { r.Header.Del("X-User") }))
	wantProblem(t, w, http.StatusInternalServerError, "idempotency-scope-missing")
	a.wantAnswer("missing_scope")
	a.wantRuns(0, 0)
}

// One text is different keys for two principals, two methods or two routes.
func TestKeysAreScoped(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		long := strings.Repeat("x", 100)
		for i, change := range []func(r *http.Request){
			func(*http.Request) {},
			func(r *http.Request) { r.Header.Set("X-User", "bob") },
			func(r *http.Request) { r.Header.Set("X-User", long+"1") },
			func(r *http.Request) { r.Header.Set("X-User", long+"2") },
			func(r *http.Request) { r.Method = http.MethodPatch },
			func(r *http.Request) { r.URL.Path = "/refunds" },
		} {
			wantResponse(t, a.do(requestWith(change)), http.StatusCreated, fmt.Sprintf("run %d", i+1), false)
			wantResponse(t, a.do(requestWith(change)), http.StatusCreated, fmt.Sprintf("run %d", i+1), true)
		}
	})
}

// If there is no pattern, the path distinguishes the endpoints.
func TestOutsideOfTheMux(t *testing.T) {
	keys, err := httpkey.New(httpkey.Config{
		Keys:  once.Config{Store: outboxtest.NewOnceStore()},
		Scope: func(*http.Request) string { return "all" },
	})
	must(t, err)
	h := keys.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }))
	for range 2 {
		for _, path := range []string{"/a", "/b", "/" + strings.Repeat("x", 1000)} {
			r, w := request(), httptest.NewRecorder()
			r.URL.Path = path
			if h.ServeHTTP(w, r); w.Body.String() != path {
				t.Errorf("%s was answered by %d %s", path, w.Code, w.Body)
			}
		}
	}
}

func TestOtherMethodsPass(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		a.handler = func(http.ResponseWriter, *http.Request) {}
		for i, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE"} {
			for range 2 {
				a.do(requestWith(func(r *http.Request) { r.Method = method }))
				a.wantAnswer("bypassed")
			}
			a.wantRuns(2*i+2, 0)
		}
		a = newAPI(t, a.tx, func(c *httpkey.Config) { c.Methods = []string{"PUT"} })
		for range 2 {
			a.do(requestWith(func(r *http.Request) { r.Method = "PUT" }))
		}
		a.wantRuns(1, 1)
		a.do(request())
		a.wantRuns(2, 2)
	})
}

// Keys are forgotten after their time to live.
func TestTTL(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		a.do(request())
		time.Sleep(24*time.Hour - time.Second)
		wantResponse(t, a.do(request()), http.StatusCreated, "run 1", true)
		time.Sleep(2 * time.Second)
		wantResponse(t, a.do(request()), http.StatusCreated, "run 2", false)
	})
}

// Run deletes expired keys.
func TestRunCleansUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewOnceStore()
		keys, err := httpkey.New(httpkey.Config{
			Keys:  once.Config{Store: store},
			Scope: func(*http.Request) string { return "all" },
		})
		must(t, err)
		h := keys.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		h.ServeHTTP(httptest.NewRecorder(), request())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- keys.Run(ctx) }()
		time.Sleep(25 * time.Hour)
		equal(t, store.Keys(), 0, "keys are left")
		cancel()
		noError(t, <-done)
	})
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noError fails the test if err is not nil, and goes on. Goroutines of a test may call it.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// equal fails the test unless got is want. The rest says of what.
func equal[T comparable](t testing.TB, got, want T, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), got, want)
	}
}
