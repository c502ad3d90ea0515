package httpkey

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Config says which requests need a key and what is kept of their responses. Keys and Scope are
// required; the rest of the zero value is documented defaults.
type Config struct {
	// Keys says how keys are kept: Store, Lease, TTL and so on, with the defaults of once.Config,
	// but for Wait: how long a request waits for another one with its key that is being carried
	// out, before it is answered with 409. Default here: 2 s; negative: not at all. MaxResult is
	// the largest body of a response that is kept. StoreTimeout also bounds how long a client waits
	// for a database that does not answer, before it gets a 503: that and Wait before the handler,
	// that alone after it.
	Keys once.Config

	// Transactor selects the transaction form: each request that is carried out runs in a
	// transaction of it. Keys.TxStore, or a Keys.Store that is one, has to be in the same database.
	// Nil: the lease form.
	Transactor core.Transactor

	// Scope says who asks: the tenant, the principal, whatever must never see the response of
	// another. Required, because without it one client could read the response of another by
	// guessing a key. Where everybody is the same, return a constant. When it returns "", the
	// request is refused with 500: authenticate first. Texts longer than 64 bytes are kept as a
	// hash. It may read the body.
	Scope func(r *http.Request) string

	// Methods that need a key; others pass. GET, HEAD, OPTIONS, TRACE and CONNECT always do.
	// Default: POST and PATCH.
	Methods []string
	// Optional lets requests without a key pass, unprotected. Default: they are refused with 400.
	Optional bool
	// Header that carries the key. Default: Idempotency-Key.
	Header string
	// ReplayedHeader is set to "true" on a response that is not the first. Default:
	// Idempotency-Replayed.
	ReplayedHeader string

	// Route names the endpoint of r: it is a part of the key, with the method, so that one key used
	// at two endpoints is two keys. Default: r.Pattern, or the path where the middleware is outside
	// of the mux and cannot know the pattern.
	Route func(r *http.Request) string
	// MaxBody is the largest body of a request, in bytes: it is read into memory to compare it.
	// Default: 1 MiB.
	MaxBody int64
	// Canonical returns the form of a body in which it is compared with that of an earlier request.
	// It must not change body. Default: the bytes as they are. CanonicalJSON forgives another order
	// of members and other blanks.
	Canonical func(r *http.Request, body []byte) []byte

	// Fate says what becomes of a response, by its status. Default: DefaultFate.
	Fate func(status int) Fate
	// KeepHeaders are response headers to keep in addition to Content-Type, Content-Encoding,
	// Content-Language, Content-Location, Content-Disposition, Cache-Control, ETag, Last-Modified,
	// Link, Location, Retry-After, Vary and X-Content-Type-Options. A name may end in *:
	// "Access-Control-*" keeps all of CORS, "X-*" request ids and the like. All others are of the
	// first response only. Set-Cookie, credentials and headers of the connection are never kept.
	KeepHeaders []string

	// RetryAfter is what the header of that name says with 409 and 503, in whole seconds, rounded
	// up. Default: for 409 in the lease form the rest of the lease of the request in flight, which
	// a living holder extends and a dead one does not; else 1 s.
	RetryAfter time.Duration
	// FailOpen runs the handler without any protection when the store cannot be asked. Default:
	// 503, because the request may have been carried out before. Not in the transaction form.
	FailOpen bool

	// ProblemType and ProblemDocs are what the names of problems are appended to: in the member
	// type of a problem+json body, and in the Link to its description. Default: places in the
	// repository of this project.
	ProblemType string
	ProblemDocs string

	// Logger is told of requests that failed for reasons of this side: the store, the transaction,
	// the scope, a panic. Default: core.DefaultLogger, warnings and errors to slog.Default(). To
	// silence it: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
	// Observer is told how each request ended. Default: none.
	Observer *Observer
}

// Defaults that are not plain.
const (
	defaultWait        = 2 * time.Second
	defaultRetryAfter  = time.Second
	defaultProblemType = "https://github.com/ormoutbox/ormoutbox/problems/"
	defaultProblemDocs = "https://github.com/ormoutbox/ormoutbox/blob/main/docs/http-idempotency.md#"
)

