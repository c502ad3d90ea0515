package httpkey_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
)

var errDown = errors.New("connection refused")

// shaky is a store that can fail, in all methods or in one of them.
type shaky struct {
	once.Store
	acquire, extend, complete, release atomic.Bool
}

func (s *shaky) Acquire(ctx context.Context, req once.Request) (once.Acquired, error) {
	if s.acquire.Load() {
		return once.Acquired{}, errDown
	}
	return s.Store.Acquire(ctx, req)
}

func (s *shaky) Extend(ctx context.Context, c once.Claim, lease time.Duration) error {
	if s.extend.Load() {
		return errDown
	}
	return s.Store.Extend(ctx, c, lease)
}

func (s *shaky) Complete(ctx context.Context, c once.Claim, res once.Result, ttl time.Duration) error {
	if s.complete.Load() {
		return errDown
	}
	return s.Store.Complete(ctx, c, res, ttl)
}

func (s *shaky) Release(ctx context.Context, c once.Claim, attempts int) error {
	if s.release.Load() {
		return errDown
	}
	return s.Store.Release(ctx, c, attempts)
}

func newShakyAPI(t *testing.T, configure func(*httpkey.Config)) (*api, *shaky) {
	t.Helper()
	s := &shaky{}
	a := newAPI(t, false, func(c *httpkey.Config) {
		s.Store, c.Keys.Store = c.Keys.Store, s
		if configure != nil {
			configure(c)
		}
	})
	return a, s
}

// The handler does not run while the store is down.
func TestStoreDown(t *testing.T) {
	a, s := newShakyAPI(t, nil)
	s.acquire.Store(true)
	wantProblem(t, a.do(request()), http.StatusServiceUnavailable, "idempotency-store-unavailable")
	if info := a.wantAnswer("store_error"); !errors.Is(info.Err, errDown) {
		t.Errorf("told %v", info.Err)
	}
	a.wantRuns(0, 0)
}

// Only errors of the server are logged.
func TestLogger(t *testing.T) {
	var out bytes.Buffer
	a, s := newShakyAPI(t, func(c *httpkey.Config) { c.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
	wantResponse(t, a.do(request()), http.StatusCreated, "run 1", false)
	if out.Len() > 0 {
		t.Errorf("a request that was carried out is logged: %s", &out)
	}
	s.acquire.Store(true)
	a.do(request())
	if got := out.String(); !strings.Contains(got, errDown.Error()) || strings.Count(got, "\n") != 1 {
		t.Errorf("logged %q, want one line with %q", got, errDown)
	}
}

// brokenTransactor cannot begin a transaction.
type brokenTransactor struct{}

func (brokenTransactor) RunInTx(context.Context, func(context.Context, core.Tx) error) error {
	return errDown
}

func TestDatabaseDown(t *testing.T) {
	a := newAPI(t, true, func(c *httpkey.Config) { c.Transactor = brokenTransactor{} })
	wantProblem(t, a.do(request()), http.StatusServiceUnavailable, "idempotency-store-unavailable")
	a.wantAnswer("store_error")
	a.wantRuns(0, 0)
}

// With FailOpen the handler runs while the store is down.
func TestFailOpen(t *testing.T) {
	a, s := newShakyAPI(t, func(c *httpkey.Config) { c.FailOpen = true })
	s.acquire.Store(true)
	for i := range 2 {
		wantResponse(t, a.do(request()), http.StatusCreated, fmt.Sprintf("run %d", i+1), false)
		if info := a.wantAnswer("bypassed"); !errors.Is(info.Err, errDown) {
			t.Errorf("told %v", info.Err)
		}
	}
	a.wantRuns(2, 2)
}

// leaving is a store that is down, and whose client leaves before the store reports that.
type leaving struct {
	once.Store
	leave func()
}

func (s leaving) Acquire(context.Context, once.Request) (once.Acquired, error) {
	s.leave()
	return once.Acquired{}, errDown
}

// FailOpen does not run the handler for a client that has left. The client may retry when the store
// is back.
func TestFailOpenForNobody(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	a := newAPI(t, false, func(c *httpkey.Config) { c.FailOpen, c.Keys.Store = true, leaving{c.Keys.Store, leave} })
	a.do(request().WithContext(ctx))
	a.wantAnswer("client_gone")
	a.wantRuns(0, 0)
}

// The store goes down while the handler works. The client gets the response of the handler, because
// its work is done.
func TestStoreDownAfterTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newShakyAPI(t, nil)
		s.complete.Store(true)
		wantResponse(t, a.do(request()), http.StatusCreated, "run 1", false)
		if info := a.wantAnswer("executed"); !errors.Is(info.Err, errDown) || info.Policy != httpkey.Release {
			t.Errorf("told %+v", info)
		}
		s.complete.Store(false)
		// The key is held until the lease ends. Recording failed for 5 s, and the wait for the key
		// takes 2 s.
		wantLeased(t, a.do(request()), 20, 28)
		time.Sleep(30 * time.Second)
		wantResponse(t, a.do(request()), http.StatusCreated, "run 2", false) // the work is done at least once
	})
}

