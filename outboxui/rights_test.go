package outboxui

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// paths are all pages of an outbox.
func (w *world) paths(row, group string) []string {
	return []string{
		"", "events", "events/" + row, "groups", "groups/" +
			group, "keys", "consumers", "effects", "httpkeys", "relays",
		"plans", "audit", "doctor", "find?id=" + row,
	}
}

// aGroup is the fingerprint of the first group.
func (w *world) aGroup() string {
	w.t.Helper()
	all, err := w.api.Groups(w.t.Context(), ops.Filter{})
	must(w.t, err)
	if len(all.Groups) == 0 {
		w.t.Fatal("nothing has failed")
	}
	return all.Groups[0].Fingerprint
}

// Without Authorize the page refuses everything, the stylesheet too, and New says so.
func TestClosedByDefault(t *testing.T) {
	ob := outboxtest.NewOutbox(t, coreConfig())
	api, err := ops.New(ob.Outbox, ob.Repository)
	must(t, err)
	var log strings.Builder
	page, err := New(Config{
		Outboxes: []Outbox{{Name: "shop", API: api, Database: database}}, Logger: slog.New(slog.NewTextHandler(&log,
			nil)),
	})
	must(t, err)
	if !strings.Contains(log.String(), "Authorize is nil") {
		t.Errorf("New says nothing of it: %s", log.String())
	}
	for _, path := range []string{"/", "/shop/", "/shop/events", "/-/style.css", "/shop/confirm?do=pause&all=1"} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			res := httptest.NewRecorder()
			page.ServeHTTP(res, httptest.NewRequest(method, path, nil))
			if res.Code != http.StatusForbidden {
				t.Errorf("%s %s: %d", method, path, res.Code)
			}
		}
	}
}

func TestWhoIsRefused(t *testing.T) {
	for name, authorize := range map[string]func(*http.Request) (string, Rights, error){
		"an error": func(*http.Request) (string, Rights, error) {
			return "ada", See,
				errors.New("secret of the service")
		},
		"no name":       func(*http.Request) (string, Rights, error) { return "", See, nil },
		"a long name":   func(*http.Request) (string, Rights, error) { return strings.Repeat("a", 256), See, nil },
		"no UTF-8":      func(*http.Request) (string, Rights, error) { return "\xff", See, nil },
		"no right":      func(*http.Request) (string, Rights, error) { return "ada", 0, nil },
		"act alone":     func(*http.Request) (string, Rights, error) { return "ada", Act, nil },
		"all but see":   func(*http.Request) (string, Rights, error) { return "ada", Act | Reveal, nil },
		"unknown right": func(*http.Request) (string, Rights, error) { return "ada", 64, nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{Authorize: authorize})
			res := w.get("/shop/")
			if res.Code != http.StatusForbidden || strings.Contains(res.Body.String(), "secret") {
				t.Errorf("%d %s", res.Code, res.Body)
			}
		})
	}
}

// Every right against every page and every change.
func TestRights(t *testing.T) {
	for _, rights := range []Rights{See, See | Reveal, See | Act, See | Reveal | Act} {
		t.Run(rights.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				dead := w.badDay()
				group := w.aGroup()
				w.rights = See | Act
				w.plan(group)
				w.rights = rights
				for _, path := range w.paths(dead[1], group) {
					res := w.get("/shop/" + path)
					if res.Code != http.StatusOK && res.Code != http.StatusSeeOther {
						t.Errorf("%s: %d", path, res.Code)
					}
					if !rights.Has(Act) && strings.Contains(res.Body.String(), "confirm?do=") {
						t.Errorf("%s has a button that leads to a change", path)
					}
				}
				w.tryReveal(dead[1], rights)
				w.tryChanges(dead[1], group, rights)
			})
		})
	}
}

func (w *world) tryReveal(row string, rights Rights) {
	w.t.Helper()
	page := w.ok("/shop/events/" + row)
	if strings.Contains(page, "9007199254740993") || strings.Contains(page, "ann@example.com") {
		w.t.Error("the page of an event has its payload or a header")
	}
	res := w.post("/shop/events/"+row, url.Values{"reason": {"INC-43"}})
	if may := rights.Has(Reveal); may != (res.Code == http.StatusOK) ||
		may != strings.Contains(res.Body.String(), "9007199254740993") {
		w.t.Errorf("reveal: %d", res.Code)
	}
	if !rights.Has(Reveal) {
		says(w.t, page, "You may not see payloads and headers")
		if n := w.audited(ops.AuditReveal); n != 0 || res.Code != http.StatusForbidden {
			w.t.Errorf("a refused reveal: %d, %d rows in the audit", res.Code, n)
		}
	} else if w.audited(ops.AuditReveal) != 1 {
		w.t.Error("a reveal is not in the audit")
	}
}

// queries are the changes that a person can ask for.
func (w *world) queries(row, group string) map[string]url.Values {
	w.t.Helper()
	plans, err := w.api.StoredPlans(w.t.Context(), 1)
	must(w.t, err)
	return map[string]url.Values{
		"redrive": {"row": {row}}, "discard": {"row": {row}}, "replay": {"row": {row}},
		"plan-redrive": {"topic": {"orders"}}, "plan-discard": {"topic": {"orders"}},
		"plan-step": {"plan": {plans[0].ID}}, "plan-pause": {"plan": {plans[0].ID}},
		"plan-cancel": {"plan": {plans[0].ID}},
		"pause":       {"topic": {"orders"}}, "resume": {"topic": {"orders"}}, "rate": {
			"topic":      {"orders"},
			"per-second": {"1"}, "in-flight": {"1"},
		},
		"group-note":      {"group": {group}, "note": {"known"}},
		"message-redrive": {"message": {"c=billing&h=invoice&e=1"}},
		"message-discard": {"message": {"c=billing&h=invoice&e=1"}},
		"release":         {"consumer": {"billing"}}, "edit": {
			"row":     {row},
			"payload": {"{}"},
		}, "effect-redrive": {"effect": {"1"}}, "effect-discard": {"effect": {"1"}},
	}
}

func (w *world) tryChanges(row, group string, rights Rights) {
	w.t.Helper()
	all := w.queries(row, group)
	for do := range actions {
		if all[do] == nil {
			w.t.Errorf("the test does not try %s", do)
		}
	}
	if rights.Has(Act) {
		return // the other tests do them all
	}
	before := len(w.ob.Repository.Audits())
	for do, q := range all {
		q.Set("do", do)
		q.Set("reason", "no")
		asked, sent := w.get("/shop/confirm?"+q.Encode()), w.post("/shop/confirm", q)
		for _, res := range []*httptest.ResponseRecorder{asked, sent} {
			if res.Code != http.StatusForbidden {
				w.t.Errorf("%s: %d", do, res.Code)
			}
			says(w.t, res.Body.String(), "You may not change anything here")
		}
	}
	if n := len(w.ob.Repository.Audits()); n != before {
		w.t.Errorf("%d rows in the audit, %d before", n, before)
	}
}

// plan stores a plan and runs its first step.
func (w *world) plan(group string) {
	w.t.Helper()
	if res := w.confirm("do=plan-redrive&group="+group, "limit raised", "wait", "1s"); res.Code != http.StatusSeeOther {
		w.t.Fatalf("plan: %d %s", res.Code, textOf(res.Body.String()))
	}
}

// audited counts the rows of the audit with an action.
func (w *world) audited(action string) (n int) {
	w.t.Helper()
	page, err := w.api.Audit(w.t.Context(), ops.AuditQuery{Action: action})
	must(w.t, err)
	return len(page.Records)
}
