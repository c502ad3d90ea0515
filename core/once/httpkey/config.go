package httpkey

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/enum"
	"github.com/ormoutbox/ormoutbox/core/internal/problems"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Config selects the requests that need a key and the responses that are kept. Keys and Scope are
// required. The zero value of every other field means its documented default.
type Config struct {
	// Keys configures the keys: Store, Lease, TTL and the other fields of once.Config, with the
	// same defaults except for Wait. Wait is how long a request waits while another request with
	// its key is carried out, before it is answered with 409. Its default here is 2 s; negative: it
	// does not wait. MaxResult is the largest body of a response that is kept. StoreTimeout also
	// bounds how long a client waits for a database that does not answer, before it gets a 503.
	// Before the handler that is StoreTimeout plus Wait, after the handler StoreTimeout alone.
	Keys once.Config

	// Transactor selects the transaction form: each request is carried out in a transaction of the
	// Transactor. Keys.TxStore, or a Keys.Store that is one, must be in the same database. Nil: the
	// lease form.
	Transactor core.Transactor

	// Scope returns the tenant or the principal of a request: clients of different scopes never see
	// each other's responses. It is required, because otherwise a client could read another
	// client's response by guessing a key. If all clients are the same, return a constant. If it
	// returns "", the request is refused with 500: authenticate first. A text longer than 64 bytes
	// is kept as a hash. Scope may read the body.
	Scope func(r *http.Request) string

	// Methods lists the methods that need a key. Other methods pass. GET, HEAD, OPTIONS, TRACE and
	// CONNECT always pass. Default: POST and PATCH.
	Methods []string
	// Optional lets requests without a key pass, without protection. Default: they are refused with
	// 400.
	Optional bool
	// Header is the name of the header with the key. Default: Idempotency-Key.
	Header string
	// ReplayedHeader is the name of a header that is "true" on a repeated response. Default:
	// Idempotency-Replayed.
	ReplayedHeader string

	// Route names the endpoint of r. It is a part of the key, with the method, so one client key
	// used at two endpoints is two keys. The names of its wildcards, such as {id} or :id, are not.
	// Default: r.Pattern. Around an http.ServeMux itself it is the pattern that matches, and around
	// anything else, where no mux has set r.Pattern, it is the path.
	Route func(r *http.Request) string
	// MaxBody is the largest body of a request, in bytes. The body is read into memory for
	// comparison. Default: 1 MiB.
	MaxBody int64
	// Canonical returns the form of a body that is compared with an earlier request's. It must not
	// change body. Default: the body itself, or the parts of a multipart body, whose boundary
	// differs each time that a client encodes it. [CanonicalJSON] ignores the order of members and
	// white space too.
	Canonical func(r *http.Request, body []byte) []byte

	// Policy chooses, by the status of a response, whether the response is kept and the work
	// commits. Default: [DefaultPolicy].
	Policy func(status int) ResponsePolicy
	// KeepHeaders are response headers to keep in addition to Content-Type, Content-Encoding,
	// Content-Language, Content-Location, Content-Disposition, Content-Range, Allow, Cache-Control,
	// ETag, Last-Modified, Link, Location, Retry-After, Vary and X-Content-Type-Options. Only
	// headers that the handler has set or added are kept, not those of outer middleware. A name may
	// end in *: "Access-Control-*" keeps all headers of CORS, and "X-*" keeps X-Request-Id. All
	// other headers are sent only with the first response. Set-Cookie, credentials and headers of
	// the connection are never kept.
	KeepHeaders []string

	// RetryAfter is the value of the Retry-After header with 409 and 503, in whole seconds, rounded
	// up. The default with 409 in the lease form is the rest of the lease of the request in flight.
	// A living holder extends that lease, and a dead one does not. The default in all other cases
	// is 1 s.
	RetryAfter time.Duration
	// FailOpen runs the handler without any protection if the store cannot be asked. Default: 503,
	// because the request may have been carried out before. It does nothing in the transaction
	// form.
	FailOpen bool

	// ProblemType and ProblemDocs are prefixes of the name of a problem: ProblemType in the member
	// type of a problem+json body, and ProblemDocs in the Link to its description. Default: pages
	// in the repository of this project.
	ProblemType string
	ProblemDocs string

	// Logger gets errors that are not the client's fault: of the store, the transaction, the scope,
	// and panics. Default: core.DefaultLogger, which writes warnings and errors to slog.Default().
	// To silence it: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
	// Observer is called for each answered request, by its goroutine, after the response was
	// written. It must be fast and must not panic. Keys.Observer reports more about the keys.
	// Default: none.
	Observer func(info Info)
}

// Defaults of Config.
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
		"Cache-Control", "Etag", "Last-Modified", "Allow", "Content-Range",
		"Link", "Location", "Retry-After", "Vary", "X-Content-Type-Options",
	}
	// neverHeaders hold secrets of one response, or belong to one connection or message.
	neverHeaders = []string{
		"Set-Cookie", "Set-Cookie2", "Authorization", "Proxy-Authorization", "Authentication-Info",
		"Proxy-Authentication-Info", "Www-Authenticate", "Proxy-Authenticate", "Connection", "Proxy-Connection",
		"Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Date",
	}
)

