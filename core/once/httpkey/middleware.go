package httpkey

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/program"
	"github.com/ormoutbox/ormoutbox/core/internal/turns"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Errors that [Info.Err] may wrap, in addition to errors of package once and of the database.
var (
	// ErrPanicked: the handler panicked, or called runtime.Goexit. The key is free, and the panic
	// goes on. The error also wraps a *core.PanicError with the value and the stack.
	ErrPanicked = errors.New("httpkey: the handler did not return")
	// ErrNoResponse: the handler neither wrote nor set a status. Most often it has written to
	// another ResponseWriter, or returned an error to a framework that answers later. It is not
	// known whether its work is right, so it is rolled back, and the key is free. A handler whose
	// answer is an empty 200 must call w.WriteHeader(http.StatusOK).
	ErrNoResponse = errors.New("httpkey: the handler wrote no response: call w.WriteHeader(http.StatusOK) for an " +
		"empty one, and have a framework write its errors before it returns")
	// ErrNested: the context of a request already carries a transaction, so the middleware could
	// not answer after its commit; or a handler is wrapped twice, so the inner wrap would wait for
	// the key of the outer one.
	ErrNested = errors.New("httpkey: the request is in a transaction, or under its key, already")
)

// Middleware makes handlers idempotent. Create it with New. It is safe for use by several
// goroutines, and may wrap any number of handlers.
type Middleware struct {
	cfg    Config
	runner *once.Runner
	// turns lets one request of this process at a time into the transaction form with a key. Its
	// result goes to the waiting requests with the same key. Without it they would wait in the
	// database, each with a connection (on SQLite the only writer), and then read the same result
	// one after another.
	turns turns.Turns[once.Key, once.Result]
	names program.Names
}

// New returns a Middleware, or an error that names every problem of cfg.
func New(cfg Config) (*Middleware, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	keys := cfg.Keys
	if keys.Wait == 0 { // here zero means no wait, unlike in package once
		keys.Wait = -1
	}
	runner, err := once.New(keys)
	if err != nil {
		return nil, err
	}
	return &Middleware{cfg: cfg, runner: runner}, nil
}

// Run deletes keys whose time to live is over, at intervals, until ctx ends; then it returns nil.
// One process that runs it is enough. It returns an error at once if [Config.Keys] has no Store.
func (m *Middleware) Run(ctx context.Context) error { return m.runner.Run(ctx) }

// Wrap returns a handler that carries out each request once per key, with next.
//
// The handler's context does not end when its client leaves: the work is finished, and its response
// is kept for the client's next attempt. The context ends at the deadline of the request's context
// and when a lease is lost (once.ErrLeaseLost). Once a response is streamed, the context also ends
// when the client leaves. The context carries the values of the request's context, and in the
// transaction form the transaction.
//
// The response is held back until it is recorded, and in the transaction form until the commit. In
// the transaction form the handler runs again if the transaction failed only because of other
// transactions (sqltx.Retryable), at or after the end of the handler, or if the handler called
// Retry. So the handler's work outside of the transaction may be done more than once. Each run gets
// the same request.
//
// In the lease form, a handler that flushes, hijacks, or writes more than Config.Keys.MaxResult
// streams its response. A streamed response is not kept. A repeated request is answered with 409,
// because the work is done. In the transaction form, flushing does nothing, hijacking is not
// supported, and a response that is too large is an error 500 that rolls back.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
}

// call is one request that is being handled.
type call struct {
	m    *Middleware
	w    http.ResponseWriter
	r    *http.Request
	next http.Handler
	body []byte
	key  once.Key
	fp   once.Fingerprint
	info Info

	entered bool      // the handler has run at least once
	silent  bool      // its latest run wrote no response
	rec     *recorder // of its latest run
	again   error     // the reason for which the handler asked to be run again
}

// panicked returns the error for the result of recover in a deferred function.
func panicked(v any) error { return fmt.Errorf("%w: %w", ErrPanicked, core.NewPanicError(v)) }

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	c := &call{m: m, w: w, r: r, next: next, info: Info{Method: r.Method, Route: m.route(r, next)}}
	start, finished := time.Now(), false
	defer func() {
		var v any // nil: the handler returned, or called runtime.Goexit
		if !finished {
			v = recover()
			c.info.Status, c.info.Policy, c.info.Err = 0, Release, errors.Join(c.info.Err, panicked(v))
		}
		c.info.Duration = time.Since(start)
		m.observe(c.r.Context(), c.info)
		if v != nil {
			panic(v) //nolint:forbidigo // the handler's panic goes on to the server
		}
	}()
	c.serve()
	finished = true
}

