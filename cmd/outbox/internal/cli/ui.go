package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/outboxui"
)

// ui has the flags of `outbox ui`.
type ui struct {
	who
	listen      string
	anyAddress  bool
	environment outboxui.Environment
	name        string
	rights      []string
	traceURL    string
	skipDead    bool
	queues      map[string]string
}

func (a *app) uiCommand() *cobra.Command {
	var u ui
	c := &cobra.Command{
		Use:   "ui",
		Short: "Serve the operators' page on this machine",
		Long: `ui serves the operators' page until Ctrl-C, and prints its address with a token. Whoever has the token
may do what --rights allows, in the name of --actor. The token is sent in clear text: use --any-address
only behind a proxy with TLS. A service mounts the page with module outboxui and its own sign-in.`,
		Example: "  outbox ui --environment staging --colour teal --rights see",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := u.find(); err != nil {
				return err
			}
			return a.ui(c, u)
		},
	}
	f := c.Flags()
	f.StringVar(&u.listen, "listen", "127.0.0.1:8080", "address of the page; port 0: any free port")
	f.BoolVar(&u.anyAddress, "any-address", false, "listen beyond loopback")
	f.StringVar(&u.environment.Name, "environment", "", "name of the environment, such as production")
	f.StringVar(&u.environment.Colour, "colour", "slate", "slate, violet, pink, teal or brown")
	f.StringVar(&u.name, "name", "outbox", "name of the outbox")
	f.StringSliceVar(&u.rights, "rights", []string{"see", "reveal", "act"}, "what the page may do: see, reveal, act")
	f.StringVar(&u.traceURL, "trace-url", "", "address of a trace, with {trace_id}")
	f.BoolVar(&u.skipDead, "skip-dead", false, "the relays have DeadPolicy SkipDead")
	f.StringToStringVar(&u.queues, "poison-queue", nil,
		"CONSUMER=QUEUE, as in outbox inbox release --from; repeatable")
	u.actorFlag(c)
	complete(c, "colour", "slate", "violet", "pink", "teal", "brown")
	complete(c, "rights", "see", "reveal", "act")
	return c
}

// ui serves the page until Ctrl-C.
func (a *app) ui(c *cobra.Command, u ui) error {
	rights, err := u.may()
	if err != nil {
		return err
	}
	queues, err := a.poisonQueues(u.queues)
	if err != nil {
		return err
	}
	listener, err := u.listens(c.Context())
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	opening, cancel := a.limited(c)
	defer cancel()
	db, err := a.open(opening, false, false)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	policy := core.BlockKey
	if u.skipDead {
		policy = core.SkipDead
	}
	s, err := a.outbox(db, policy)
	if err != nil {
		return err
	}
	if _, err := s.ob.Backlog(opening); err != nil {
		return db.withTables(opening, kinds[0], a.schema, a.prefix, err)
	}
	var l limits
	a.limitFlags(pflag.NewFlagSet("doctor", pflag.ContinueOnError), &l)
	l.to = a.Getenv("OUTBOX_TO")
	page, err := outboxui.New(outboxui.Config{
		Outboxes: []outboxui.Outbox{{
			Name: u.name, API: s.api, Database: a.described(db), PoisonQueues: queues,
			Doctor: func(ctx context.Context) ([]outboxui.Finding, error) {
				return converted(a.examination(s, l).examine(ctx),
					func(f finding) outboxui.Finding { return outboxui.Finding(f) }), nil
			},
		}},
		Environment: u.environment, TraceURL: u.traceURL, Logger: slog.New(slog.NewTextHandler(a.Err, nil)),
		Authorize: func(*http.Request) (string, outboxui.Rights, error) { return u.actor, rights, nil },
	})
	if err != nil {
		return usage("%w", err)
	}
	defer func() { _ = page.Close() }()
	return a.serveUI(c.Context(), listener, page)
}

// described names the database of the page, with its schema and the prefix of the tables.
func (a *app) described(db *database) string {
	text := db.name
	if a.schema != "" {
		text += ", schema " + a.schema
	}
	if a.prefix != "" {
		text += ", prefix " + a.prefix
	}
	return text
}

// may reads --rights.
func (u *ui) may() (rights outboxui.Rights, err error) {
	for _, name := range u.rights {
		switch name {
		case "see":
			rights |= outboxui.See
		case "reveal":
			rights |= outboxui.See | outboxui.Reveal
		case "act":
			rights |= outboxui.See | outboxui.Act
		default:
			return 0, usage("--rights: %q is no right: it is see, reveal or act", short(name))
		}
	}
	if rights == 0 {
		return 0, usage("--rights: it is empty")
	}
	return rights, nil
}

// listens opens the address of --listen. Others than loopback have to be meant.
func (u *ui) listens(ctx context.Context) (net.Listener, error) {
	host, _, err := net.SplitHostPort(u.listen)
	if err != nil {
		return nil, usage("--listen %q: it is an address such as 127.0.0.1:8080", u.listen)
	}
	ip := net.ParseIP(host)
	if !u.anyAddress && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, usage("--listen %q is not a loopback address: others could reach the page; --any-address if "+
			"you mean it",
			u.listen)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", u.listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return l, nil
}

func (a *app) serveUI(ctx context.Context, l net.Listener, page http.Handler) error {
	guard := newTokenGuard(page, l.Addr())
	s := &http.Server{
		Handler: guard, ReadHeaderTimeout: 5 * time.Second,
		BaseContext: func(net.Listener) context.Context {
			return ctx
		},
	}
	address := guard.address()
	if err := a.print(listing{"address": address}, func() { a.sayf("%s\n", address) }); err != nil {
		return err
	}
	a.note("the page is there until Ctrl-C; the address is a secret")
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := s.Shutdown(stopping); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// tokenGuard shows a page only with its token, from the address or from a cookie.
type tokenGuard struct {
	page   http.Handler
	at     string // host and port
	token  string
	cookie string
}

func newTokenGuard(page http.Handler, at net.Addr) *tokenGuard {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // never fails
	host, port, _ := net.SplitHostPort(at.String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost" // it listens on all addresses, and a browser opens one
	}
	return &tokenGuard{
		page: page, at: net.JoinHostPort(host, port), token: hex.EncodeToString(b),
		cookie: "outbox_ui_" + port, // cookies know no port, so another page on this machine needs another name
	}
}

func (g *tokenGuard) address() string { return "http://" + g.at + "/?token=" + g.token }

// is compares in a time that reveals nothing about the token.
func (g *tokenGuard) is(token string) bool {
	a, b := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(g.token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

func (g *tokenGuard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "same-origin")
	if token := r.URL.Query().Get("token"); token != "" && r.Method == http.MethodGet && g.is(token) {
		http.SetCookie(w, &http.Cookie{
			Name: g.cookie, Value: g.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
		q := r.URL.Query()
		q.Del("token")
		// Of this host: a browser takes two slashes of either kind at the beginning for another one.
		to := url.URL{Path: "/" + strings.TrimLeft(path.Clean(r.URL.Path), `/\`), RawQuery: q.Encode()}
		if strings.HasSuffix(r.URL.Path, "/") && to.Path != "/" {
			to.Path += "/"
		}
		http.Redirect(w, r, to.String(), http.StatusSeeOther)
		return
	}
	c, err := r.Cookie(g.cookie)
	if err != nil || !g.is(c.Value) {
		http.Error(w, "Open the address that `outbox ui` has printed: it has the token.", http.StatusForbidden)
		return
	}
	g.page.ServeHTTP(w, r)
}
