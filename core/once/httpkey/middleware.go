package httpkey

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Errors that Info.Err may wrap, beside those of package once and of the database.
var (
	// ErrPanicked: the handler panicked, or called runtime.Goexit. The key is free, and the panic
	// goes on. The error also wraps a *core.PanicError, which has the value and the stack.
	ErrPanicked = errors.New("httpkey: the handler did not return")
	// ErrNested: the context of a request already carries a transaction, so that the middleware
	// could not answer after its commit; or a handler is wrapped twice, so that the inner wrap
	// would wait for the key of the outer one.
	ErrNested = errors.New("httpkey: the request is in a transaction, or under its key, already")
)

// Middleware makes handlers idempotent. Make one with New; it is safe for use by several
// goroutines, and may wrap any number of handlers.
type Middleware struct {
	cfg    Config
	runner *once.Runner
	gate   gate
}

// New returns a Middleware, or every problem of cfg at once.
func New(cfg Config) (*Middleware, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	keys := cfg.Keys
	if keys.Wait == 0 { // not at all, which is not the default of package once
		keys.Wait = -1
	}
	runner, err := once.New(keys)
	if err != nil {
		return nil, err
	}
	return &Middleware{cfg: cfg, runner: runner}, nil
}

// Run deletes keys whose time to live is over, now and then, until ctx ends; then it returns nil.
// One process that does so is enough. It returns an error at once when Config.Keys has no Store.
func (m *Middleware) Run(ctx context.Context) error { return m.runner.Run(ctx) }

// Wrap returns a handler that carries out each request once per key, by next.
//
// The handler's context does not end when its client leaves: the work is finished, and its response
// kept for the client's next attempt. It still ends at the deadline of the request's context, when
// a lease is lost (once.ErrLeaseLost), and, once a response is streamed, with its client. It
// carries the values of the request's context, and in the transaction form the transaction.
//
// The response is held back until it is recorded, and in the transaction form until the commit. In
// the transaction form the handler runs again when the transaction failed only because of others
// (core.Retryable) at or after its end, or when the handler said so with Retry; so what it does
// outside of the transaction may be done more than once. Each run begins with the same request.
//
// In the lease form a handler that flushes or hijacks, or writes more than Config.Keys.MaxResult,
// streams: its response is not kept, and a repetition is answered with 409, because the work is
// done. In the transaction form flushing does nothing, hijacking is not supported, and a response
// that is too large is an error 500 that rolls back.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
}

// call is one request on its way.
type call struct {
	m    *Middleware
	w    http.ResponseWriter
	r    *http.Request
	next http.Handler
	body []byte
	key  once.Key
	fp   once.Fingerprint
	info Info

	entered bool      // the handler has run, at least once
	rec     *recorder // of its latest run
	again   error     // why the handler asks to be run again
}

// panicked is the error for what recover returned in a deferred function.
func panicked(v any) error { return fmt.Errorf("%w: %w", ErrPanicked, core.NewPanicError(v)) }

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	c := &call{m: m, w: w, r: r, next: next, info: Info{Method: r.Method, Route: m.cfg.Route(r)}}
	if m.cfg.Logger != nil || m.cfg.Observer != nil && m.cfg.Observer.Handled != nil {
		start, finished := time.Now(), false
		defer func() {
			var v any // nil: it returned, or called runtime.Goexit
			if !finished {
				v = recover()
				c.info.Status, c.info.Fate, c.info.Err = 0, Release, errors.Join(c.info.Err, panicked(v))
			}
			c.info.Duration = time.Since(start)
			m.told(c.r.Context(), c.info)
			if v != nil {
				panic(v) //nolint:forbidigo // to the server, with the stack that it had
			}
		}()
		c.serve()
		finished = true
		return
	}
	c.serve()
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

// scope asks Config.Scope, which may read the body, as a form say.
func (c *call) scope() string {
	r := c.r.WithContext(c.r.Context())
	r.Body = newBody(c.body)
	defer c.removeForm(r)
	return c.m.cfg.Scope(r)
}

// removeForm removes the files of a form that was parsed from a copy of the request: the server
// does so only for the request that it made.
func (c *call) removeForm(r *http.Request) {
	if r.MultipartForm != nil && c.r.MultipartForm == nil {
		_ = r.MultipartForm.RemoveAll()
	}
}

// bypass runs the handler without protection.
func (c *call) bypass(r *http.Request, err error) {
	c.info.Outcome, c.info.Err = Bypassed, err
	c.next.ServeHTTP(c.w, r)
}

// refuse answers with a problem.
func (c *call) refuse(p problem, detail string, err error) {
	c.info.Outcome, c.info.Status, c.info.Err = p.outcome, p.status, err
	p.write(c.w, &c.m.cfg, detail, once.RetryAfter(err))
}

// answer writes what is stored.
func (c *call) answer(res once.Result) {
	s, err := decode(res)
	switch {
	case err != nil:
		c.refuse(failed, "", err)
	case s.NotKept:
		c.refuse(notKept, "The request was processed, and answered with a response that could not be kept.", nil)
	default:
		c.info.Outcome, c.info.Status = Replayed, s.Status
		s.replay(c.w, res.Data, c.m.cfg.ReplayedHeader)
	}
}

// send writes the response of the handler.
func (c *call) send(fate Fate, err error) {
	c.info.Outcome, c.info.Status, c.info.Fate, c.info.Err = Executed, c.rec.status, fate, err
	c.rec.finish()
}

// refuseEarly answers where the handler has not run, for the reasons that both forms have.
func (c *call) refuseEarly(err error) {
	switch {
	case errors.Is(err, errGone):
		c.info.Outcome, c.info.Err = ClientGone, err // nobody reads an answer
	case errors.Is(err, once.ErrFingerprintMismatch):
		c.refuse(keyReused, "Use a new key for a new request.", nil)
	case errors.Is(err, once.ErrInProgress):
		c.refuseInFlight(err)
	case errors.Is(err, once.ErrAbandoned):
		c.refuse(outcomeUnknown, "An earlier attempt ended without a result. Somebody has to find out how far it came.",
			nil)
	default:
		c.refuse(storeUnavailable, "The request was not processed. Send it again later.", err)
	}
}

// refuseInFlight answers that somebody else carries the request out. err may say for how long.
func (c *call) refuseInFlight(err error) {
	c.info.Outcome, c.info.Status, c.info.Err = inFlight.outcome, inFlight.status, nil
	inFlight.write(c.w, &c.m.cfg, "Send the same request again later to get its response.", once.RetryAfter(err))
}

// run runs the handler once. ctx carries the transaction, if there is one.
func (c *call) run(ctx context.Context, through func()) Fate {
	c.entered, c.again = true, nil
	c.rec = newRecorder(c.w, c.m.cfg.Keys.MaxResult, through)
	// A copy, headers included, because the handler may run again.
	r := c.r.Clone(context.WithValue(ctx, callKey{}, c))
	r.Body = newBody(c.body)
	c.info.Outcome = Executed // should it panic
	defer c.removeForm(r)
	c.next.ServeHTTP(c.rec, r)
	if c.rec.hijacked {
		c.rec.status = 0
		return Commit
	}
	c.rec.WriteHeader(http.StatusOK)
	return c.m.cfg.Fate(c.rec.status)
}