// If the key could not be released, the Observer gets the error, and the client gets the response
// of the handler.
func TestStoreDownAtRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newShakyAPI(t, nil)
		s.release.Store(true)
		a.handler = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
		wantResponse(t, a.do(request()), http.StatusBadGateway, "", false)
		if info := a.wantAnswer("executed"); !errors.Is(info.Err, errDown) || info.Policy != httpkey.Release {
			t.Errorf("told %+v", info)
		}
	})
}

// crash leaves a key in the state of a process that died while it worked.
func (a *api) crash() {
	a.t.Helper()
	probe := newAPI(a.t, false, nil)
	probe.do(request())
	key := probe.wantAnswer("executed").Key
	if _, err := a.store.Acquire(a.t.Context(), once.Request{
		Key: key, Owner: "died", Lease: 30 * time.Second,
		TTL: time.Hour,
	}); err != nil {
		a.t.Fatal(err)
	}
}

// A process died while it worked. Its key is held until the lease ends. Then the handler runs
// again.
func TestCrashedAttempt(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		a.crash()
		wantLeased(t, a.do(request()), 28, 30)
		time.Sleep(30 * time.Second)
		wantResponse(t, a.do(request()), http.StatusCreated, "run 1", false)
	})
}

// With RefuseStale, a person must decide about an abandoned key.
func TestCrashedAttemptRefused(t *testing.T) {
	each(t, func(c *httpkey.Config) { c.Keys.RefuseStale = true }, func(t *testing.T, a *api) {
		a.crash()
		time.Sleep(31 * time.Second)
		wantProblem(t, a.do(request()), http.StatusConflict, "idempotency-outcome-unknown")
		a.wantAnswer("abandoned")
		a.wantRuns(0, 0)
	})
}

// A panic goes on, and the key is free. Its value and its stack are reported and logged.
func TestPanic(t *testing.T) {
	forms(t, func(t *testing.T, tx bool) {
		var out bytes.Buffer
		a := newAPI(t, tx, func(c *httpkey.Config) { c.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			a.pay(w, r)
			panic("boom")
		}
		w := httptest.NewRecorder()
		func() {
			defer func() {
				equal(t, recover(), "boom", "recovered")
			}()
			a.server.ServeHTTP(w, request())
		}()
		equal(t, w.Body.Len(), 0, "the client saw %q", w.Body)
		info := a.wantAnswer("executed")
		if !errors.Is(info.Err, httpkey.ErrPanicked) || !strings.HasSuffix(info.Err.Error(), ": panic: boom") ||
			info.Status != 0 || info.Policy != httpkey.Release {
			t.Errorf("told %+v", info)
		}
		if p, ok := errors.AsType[*core.PanicError](info.Err); !ok ||
			!strings.Contains(string(p.Stack), "httpkey_test.TestPanic") {
			t.Errorf("the stack does not name the handler: %+v", p)
		}
		if line := out.String(); !strings.Contains(line, "panic: boom") ||
			!strings.Contains(line, "httpkey_test.TestPanic") || strings.Count(line, "\n") != 1 {
			t.Errorf("logged %s", line)
		}
		a.handler = a.pay
		wantResponse(t, a.do(request()), http.StatusCreated, "run 2", false)
		if tx {
			a.wantRuns(2, 1)
		}
	})
}

// The lease is extended for as long as the handler works.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, false, nil)
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(10 * time.Minute)
			a.pay(w, r)
		}
		first := a.goDo(request())
		for range 5 {
			time.Sleep(time.Minute)
			wantLeased(t, a.do(request()), 20, 30)
		}
		wantResponse(t, <-first, http.StatusCreated, "run 1", false)
		a.wantRuns(1, 1)
	})
}

