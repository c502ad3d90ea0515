package httpkey_test

import (
	"context"
	"errors"
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
		if info := a.wantAnswer(httpkey.StoreError); !errors.Is(info.Err, once.ErrStore) {
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