func (c *call) serve() {
	cfg := &c.m.cfg
	if !slices.Contains(cfg.Methods, c.r.Method) {
		c.bypass(c.r, nil)
		return
	}
	id, missing, err := headerKey(c.r.Header.Values(cfg.Header))
	switch {
	case missing && cfg.Optional:
		c.bypass(c.r, nil)
		return
	case missing:
		c.refuse(keyMissing, "Send the header "+cfg.Header+" with a value that is unique to this request, such as "+
			"a UUID.", nil)
		return
	case err != nil:
		c.refuse(keyInvalid, err.Error(), err)
		return
	}
	c.body, err = readBody(c.w, c.r, cfg.MaxBody)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		c.refuse(bodyTooLarge, "", err)
		return
	}
	if err != nil {
		c.refuse(bodyUnreadable, "", err)
		return
	}
	scope := c.scope()
	if scope == "" {
		c.refuse(scopeMissing, "", nil)
		return
	}
	compared := cfg.Canonical(c.r, c.body)
	if len(c.body) == 0 {
		form, err := content(c.r)
		if err != nil {
			c.refuse(bodyConsumed, "", err)
			return
		}
		if form != nil {
			compared = form
		}
	}
	c.key = makeKey(c.r.Method, c.info.Route, scope, id)
	c.fp = fingerprint(c.r, compared)
	c.info.Key = c.key
	c.m.register(c.r.Context(), c.key.Scope)
	if cfg.Transactor != nil {
		c.serveTx()
		return
	}
	if outer := callOf(c.r.Context()); outer != nil && outer.m == c.m && outer.key == c.key {
		c.refuse(failed, "", ErrNested)
		return
	}
	c.serveLease()
}

// scope calls [Config.Scope], which may read the body, for example as a form.
func (c *call) scope() string {
	r := c.r.WithContext(c.r.Context())
	r.Body = newBody(c.body)
	defer c.removeForm(r)
	return c.m.cfg.Scope(r)
}

// removeForm removes the files of a form that was parsed from a copy of the request. The server
// removes them only for the request that it made.
func (c *call) removeForm(r *http.Request) {
	if r.MultipartForm != nil && c.r.MultipartForm == nil {
		_ = r.MultipartForm.RemoveAll()
	}
}

// bypass runs the handler without protection.
func (c *call) bypass(r *http.Request, err error) {
	c.info.Answer, c.info.Err = bypassed, err
	c.next.ServeHTTP(c.w, r)
}

// refuse answers with a problem.
func (c *call) refuse(p problem, detail string, err error) {
	c.info.Answer, c.info.Status, c.info.Err = p.answer, p.status, err
	p.write(c.w, &c.m.cfg, detail, once.RetryAfter(err))
}

// answer writes a stored response.
func (c *call) answer(res once.Result) {
	s, err := decode(res)
	switch {
	case err != nil:
		c.refuse(failed, "", err)
	case s.NotKept:
		c.refuse(notKept, "The request was processed, and answered with a response that could not be kept.", nil)
	default:
		c.info.Answer, c.info.Status = replayed, s.Status
		s.replay(c.w, res.Data, c.m.cfg.ReplayedHeader)
	}
}

// send writes the response of the handler.
func (c *call) send(policy ResponsePolicy, err error) {
	c.info.Answer, c.info.Status, c.info.Policy, c.info.Err = executed, c.rec.status, policy, err
	c.rec.finish()
}

// refuseEarly answers if the handler has not run, for the reasons that both forms share.
func (c *call) refuseEarly(err error) {
	switch {
	case errors.Is(err, errGone):
		c.info.Answer, c.info.Err = clientGone, err // no client reads an answer
	case errors.Is(err, once.ErrFingerprintMismatch):
		c.refuse(keyReused, "Use a new key for a new request.", nil)
	case errors.Is(err, once.ErrInProgress):
		c.refuseInFlight(err)
	case errors.Is(err, once.ErrAbandoned):
		c.refuse(abandoned, "An earlier attempt ended without a result. Somebody has to find out how far it came.",
			nil)
	default:
		c.refuse(storeUnavailable, "The request was not processed. Send it again later.", err)
	}
}

// refuseInFlight answers that another request with the key is being carried out, with a Retry-After
// if err has one.
func (c *call) refuseInFlight(err error) {
	c.info.Answer, c.info.Status, c.info.Err = inFlight.answer, inFlight.status, nil
	inFlight.write(c.w, &c.m.cfg, "Send the same request again later to get its response.", once.RetryAfter(err))
}

// run runs the handler once. ctx carries the transaction, if there is one.
func (c *call) run(ctx context.Context, through func()) ResponsePolicy {
	c.entered, c.again = true, nil
	c.rec = newRecorder(c.w, c.m.cfg.Keys.MaxResult, through)
	// The handler may run again, so it gets a copy of the request, headers included.
	r := c.r.Clone(context.WithValue(ctx, callKey{}, c))
	r.Body = newBody(c.body)
	c.info.Answer = executed // set before the handler can panic
	defer c.removeForm(r)
	c.next.ServeHTTP(c.rec, r)
	c.silent = c.rec.status == 0 && !c.rec.hijacked
	switch {
	case c.rec.hijacked:
		c.rec.status = 0
		return Commit
	case c.silent:
		return Release
	}
	return c.m.cfg.Policy(c.rec.status)
}

const registerLimit = time.Second

// register registers this program for the endpoint with the store, before its first request with a
// key and twice a day.
func (m *Middleware) register(ctx context.Context, scope string) {
	if _, ok := core.TxFromContext(ctx); ok { // it may hold the only connection
		return
	}
	m.names.Register(ctx, scope, registerLimit,
		func(ctx context.Context, program string) ([]string, error) {
			return m.runner.Register(ctx, scope, program)
		},
		func(program, other string) {
			m.cfg.Logger.Warn("httpkey: another program keeps keys of the same endpoint in this table: a client that "+
				"sends one key to both gets the answer of the other; give one of them a table with another prefix",
				"scope", scope, "program", program, "other_program", other)
		})
}