// If a handler loses its lease, its context ends with that cause. The client gets the response of
// the request that took the key over.
func TestLeaseLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newShakyAPI(t, nil)
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			if a.runs.Load() == 1 {
				<-r.Context().Done()
				if err := context.Cause(r.Context()); !errors.Is(err, once.ErrLeaseLost) {
					t.Errorf("the context ended because of %v", err)
				}
				time.Sleep(time.Minute) // the handler ignores the end of its context
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "run %d", a.runs.Load())
		}
		s.extend.Store(true)
		first := a.goDo(request())
		time.Sleep(31 * time.Second)
		wantResponse(t, a.do(request()), http.StatusCreated, "run 2", false)
		wantResponse(t, <-first, http.StatusCreated, "run 2", true)
	})
}

// The request that took the key over has not finished yet.
func TestLeaseLostToOneThatIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newShakyAPI(t, nil)
		a.handler = func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(45 * time.Second)
			w.WriteHeader(http.StatusOK)
		}
		s.extend.Store(true)
		first := a.goDo(request())
		time.Sleep(31 * time.Second)
		s.extend.Store(false)
		second := a.goDo(request())
		wantLeased(t, <-first, 20, 30)
		wantResponse(t, <-second, http.StatusOK, "", false)
	})
}

// The client leaves while the handler works. The work is finished, and the client's next attempt
// gets the response.
func TestClientLeavesWhileTheHandlerWorks(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		ctx, leave := context.WithCancel(context.WithValue(t.Context(), http.ServerContextKey, "kept"))
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			leave()
			time.Sleep(time.Second)
			if err := r.Context().Err(); err != nil {
				t.Errorf("the handler was stopped: %v", err)
			}
			equal(t, r.Context().Value(http.ServerContextKey), "kept", "the values of the context are lost")
			a.pay(w, r)
		}
		a.do(request().WithContext(ctx))
		a.wantAnswer("executed")
		wantResponse(t, a.do(request()), http.StatusCreated, "run 1", true)
		a.wantRuns(1, 1)
	})
}

// The client leaves while it waits for another request. Its own request is not carried out.
func TestClientLeavesWhileItWaits(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			w.WriteHeader(http.StatusInternalServerError) // so that the key is free for the other request
		}
		ctx, leave := context.WithCancel(t.Context())
		first, second := a.goDo(request()), a.goDo(request().WithContext(ctx))
		leave()
		if w := <-second; w.Body.Len() != 0 {
			t.Errorf("answered %q", w.Body)
		}
		<-first
		a.wantAnswer("client_gone")
		a.wantAnswer("executed")
		a.wantRuns(1, 0)

		a.do(request().WithContext(ctx)) // the client left before the request began
		a.wantAnswer("client_gone")
		a.wantRuns(1, 0)
	})
}

// A deadline of the request's context also holds for the handler.
func TestDeadline(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		wantResponse(t, a.do(request().WithContext(ctx)), http.StatusServiceUnavailable, "", false)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("took %s", took)
		}
	})
}

// When the client of a streamed response leaves, the context of the handler ends.
func TestClientLeavesStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, false, nil)
		ctx, leave := context.WithCancel(t.Context())
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			leave()
			<-r.Context().Done()
		}
		a.do(request().WithContext(ctx))
		a.wantAnswer("executed")
	})
}

// slowTransactor sleeps before the transaction, before its commit, or both. It ignores the end of
// the context.
type slowTransactor struct {
	core.Transactor
	begin, commit, calls atomic.Int64
}

func (s *slowTransactor) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	s.calls.Add(1)
	time.Sleep(time.Duration(s.begin.Load()))
	return s.Transactor.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		err := fn(ctx, tx)
		time.Sleep(time.Duration(s.commit.Load()))
		return err
	})
}

func newSlowAPI(t *testing.T) (*api, *slowTransactor) {
	t.Helper()
	slow := &slowTransactor{}
	return newAPI(t, true, func(c *httpkey.Config) { slow.Transactor, c.Transactor = c.Transactor, slow }), slow
}

// Many clients repeat a finished request at once and get its response. One of the requests reads it
// for all that arrived meanwhile.
func TestReplaysDoNotQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, slow := newSlowAPI(t)
		wantResponse(t, a.do(request()), http.StatusCreated, "run 1", false)
		slow.begin.Store(int64(50 * time.Millisecond))
		slow.commit.Store(int64(50 * time.Millisecond))
		slow.calls.Store(0)
		var all []<-chan *httptest.ResponseRecorder
		start := time.Now()
		for range 128 {
			all = append(all, a.goDo(request()))
		}
		for _, w := range all {
			wantResponse(t, <-w, http.StatusCreated, "run 1", true)
		}
		if took, calls := time.Since(start), slow.calls.Load(); took != 100*time.Millisecond || calls != 1 {
			t.Errorf("took %s and %d transactions, want 100ms and one", took, calls)
		}
		a.wantRuns(1, 1)
	})
}

