package httpkey_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// deadlock is an error after which the transaction can be run again.
type deadlock struct{}

func (deadlock) Error() string    { return "deadlock detected" }
func (deadlock) SQLState() string { return "40P01" }

// The client gets no response before the commit.
func TestTxAnswersAfterTheCommit(t *testing.T) {
	a := newAPI(t, true, nil)
	w := httptest.NewRecorder()
	a.handler = func(rw http.ResponseWriter, r *http.Request) {
		a.pay(rw, r)
		tx, ok := core.TxFromContext(r.Context())
		if !ok {
			t.Fatal("no transaction in the context")
		}
		tx.OnOutcome(func(o core.Outcome) {
			if o != core.Committed || w.Body.Len() != 0 {
				t.Errorf("%s with %q sent", o, w.Body)
			}
		})
	}
	a.server.ServeHTTP(w, request())
	wantResponse(t, w, http.StatusCreated, "run 1", false)
}

// badCommit fails every COMMIT while err is set.
type badCommit struct {
	core.Transactor
	err error
}

func (b *badCommit) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	return b.Transactor.RunInTx(ctx,
		func(ctx context.Context, tx core.Tx) error { return errors.Join(fn(ctx, tx), b.err) })
}

// After a COMMIT that fails, nothing is stored, and the client gets an error.
func TestTxCommitFails(t *testing.T) {
	for name, tc := range map[string]struct {
		err     error
		status  int
		problem string
		runs    int
	}{
		"for ever": {
			errors.New("violates foreign key constraint"), http.StatusInternalServerError,
			"idempotency-failed", 1,
		},
		"because of load": {deadlock{}, http.StatusServiceUnavailable, "idempotency-store-unavailable", 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad := &badCommit{err: tc.err}
				a := newAPI(t, true, func(c *httpkey.Config) { bad.Transactor, c.Transactor = c.Transactor, bad })
				wantProblem(t, a.do(request()), tc.status, tc.problem)
				if info := a.wantAnswer("store_error"); !errors.Is(info.Err, tc.err) {
					t.Errorf("told %v", info.Err)
				}
				a.wantRuns(tc.runs, 0)
				bad.err = nil
				if w := a.do(request()); w.Code != http.StatusCreated || w.Header().Get("Idempotency-Replayed") != "" {
					t.Errorf("answered %d %v", w.Code, w.Header())
				}
				a.wantRuns(tc.runs+1, 1)
			})
		})
	}
}

// If COMMIT was refused because of other transactions, the whole transaction is run again.
func TestTxCommitRefusedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, true, nil)
		a.Repository.FailCommit(outboxtest.CommitRefused)
		wantResponse(t, a.do(request()), http.StatusCreated, "run 2", false)
		a.wantRuns(2, 1)
	})
}

// The answer to COMMIT was lost. The key shows whether the transaction committed.
func TestTxCommitUnknown(t *testing.T) {
	for name, tc := range map[string]struct {
		fault    outboxtest.CommitFault
		body     string
		replayed bool
		runs     int
	}{
		"it committed":     {outboxtest.CommitAnswerLost, "run 1", true, 1},
		"it did not":       {outboxtest.CommitNotSent, "run 2", false, 2},
		"nothing happened": {outboxtest.CommitSucceeds, "run 1", false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(t, true, nil)
				a.Repository.FailCommit(tc.fault)
				wantResponse(t, a.do(request()), http.StatusCreated, tc.body, tc.replayed)
				a.wantRuns(tc.runs, 1)
			})
		})
	}
}

// A handler that met a deadlock calls Retry and is run again with the same request. The client gets
// only the response of the last run.
func TestTxRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, true, nil)
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-User") != "ada" || r.ContentLength != 13 {
				t.Errorf("the request is another one: %v", r.Header)
			}
			r.Header.Set("X-User", "changed")
			if n, err := r.Body.Read(make([]byte, 20)); n != 13 {
				t.Errorf("read %d bytes, %v", n, err)
			}
			a.pay(w, r)
			if a.runs.Load() < 3 {
				w.Header().Set("X-Old", "1")
				if !httpkey.Retry(r.Context(), deadlock{}) {
					t.Error("not retried")
				}
			}
		}
		w := a.do(request())
		wantResponse(t, w, http.StatusCreated, "run 3", false)
		equal(t, w.Header().Get("X-Old"), "", "a header of an earlier run is left")
		a.wantRuns(3, 1)
		wantResponse(t, a.do(request()), http.StatusCreated, "run 3", true)
	})
}

func TestTxRetryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, true, nil)
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			a.effect(r)
			httpkey.Retry(r.Context(), deadlock{})
		}
		wantProblem(t, a.do(request()), http.StatusServiceUnavailable, "idempotency-store-unavailable")
		a.wantRuns(10, 0)
	})
}