var (
	defaultMethods = []string{http.MethodPost, http.MethodPatch}
	safeMethods    = []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect}

	defaultHeaders = []string{
		"Content-Type", "Content-Encoding", "Content-Language", "Content-Location", "Content-Disposition",
		"Cache-Control", "Etag", "Last-Modified", "Link", "Location", "Retry-After", "Vary", "X-Content-Type-Options",
	}
	// Secrets of one response, and headers of one connection or message.
	neverHeaders = []string{
		"Set-Cookie", "Set-Cookie2", "Authorization", "Proxy-Authorization", "Authentication-Info",
		"Proxy-Authentication-Info", "Www-Authenticate", "Proxy-Authenticate", "Connection", "Proxy-Connection",
		"Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Date",
	}
)

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// withDefaults returns c with every zero field set to its default.
func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = core.DefaultLogger()
	}
	def(&c.Keys.Wait, defaultWait)
	c.Keys.Wait = max(c.Keys.Wait, 0)
	def(&c.Keys.MaxResult, 1<<20)
	def(&c.Keys.Lease, 30*time.Second) // these two as once.Config has them
	def(&c.Keys.StoreTimeout, min(5*time.Second, c.Keys.Lease/2))
	if len(c.Methods) == 0 {
		c.Methods = defaultMethods
	}
	def(&c.Header, "Idempotency-Key")
	def(&c.ReplayedHeader, "Idempotency-Replayed")
	if c.Route == nil {
		c.Route = route
	}
	def(&c.MaxBody, 1<<20)
	if c.Canonical == nil {
		c.Canonical = func(_ *http.Request, body []byte) []byte { return body }
	}
	if c.Fate == nil {
		c.Fate = DefaultFate
	}
	keep := slices.Clone(defaultHeaders)
	for _, h := range c.KeepHeaders {
		keep = append(keep, textproto.CanonicalMIMEHeaderKey(h))
	}
	c.KeepHeaders = keep
	def(&c.ProblemType, defaultProblemType)
	def(&c.ProblemDocs, defaultProblemDocs)
	return c
}

// Validate reports every problem of c at once. New calls it.
func (c Config) Validate() error {
	methods, headers := c.Methods, c.KeepHeaders
	c = c.withDefaults()
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("httpkey: config: "+format, args...))
	}
	if err := c.Keys.Validate(); err != nil {
		bad("Keys: %w", err)
	}
	_, isTxStore := c.Keys.Store.(once.TxStore)
	switch {
	case c.Transactor != nil && c.Keys.TxStore == nil && !isTxStore:
		bad("Transactor needs Keys.TxStore, or a Keys.Store that is one")
	case c.Transactor == nil && c.Keys.Store == nil:
		bad("Keys.Store is missing, which the form without Transactor needs")
	}
	if c.Transactor != nil {
		if err := core.CheckTransactor(c.Transactor); err != nil {
			bad("Transactor: %w", err)
		}
	}
	if c.Scope == nil {
		bad("Scope is missing: return who asks, or a constant where everybody is the same")
	}
	for _, m := range methods {
		if slices.Contains(safeMethods, m) || m == "" || m != strings.ToUpper(m) {
			bad("Methods: %q cannot need a key", m)
		}
	}
	for _, h := range []string{c.Header, c.ReplayedHeader} {
		if h == "" || strings.ContainsFunc(h, notToken) {
			bad("%q is not the name of a header", h)
		}
	}
	for _, h := range headers {
		if name := strings.TrimSuffix(h, "*"); name == "" || strings.ContainsFunc(name, notToken) ||
			strings.Contains(name, "*") {
			bad("KeepHeaders: %q is not the name of a header, nor the beginning of one and *", h)
		}
	}
	for _, h := range headers {
		if slices.Contains(neverHeaders, textproto.CanonicalMIMEHeaderKey(h)) {
			bad("KeepHeaders: %s must not be kept: it belongs to one response", h)
		}
	}
	if c.MaxBody < 0 {
		bad("MaxBody %d is negative", c.MaxBody)
	}
	if c.RetryAfter < 0 {
		bad("RetryAfter %s is negative", c.RetryAfter)
	}
	if c.FailOpen && c.Transactor != nil {
		bad("FailOpen is not possible with a Transactor: without its database the handler cannot work either")
	}
	for _, text := range []string{c.ProblemType, c.ProblemDocs} {
		if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '<' || r == '>' }) {
			bad("%q is not a URI", text)
		}
	}
	return errors.Join(problems...)
}

func notToken(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}
