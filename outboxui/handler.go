package outboxui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// Handler is the page. Create it with New. It is safe for use by several goroutines.
type Handler struct {
	cfg    Config
	boxes  []*box
	cross  *http.CrossOriginProtection
	ctx    context.Context //nolint:containedctx // of the plans that this handler runs
	cancel context.CancelFunc
	runs   sync.WaitGroup
}

// box is an outbox of the page.
type box struct {
	Outbox
	summary  // for the head of every page
	releases releases
}

// New returns the page of the outboxes. It uses no database. Without Config.Authorize the page
// refuses every request, and New logs a warning.
func New(cfg Config) (*Handler, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Authorize == nil {
		cfg.Logger.Warn("outboxui: Config.Authorize is nil: the page refuses every request")
	}
	h := &Handler{cfg: cfg, cross: http.NewCrossOriginProtection()}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	for _, o := range cfg.Outboxes {
		h.boxes = append(h.boxes, &box{Outbox: o})
	}
	return h, nil
}

// Close pauses the plans that this handler runs, and waits until they are paused. Any process can
// go on with them.
func (h *Handler) Close() error {
	h.cancel()
	h.runs.Wait()
	return nil
}

// policy lets a browser load the stylesheet and the script of the page, and send its forms back.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'"

// protect sets the headers of every answer.
func protect(header http.Header) {
	header.Set("Content-Security-Policy", policy)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("X-Robots-Tag", "noindex")
}

const (
	maxForm = 8 << 20 // bytes of a form: an edited payload is the largest
	maxName = 255     // bytes of the name of a person, as in the audit
)

// ServeHTTP answers a request for a page, or for a change of something.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	actor, rights, err := h.authorize(r)
	if err != nil {
		h.cfg.Logger.WarnContext(r.Context(), "outboxui: a request is refused", "path", ops.Printable(r.URL.Path),
			"error", err)
		http.Error(w, "You may not see this page.", http.StatusForbidden)
		return
	}
	if err := h.cross.Check(r); err != nil {
		h.cfg.Logger.WarnContext(r.Context(), "outboxui: a request of another site is refused",
			"path", ops.Printable(r.URL.Path), "error", err)
		http.Error(w, "The request came from another site.", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	h.route(w, r, actor, rights)
}

var (
	errNoAuthorize = errors.New("Config.Authorize is nil")
	errNobody      = errors.New("Config.Authorize returned no name, or a name that the audit cannot have")
	errNoRight     = errors.New("the person may not see the page")
)

func (h *Handler) authorize(r *http.Request) (actor string, rights Rights, err error) {
	if h.cfg.Authorize == nil {
		return "", 0, errNoAuthorize
	}
	actor, rights, err = h.cfg.Authorize(r)
	switch {
	case err != nil:
		return "", 0, err
	case actor == "" || len(actor) > maxName || !utf8.ValidString(actor):
		return "", 0, errNobody
	case !rights.Has(See):
		return "", 0, errNoRight
	}
	return actor, rights, nil
}

// visit is one request.
type visit struct {
	*http.Request
	w      http.ResponseWriter
	ui     *Handler
	box    *box
	actor  string
	rights Rights
	root   string // the relative address of the page itself: "./" or "../" and so on
	base   string // the outbox's
	form   url.Values
}

func (v *visit) ctx() context.Context { return v.Context() }
func (v *visit) api() *ops.API        { return v.box.API }

// page shows a part of an outbox.
type page func(v *visit, id string) (*frame, error)

// pages are the pages with a list, by their address. Those with an id are in single.
var (
	pages = map[string]page{
		"": overview, "events": events, "groups": groups, "keys": keys, "consumers": consumers,
		"effects": effects, "httpkeys": httpKeys, "relays": relays, "plans": plans,
		"audit": audit, "doctor": doctor, "confirm": confirm,
	}
	single  = map[string]page{"events": event, "groups": group, "plans": plan}
	changes = map[string]page{"confirm": change, "events": reveal}
)

// parts are the parts of an address. An id may have a slash, which is escaped there.
func parts(u *url.URL) []string {
	at := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	for i := range at {
		if part, err := url.PathUnescape(at[i]); err == nil {
			at[i] = part
		}
	}
	return at
}

func (h *Handler) route(w http.ResponseWriter, r *http.Request, actor string, rights Rights) {
	at := parts(r.URL)
	v := &visit{Request: r, w: w, ui: h, actor: actor, rights: rights, root: "./", box: h.boxes[0]}
	if len(at) > 1 {
		v.root = strings.Repeat("../", len(at)-1)
	}
	v.base = v.root + v.box.Name + "/"
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, "The page answers GET and POST.", http.StatusMethodNotAllowed)
		return
	}
	switch {
	case r.URL.Path == "": // the prefix without its slash
		whole, _, _ := strings.Cut(r.RequestURI, "?")
		v.redirect(path.Base(whole) + "/")
		return
	case at[0] == "":
		v.redirect(v.base)
		return
	case at[0] == assetsPath && len(at) == 2:
		v.asset(at[1])
		return
	}
	i := slices.IndexFunc(h.boxes, func(b *box) bool { return b.Name == at[0] })
	if i < 0 {
		v.missing("outbox")
		return
	}
	v.box = h.boxes[i]
	v.base = v.root + v.box.Name + "/"
	switch {
	case len(at) == 1:
		v.redirect(v.base)
	case len(at) == 2 && at[1] == "find":
		id := strings.TrimSpace(r.URL.Query().Get("id"))
		if id == "" {
			v.redirect(v.base + "events")
			return
		}
		v.redirect(v.base + "events/" + url.PathEscape(id))
	case len(at) > 3 || len(at) == 3 && at[2] == "":
		v.missing("page")
	default:
		id := ""
		if len(at) == 3 {
			id = at[2]
		}
		v.serve(at[1], id)
	}
}