// Requests that wait for the first one get its response from memory. If the first one failed, one
// of them runs the handler.
func TestWaitersGetTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, slow := newSlowAPI(t)
		status := http.StatusBadGateway
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			a.effect(r)
			w.WriteHeader(status)
			status = http.StatusCreated
		}
		var all []<-chan *httptest.ResponseRecorder
		for range 10 {
			all = append(all, a.goDo(request()))
		}
		got := map[int]int{}
		for _, w := range all {
			got[(<-w).Code]++
		}
		// The second run ends when the others have waited for two seconds, which is their limit.
		if got[http.StatusBadGateway] != 1 || got[http.StatusCreated]+got[http.StatusConflict] != 9 ||
			got[http.StatusCreated] == 0 || slow.calls.Load() != 2 {
			t.Errorf("answers %v by %d transactions", got, slow.calls.Load())
		}
		a.wantRuns(2, 1)
	})
}

// The database hangs before the handler runs. The client gets an answer, and the handler never runs
// for this request, even when the database works again.
func TestHangsBeforeTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, slow := newSlowAPI(t)
		slow.begin.Store(int64(time.Hour))
		start := time.Now()
		wantProblem(t, a.do(request()), http.StatusServiceUnavailable, "idempotency-store-unavailable")
		if took := time.Since(start); took != 7*time.Second { // StoreTimeout, and Wait for the lock
			t.Errorf("answered after %s", took)
		}
		if info := a.wantAnswer("store_error"); !errors.Is(info.Err, once.ErrStore) {
			t.Errorf("told %v", info.Err)
		}
		time.Sleep(2 * time.Hour)
		a.wantRuns(0, 0)
		slow.begin.Store(0)
		wantResponse(t, a.do(request()), http.StatusCreated, "run 1", false)
	})
}

// A COMMIT hangs. The client is told to retry, and its later attempt finds the outcome.
func TestHangsAtCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, slow := newSlowAPI(t)
		slow.commit.Store(int64(time.Minute))
		start := time.Now()
		wantProblem(t, a.do(request()), http.StatusServiceUnavailable, "idempotency-store-unavailable")
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("answered after %s", took)
		}
		// The COMMIT still hangs, so the key is in flight.
		wantProblem(t, a.do(request()), http.StatusConflict, "idempotency-key-in-flight")
		time.Sleep(time.Minute)
		slow.commit.Store(0)
		w := a.do(request())
		equal(t, w.Code, http.StatusCreated, "answered")
		equal(t, len(a.Repository.Rows()), 1, "effects")
	})
}

// A handler may take longer than any statement.
func TestSlowHandlerIsNoHungDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := newSlowAPI(t)
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Hour)
			a.pay(w, r)
		}
		wantResponse(t, a.do(request()), http.StatusCreated, "run 1", false)
	})
}

// hungStore does not answer before its context ends.
type hungStore struct{ once.Store }

func (hungStore) Acquire(ctx context.Context, _ once.Request) (once.Acquired, error) {
	<-ctx.Done()
	return once.Acquired{}, ctx.Err()
}

func TestLeaseStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, false, func(c *httpkey.Config) { c.Keys.Store = hungStore{c.Keys.Store} })
		start := time.Now()
		wantProblem(t, a.do(request()), http.StatusServiceUnavailable, "idempotency-store-unavailable")
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("answered after %s", took)
		}
		time.Sleep(5 * time.Second) // the store is asked again, for a key that it may have given
		a.wantRuns(0, 0)
	})
}

// panickyTransactor panics instead of opening a transaction.
type panickyTransactor struct{ core.Transactor }

func (panickyTransactor) RunInTx(context.Context, func(context.Context, core.Tx) error) error {
	panic("broken")
}

// A panic of the Transactor goes on to the server, like a panic of a handler. The process survives
// it.
func TestTransactorPanics(t *testing.T) {
	a := newAPI(t, true, func(c *httpkey.Config) { c.Transactor = panickyTransactor{c.Transactor} })
	func() {
		defer func() {
			equal(t, recover(), "broken", "recovered")
		}()
		a.do(request())
	}()
	a.wantRuns(0, 0)
	info := a.wantAnswer("")
	if p, ok := errors.AsType[*core.PanicError](info.Err); !ok ||
		!strings.Contains(string(p.Stack), "panickyTransactor") {
		t.Errorf("told %v, without where the Transactor panicked", info.Err)
	}
}