// withDefaults returns c with every zero field set to its default.
func (c Config) withDefaults() Config {
	c.Logger = cmp.Or(c.Logger, core.DefaultLogger()).With("component", "httpkey")
	c.Keys.Wait = cmp.Or(c.Keys.Wait, defaultWait)
	c.Keys.Wait = max(c.Keys.Wait, 0)
	c.Keys.MaxResult = cmp.Or(c.Keys.MaxResult, 1<<20)
	c.Keys.Lease = cmp.Or(c.Keys.Lease, 30*time.Second) // the same defaults as in once.Config
	c.Keys.StoreTimeout = cmp.Or(c.Keys.StoreTimeout, min(5*time.Second, c.Keys.Lease/2))
	if len(c.Methods) == 0 {
		c.Methods = defaultMethods
	}
	c.Header = cmp.Or(c.Header, "Idempotency-Key")
	c.ReplayedHeader = cmp.Or(c.ReplayedHeader, "Idempotency-Replayed")
	c.MaxBody = cmp.Or(c.MaxBody, 1<<20)
	if c.Canonical == nil {
		c.Canonical = canonicalForm
	}
	if c.Policy == nil {
		c.Policy = DefaultPolicy
	}
	keep := slices.Clone(defaultHeaders)
	for _, h := range c.KeepHeaders {
		keep = append(keep, textproto.CanonicalMIMEHeaderKey(h))
	}
	c.KeepHeaders = keep
	c.ProblemType = cmp.Or(c.ProblemType, defaultProblemType)
	c.ProblemDocs = cmp.Or(c.ProblemDocs, defaultProblemDocs)
	return c
}

// Validate reports every problem of c at once. New calls it.
func (c Config) Validate() error {
	methods, headers := c.Methods, c.KeepHeaders
	c = c.withDefaults()
	bad := problems.List{Of: "httpkey: config: "}
	keys := c.Keys.Validate()
	bad.If(keys != nil, "Keys: %w", keys)
	_, isTxStore := c.Keys.Store.(once.TxStore)
	bad.If(c.Transactor != nil && c.Keys.TxStore == nil && !isTxStore,
		"Transactor needs Keys.TxStore, or a Keys.Store that is one")
	bad.If(c.Transactor == nil && c.Keys.Store == nil,
		"Keys.Store is missing, which the form without Transactor needs")
	if c.Transactor != nil {
		err := core.CheckTransactor(c.Transactor)
		bad.If(err != nil, "Transactor: %w", err)
	}
	bad.If(c.Scope == nil, "Scope is missing: return who asks, or a constant where everybody is the same")
	for _, m := range methods {
		bad.If(slices.Contains(safeMethods, m) || m == "" || m != strings.ToUpper(m),
			"Methods: %q cannot need a key", m)
	}
	for _, h := range []string{c.Header, c.ReplayedHeader} {
		bad.If(h == "" || strings.ContainsFunc(h, notToken), "%q is not the name of a header", h)
	}
	for _, h := range headers {
		name := strings.TrimSuffix(h, "*")
		bad.If(name == "" || strings.ContainsFunc(name, notToken) || strings.Contains(name, "*"),
			"KeepHeaders: %q is not the name of a header, nor the beginning of one and *", h)
	}
	for _, h := range headers {
		bad.If(slices.Contains(neverHeaders, textproto.CanonicalMIMEHeaderKey(h)),
			"KeepHeaders: %s must not be kept: it belongs to one response", h)
	}
	bad.If(c.MaxBody < 0, "MaxBody %d is negative", c.MaxBody)
	bad.If(c.RetryAfter < 0, "RetryAfter %s is negative", c.RetryAfter)
	bad.If(c.FailOpen && c.Transactor != nil,
		"FailOpen is not possible with a Transactor: without its database the handler cannot work either")
	foreign := func(r rune) bool { return r <= ' ' || r > '~' || r == '<' || r == '>' }
	for _, text := range []string{c.ProblemType, c.ProblemDocs} {
		bad.If(strings.ContainsFunc(text, foreign), "%q is not a URI", text)
	}
	return bad.Err()
}

func notToken(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

// ResponsePolicy decides whether a response is kept, and whether the work of its handler commits.
type ResponsePolicy uint8

// Values of ResponsePolicy.
const (
	// Release: the response is not kept, the transaction is rolled back, and the key is free. The
	// next request with the key runs the handler again.
	Release ResponsePolicy = iota
	// Keep: the response is kept, but the transaction is rolled back. Use it when the handler
	// finds, after some writes, that the request is wrong. In the lease form it is the same as
	// Commit.
	Keep
	// Commit: the response is kept, and the transaction commits.
	Commit
)

var responsePolicyNames = []string{Release: "release", Keep: "keep", Commit: "commit"}

// String returns release, keep or commit.
func (p ResponsePolicy) String() string { return enum.Name(responsePolicyNames, p, "policy") }

// DefaultPolicy commits 2xx and 3xx, keeps 4xx, and releases the rest: 5xx, and the 4xx whose
// answer may change when the request is sent again (401, 403, 408, 409, 425, 429).
func DefaultPolicy(status int) ResponsePolicy {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusConflict,
		http.StatusTooEarly, http.StatusTooManyRequests:
		return Release
	}
	switch status / 100 {
	case 2, 3:
		return Commit
	case 4:
		return Keep
	}
	return Release
}
