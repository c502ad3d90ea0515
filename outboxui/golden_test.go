package outboxui

import (
	"flag"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

var update = flag.Bool("update", false, "write the expected pages")

// changing is what differs from run to run: hashes of files and of how events were seen.
var changing = regexp.MustCompile(`\?v=[0-9a-f]+|\b[0-9a-f]{64}\b|"[0-9a-f]{32}"`)

// golden compares a page with testdata.
func golden(t *testing.T, name, page string) {
	t.Helper()
	page = changing.ReplaceAllString(page, "~")
	file := filepath.Join("testdata", name+".html")
	if *update {
		must(t, os.WriteFile(file, []byte(page), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if page != string(want) {
		t.Errorf("%s is another page: go test ./outboxui -run Golden -update, and look at the difference\n%s", file,
			firstDifference(string(want), page))
	}
}

func firstDifference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return "want " + a[i] + "\ngot  " + b[i]
		}
	}
	return "one of them is longer"
}

func TestGolden(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		golden(t, "empty", w.ok("/shop/"))
		golden(t, "empty-events", w.ok("/shop/events"))
		dead := w.badDay()
		group := w.aGroup()
		for name, path := range map[string]string{
			"overview": "", "events": "events?status=dead", "event": "events/" +
				dead[0], "groups": "groups", "group": "groups/" + group,
			"keys": "keys", "relays": "relays", "audit": "audit", "doctor": "doctor",
			"confirm": "confirm?do=discard&row=" + dead[0],
			"freeze": "confirm?do=plan-redrive&group=" +
				group, "pause": "confirm?do=pause&topic=orders", "no-inbox": "consumers",
		} {
			golden(t, name, w.ok("/shop/"+path))
		}
		golden(t, "revealed", w.post("/shop/events/"+dead[0], url.Values{"reason": {"INC-43"}}).Body.String())
		w.rights = See
		golden(t, "only-see", w.ok("/shop/events/"+dead[0]))
		w.rights = See | Act
		must(t, w.api.Pause(t.Context(), core.PauseRequest{Topic: "orders", Actor: "ann", Reason: "broker upgrade"}))
		w.confirm("do=redrive&row="+dead[0], "limit raised")
		golden(t, "paused", w.ok("/shop/"))
		res := w.get("/shop/confirm?do=redrive&row=" + dead[0])
		if res.Code != http.StatusConflict {
			t.Errorf("%d", res.Code)
		}
		golden(t, "lost-race", res.Body.String())
	})
}

// Every link of every page leads to a page, whatever prefix the pages have.
func TestLinks(t *testing.T) {
	for _, prefix := range []string{"", "/admin/outbox"} {
		bubble(t, func(t *testing.T, w *world) {
			w.badDay()
			w.plan(w.aGroup())
			site := http.StripPrefix(prefix, w.page)
			seen, todo := map[string]bool{}, []string{prefix + "/"}
			for len(todo) > 0 && len(seen) < 400 {
				at := todo[0]
				todo = todo[1:]
				if seen[at] {
					continue
				}
				seen[at] = true
				todo = append(todo, w.follow(site, prefix, at)...)
			}
			for _, want := range []string{
				"/shop/", "/shop/events", "/shop/groups/" + w.aGroup(), "/shop/audit",
				"/-/style.css?v=" + assets["style.css"].hash,
			} {
				if !seen[prefix+want] {
					t.Errorf("no link leads to %s%s", prefix, want)
				}
			}
		})
	}
}

var link = regexp.MustCompile(`(?:href|src|action)="([^"#]*)`)

// follow asks for an address, and returns the addresses that its page has.
func (w *world) follow(site http.Handler, prefix, at string) (next []string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, at, nil)
	must(w.t, err)
	r.RequestURI = at
	res := httptestRecord(site, r)
	base, err := url.Parse(at)
	must(w.t, err)
	switch res.Code {
	case http.StatusOK:
	case http.StatusConflict, http.StatusSeeOther: // a plan is open; a search
	default:
		if !strings.Contains(at, "/confirm") && !strings.Contains(at, "/find") {
			w.t.Errorf("%s: %d", at, res.Code)
		}
	}
	all := []string{res.Header().Get("Location")}
	for _, m := range link.FindAllStringSubmatch(res.Body.String(), -1) {
		all = append(all, m[1])
	}
	for _, to := range all {
		u, err := url.Parse(strings.ReplaceAll(to, "&amp;", "&"))
		must(w.t, err)
		if to == "" || u.Host != "" && u.Host == "traces.internal" {
			continue
		}
		whole := base.ResolveReference(u)
		if u.Host != "" || !strings.HasPrefix(whole.Path, prefix+"/") {
			w.t.Errorf("%s leads to %s", at, to)
			continue
		}
		next = append(next, whole.RequestURI())
	}
	return next
}

// The prefix without its slash leads to the page.
func TestPrefixWithoutSlash(t *testing.T) {
	w := newWorld(t, Config{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/admin/outbox", nil)
	must(t, err)
	r.RequestURI = "/admin/outbox"
	res := httptestRecord(http.StripPrefix("/admin/outbox", w.page), r)
	if to := res.Header().Get("Location"); res.Code != http.StatusSeeOther || to != "outbox/" {
		t.Errorf("%d %q", res.Code, to)
	}
}