func (v *visit) serve(name, id string) {
	show := pages[name]
	switch {
	case v.Method == http.MethodPost:
		show = changes[name]
		if show == nil || (name == "events") != (id != "") {
			v.w.Header().Set("Allow", "GET, HEAD")
			http.Error(v.w, "This page changes nothing.", http.StatusMethodNotAllowed)
			return
		}
	case id != "":
		show = single[name]
	}
	if show == nil {
		v.missing("page")
		return
	}
	if err := v.ParseForm(); err != nil {
		v.failed(refusal{http.StatusBadRequest, "The form cannot be read, or is longer than 8 MiB."})
		return
	}
	v.form = v.Form
	if v.Method == http.MethodPost { // a change takes nothing from the address
		v.form = v.PostForm
	}
	ctx, cancel := context.WithTimeout(v.Context(), 30*time.Second)
	defer cancel()
	v.Request = v.WithContext(ctx)
	f, err := show(v, id)
	if err != nil {
		v.failed(err)
		return
	}
	if f != nil { // else it was a redirect
		v.render(f)
	}
}

// redirect answers with another address of the page. It is relative, because the page does not know
// its prefix.
func (v *visit) redirect(to string) {
	v.w.Header().Set("Location", to)
	v.w.WriteHeader(http.StatusSeeOther)
}

// refusal is an answer that a person gets in place of a page.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return r.text }

// may refuses a person who lacks a right.
func (v *visit) may(want Rights) error {
	if v.rights.Has(want) {
		return nil
	}
	return refusal{http.StatusForbidden, v.why(want)}
}

// why is the reason why a person lacks a right. Empty: the person may.
func (v *visit) why(want Rights) string {
	switch {
	case v.rights.Has(want):
		return ""
	case want == Reveal:
		return "You may not see payloads and headers: you have the right to " + v.rights.String() + "."
	}
	return "You may not change anything here: you have the right to " + v.rights.String() + "."
}

func (v *visit) missing(what string) {
	v.failed(refusal{http.StatusNotFound, "There is no such " + what + "."})
}

// failed shows an error.
func (v *visit) failed(err error) {
	var r refusal
	next := "Read the page again, or go back."
	switch {
	case errors.As(err, &r):
	case errors.Is(err, ops.ErrNotFound), errors.Is(err, ops.ErrNoPlan), errors.Is(err, ops.ErrNoGroup):
		r = refusal{http.StatusNotFound, sentence(err)}
	case errors.Is(err, core.ErrInvalidRequest), errors.Is(err, inbox.ErrInvalidRequest),
		errors.Is(err, once.ErrInvalidRequest):
		r = refusal{http.StatusBadRequest, sentence(err)}
	case errors.Is(err, core.ErrNoTables):
		r = refusal{http.StatusInternalServerError, "The tables of the outbox are missing, or of another version."}
		next = "`outbox migrate status` says what is missing."
	case errors.Is(err, context.DeadlineExceeded):
		r = refusal{http.StatusGatewayTimeout, "The database has not answered within 30 seconds."}
	default:
		r = refusal{http.StatusInternalServerError, "The database cannot be read now."}
		next = "The log of the program that serves this page has the error. Nothing was changed that is not shown."
	}
	if r.status >= http.StatusInternalServerError {
		v.ui.cfg.Logger.ErrorContext(v.ctx(), "outboxui: a page failed", "path", ops.Printable(v.URL.Path), "error",
			err)
	}
	f := v.frame("", r.text)
	f.Status, f.Template = r.status, "failed"
	f.Verdict = verdict{Kind: "warn", Heading: r.text, Next: next}
	f.Acts(act{Label: "To the overview", Href: v.base})
	v.render(f)
}