// Retry refuses errors that a new run cannot avoid, and refuses to retry in the lease form.
func TestRetryIsRefused(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			if httpkey.Retry(r.Context(), nil) || httpkey.Retry(r.Context(), errDown) ||
				!a.tx && httpkey.Retry(r.Context(), deadlock{}) {
				t.Error("promised to retry")
			}
			w.WriteHeader(http.StatusInternalServerError)
		}
		wantResponse(t, a.do(request()), http.StatusInternalServerError, "", false)
		a.wantRuns(1, 0)
	})
	if httpkey.Retry(t.Context(), deadlock{}) {
		t.Error("promised to retry nothing")
	}
}

// Another process works on the key. The request waits for the lock of the row, but not forever.
func TestTxWaitsForTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, true, nil)
		b := newAPI(t, true, func(c *httpkey.Config) { c.Keys.Store, c.Transactor = a.store, a.Transactor })
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(3 * time.Second)
			a.pay(w, r)
		}
		first, start := a.goDo(request()), time.Now()
		wantProblem(t, b.do(request()), http.StatusConflict, "idempotency-key-in-flight")
		if waited := time.Since(start); waited != 2*time.Second {
			t.Errorf("waited %s", waited)
		}
		wantResponse(t, b.do(request()), http.StatusCreated, "run 1", true)
		wantResponse(t, <-first, http.StatusCreated, "run 1", false)
		b.wantRuns(0, 0)
	})
}

// The response of an error is kept in a transaction of its own. If that transaction fails, the
// client does not get a response that was not kept.
func TestTxKeepFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := &badCommit{err: errDown}
		a := newAPI(t, true, func(c *httpkey.Config) { bad.Transactor, c.Transactor = c.Transactor, bad })
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			a.effect(r)
			http.Error(w, "no such account", http.StatusNotFound)
		}
		wantProblem(t, a.do(request()), http.StatusInternalServerError, "idempotency-failed")
		bad.err = nil
		wantResponse(t, a.do(request()), http.StatusNotFound, "no such account\n", false)
		wantResponse(t, a.do(request()), http.StatusNotFound, "no such account\n", true)
		a.wantRuns(2, 0)
	})
}

// A request within a transaction is refused, because that transaction would commit after the
// answer.
func TestTxNested(t *testing.T) {
	a := newAPI(t, true, nil)
	err := a.Transactor.RunInTx(t.Context(), func(ctx context.Context, _ core.Tx) error {
		wantProblem(t, a.do(request().WithContext(ctx)), http.StatusInternalServerError, "idempotency-failed")
		return nil
	})
	noError(t, err)
	if info := a.wantAnswer("store_error"); !errors.Is(info.Err, httpkey.ErrNested) {
		t.Errorf("told %v", info.Err)
	}
	a.wantRuns(0, 0)
}

// A handler that is wrapped twice gets an error instead of waiting for its own key.
func TestWrappedTwice(t *testing.T) {
	forms(t, func(t *testing.T, tx bool) {
		var inner httpkey.Info
		a := newAPI(t, tx, func(c *httpkey.Config) {
			c.Observer = func(i httpkey.Info) {
				if inner.Answer == "" {
					inner = i
				}
			}
			keys, err := httpkey.New(*c)
			must(t, err)
			never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })
			twice := keys.Wrap(keys.Wrap(never))
			start := time.Now()
			w := httptest.NewRecorder()
			twice.ServeHTTP(w, request())
			wantProblem(t, w, http.StatusInternalServerError, "idempotency-failed")
			if !errors.Is(inner.Err, httpkey.ErrNested) || time.Since(start) != 0 {
				t.Errorf("told %v after %s", inner.Err, time.Since(start))
			}
		})
		a.wantRuns(0, 0)
	})
}

// Many requests arrive with one key at once. One of them is carried out, and all get its response.
func TestParallelRequests(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(100 * time.Millisecond)
			a.pay(w, r)
		}
		const n = 64
		var done [n]<-chan *httptest.ResponseRecorder
		for i := range done {
			c := make(chan *httptest.ResponseRecorder, 1)
			done[i] = c
			go func() { c <- a.do(request()) }()
		}
		first := 0
		for _, c := range done {
			w := <-c
			if w.Header().Get("Idempotency-Replayed") == "" {
				first++
			}
			wantResponse(t, w, http.StatusCreated, "run 1", w.Header().Get("Idempotency-Replayed") == "true")
		}
		equal(t, first, 1, "responses are the first")
		a.wantRuns(1, 1)
	})
}

// slowClient does not read its response.
type slowClient struct {
	*httptest.ResponseRecorder
	read chan struct{}
}

func (c slowClient) Write(p []byte) (int, error) {
	<-c.read
	return c.ResponseRecorder.Write(p)
}

// No request waits for a client that does not read its response.
func TestSlowClientHoldsUpNobody(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		slow, done := slowClient{httptest.NewRecorder(), make(chan struct{})}, make(chan struct{})
		go func() {
			defer close(done)
			a.server.ServeHTTP(slow, request())
		}()
		synctest.Wait()
		start := time.Now()
		wantResponse(t, a.do(request()), http.StatusCreated, "run 1", true)
		if waited := time.Since(start); waited != 0 {
			t.Errorf("waited %s", waited)
		}
		close(slow.read)
		<-done
		wantResponse(t, slow.ResponseRecorder, http.StatusCreated, "run 1", false)
	})
}
