package cli

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// serves runs `outbox ui` until the test ends, and returns the address that it prints.
func (w *world) serves(args ...string) (address string) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	out, in := io.Pipe()
	var said strings.Builder
	ended := make(chan int, 1)
	go func() {
		ended <- Run(ctx, append([]string{"ui", "--listen", "127.0.0.1:0"}, args...), Environment{
			In: strings.NewReader(""), Out: in, Err: &said, Getenv: func(name string) string {
				if name == "DATABASE_URL" {
					return w.address
				}
				return w.env[name]
			},
		})
		_ = in.Close()
	}()
	w.Cleanup(func() {
		cancel()
		if code := <-ended; code != ExitOK {
			w.Errorf("outbox ui ended with %d: %s", code, said.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		w.Fatalf("outbox ui: %v", err)
	}
	return strings.TrimSpace(line)
}

// browser has the cookies of one person and follows no redirect.
type browser struct {
	*world
	http.Client
	cookies []*http.Cookie
}

func (b *browser) ask(method, address string, form url.Values) (code int, page string, header http.Header) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, address, strings.NewReader(form.Encode()))
	must(b, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	res, err := b.Do(r)
	must(b, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	must(b, err)
	if all := res.Cookies(); len(all) > 0 {
		b.cookies = all
	}
	return res.StatusCode, string(text), res.Header
}

func newBrowser(w *world) *browser {
	return &browser{world: w, Client: http.Client{
		Timeout:       30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func TestUI(t *testing.T) {
	migrated(t, func(w *world) {
		w.poison("orders", 3)
		address := w.serves("--environment", "staging", "--actor", "ada", "--name", "shop")
		site, token, _ := strings.Cut(address, "?token=")
		b := newBrowser(w)
		for _, wrong := range []string{
			site, site + "shop/", site + "?token=" + strings.Repeat("0", len(token)),
			site + "?token=",
		} {
			if code, _, _ := b.ask(http.MethodGet, wrong, nil); code != http.StatusForbidden {
				t.Errorf("%s: %d", wrong, code)
			}
		}
		if code, _, _ := b.ask(http.MethodPost, address, nil); code != http.StatusForbidden {
			t.Errorf("a token in a POST: %d", code)
		}
		code, _, header := b.ask(http.MethodGet, site+"shop/events?topic=orders&token="+token, nil)
		if code != http.StatusSeeOther || header.Get("Location") != "/shop/events?topic=orders" {
			t.Fatalf("%d %v", code, header)
		}
		if c := header.Get("Set-Cookie"); !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "SameSite=Strict") {
			t.Errorf("the cookie is %s", c)
		}
		for _, path := range []string{
			"shop/", "shop/events", "shop/groups", "shop/keys", "shop/relays", "shop/plans",
			"shop/audit",
			"shop/doctor", "-/style.css",
		} {
			code, page, _ := b.ask(http.MethodGet, site+path, nil)
			if code != http.StatusOK || path != "-/style.css" && !strings.Contains(page, "staging") {
				t.Errorf("%s: %d", path, code)
			}
		}
		_, page, _ := b.ask(http.MethodGet, site+"shop/doctor", nil)
		if !strings.Contains(page, "durability") {
			t.Error("the page of the doctor has no checks")
		}
		for path, to := range map[string]string{
			"": "/", "/evil.example/": "/evil.example/", "%5Cevil.example/": "/evil.example/",
			"%2F%5C/evil.example": "/evil.example", "%09/evil.example": "/%09/evil.example",
			"..%5C%5Cevil.example": "/..%5C%5Cevil.example",
		} {
			code, _, header := b.ask(http.MethodGet, site+path+"?token="+token, nil)
			if code != http.StatusSeeOther || header.Get("Location") != to {
				t.Errorf("%s: %d %s", path, code, header.Get("Location"))
			}
		}
	})
}

// The address of a page that listens on all addresses is one that a browser on this machine opens.
func TestUIAnyAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newSQLite)
	w.ok("migrate", "up")
	address := w.serves("--listen", ":0", "--any-address")
	if !strings.HasPrefix(address, "http://localhost:") {
		t.Fatal(address)
	}
	if code, _, _ := newBrowser(w).ask(http.MethodGet, address, nil); code != http.StatusSeeOther {
		t.Errorf("%d", code)
	}
}

func TestUIRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newSQLite)
	for _, args := range [][]string{
		{"--listen", ":8080"},
		{"--listen", "0.0.0.0:0"},
		{"--listen", "192.0.2.1:80"},
		{
			"--listen",
			"example.com:80",
		},
		{"--listen", "8080"},
		{"--rights", "all"},
		{"--poison-queue", "billing=http://host/q"},
		{
			"--poison-queue",
			"billing=kafka://host:9092",
		},
	} {
		w.require(w.run(append([]string{"ui"}, args...)...), ExitUsage, args[0])
	}
	w.require(w.run("ui", "--listen", "127.0.0.1:0"), ExitFailed, "outbox migrate up")
	w.ok("migrate", "up")
	w.require(w.run("ui", "--listen", "127.0.0.1:0", "--colour", "red"), ExitUsage, "none of slate")
	w.require(w.run("ui", "--listen", "127.0.0.1:0", "--name", "a/b"), ExitUsage, "letters")
	w.require(w.run("ui", "--listen", "127.0.0.1:0", "--trace-url", "javascript:{trace_id}"), ExitUsage,
		"http or https")
}
