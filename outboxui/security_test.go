package outboxui

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// Every answer forbids frames, foreign scripts, styles and caches, and a page has no inline ones.
func TestHeaders(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		dead := w.badDay()
		paths := append(w.paths(dead[0], w.aGroup()), "nowhere", "events/x", "confirm?do=redrive&row="+dead[0])
		for _, path := range paths {
			res := w.get("/shop/" + path)
			h := res.Header()
			for _, want := range []string{
				"default-src 'none'", "style-src 'self'", "script-src 'self'",
				"frame-ancestors 'none'",
				"form-action 'self'", "base-uri 'none'",
			} {
				if !strings.Contains(h.Get("Content-Security-Policy"), want) {
					t.Errorf("%s: the policy lacks %s", path, want)
				}
			}
			for name, want := range map[string]string{
				"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
				"Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
			} {
				if h.Get(name) != want {
					t.Errorf("%s: %s is %q", path, name, h.Get(name))
				}
			}
			if scripted(res.Body.String()) {
				t.Errorf("%s has an inline script, style or handler", path)
			}
		}
	})
}

var (
	inline  = regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|<script(?:>|[^>]*>[^<])`)
	schemes = regexp.MustCompile(`(?i)(href|action|src)="(javascript|data):`)
	quoted  = regexp.MustCompile(`="[^"]*"`)
	between = regexp.MustCompile(`>[^<]*<`)
)

// scripted reports whether a page has a script, a style or a handler of its own.
func scripted(page string) bool {
	tags := between.ReplaceAllString(quoted.ReplaceAllString(page, `=""`), "><")
	return inline.MatchString(tags) || schemes.MatchString(page)
}

func TestAssets(t *testing.T) {
	w := newWorld(t, Config{})
	for name, a := range assets {
		res := w.get("/-/" + name + "?v=" + a.hash)
		if res.Code != http.StatusOK || res.Header().Get("Content-Type") != a.kind || res.Body.Len() == 0 ||
			!strings.Contains(res.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", name, res.Code, res.Header())
		}
		if res := w.get("/-/" + name + "?v=old"); res.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s of another version is kept", name)
		}
	}
	if w.get("/-/handler.go").Code != http.StatusNotFound {
		t.Error("another file is served")
	}
	if strings.Contains(string(assets["style.css"].content), "url(") {
		t.Error("the stylesheet loads something")
	}
}

// A change is refused if the browser says that it comes from another site.
func TestForeignSites(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		dead := w.badDay()
		before := len(w.ob.Repository.Audits())
		form := hidden(t, w.ok("/shop/confirm?do=redrive&row="+dead[0]))
		form.Set("reason", "forged")
		for _, header := range []http.Header{
			{"Sec-Fetch-Site": {"cross-site"}},
			{"Sec-Fetch-Site": {"same-site"}},
			{"Origin": {"https://evil.example"}},
			{"Origin": {"null"}},
		} {
			for _, path := range []string{"/shop/confirm", "/shop/events/" + dead[0]} {
				r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
				r.Header = header.Clone()
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				if res := w.send(r); res.Code != http.StatusForbidden {
					t.Errorf("%s %v: %d", path, header, res.Code)
				}
			}
		}
		// A change by GET, with the fields in the address, asks and changes nothing.
		w.get("/shop/confirm?" + form.Encode())
		r := httptest.NewRequest(http.MethodPost, "/shop/confirm?"+form.Encode(), nil)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if res := w.send(r); res.Code != http.StatusBadRequest {
			t.Errorf("a POST with its fields in the address: %d", res.Code)
		}
		for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
			if res := w.send(httptest.NewRequest(method, "/shop/confirm",
				nil)); res.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s: %d", method, res.Code)
			}
		}
		if n := len(w.ob.Repository.Audits()); n != before {
			t.Errorf("%d rows in the audit, %d before", n, before)
		}
	})
}

const markup = `"><script>alert(1)</script><img src=x onerror=alert(2)>'` + "`"

// What others write is text, wherever it is shown.
func TestMarkup(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.ob.Publisher.FailFor(func(core.Delivery) error { return core.Permanent(fmt.Errorf("no: %s", markup)) })
		rows := w.publish(core.Event{
			Type: "t" + markup, Topic: "o" + markup, Key: "k" + markup, TenantID: "t" + markup, AggregateType: "a" +
				markup,
			AggregateID: "i" + markup, Headers: map[string]string{"x-markup": markup, "traceparent": markup},
			Payload: []byte(markup + "</code></pre>\x1b[31m\u202e"), ContentType: "text/html",
		}, core.Event{Type: "t" + markup, Topic: "o" + markup, Key: "k" + markup, TenantID: "t" + markup})
		must(t, w.ob.Drain(t.Context()))
		w.actor = "ada" + markup
		reason := "why " + markup
		must(t, w.api.Pause(t.Context(), core.PauseRequest{Topic: "o" + markup, Actor: w.actor, Reason: reason}))
		must(t, w.api.Outbox().SetRate(t.Context(),
			core.RateRequest{Topic: "o" + markup, PerSecond: 1, Actor: w.actor, Reason: reason}))
		group := w.aGroup()
		must(t, w.api.NoteGroup(t.Context(), "note "+markup,
			ops.GroupRequest{Fingerprint: group, Actor: w.actor, Reason: reason}))
		must(t, w.ob.Repository.Beat(t.Context(), core.Heartbeat{
			Node: "n" + markup, Host: markup, Program: markup, Version: markup, AllTopics: true,
			RelayState: core.RelayState{Stopped: []core.StoppedDestination{{
				Topic: "o" + markup,
				Err:   fmt.Errorf("%s", markup),
			}}},
		}))
		plan, err := w.api.PlanDiscard(t.Context(), ops.Filter{}, 0)
		must(t, err)
		stored, err := w.api.StorePlan(t.Context(), plan, w.actor, reason)
		must(t, err)
		q := url.Values{"topic": {"o" + markup}, "key": {"k" + markup}, "type": {markup}, "since": {"1h"}}
		paths := append(w.paths(rows[0], group), "events?"+q.Encode(), "plans/"+stored.ID,
			"confirm?do=discard&row="+rows[1],
			"confirm?do=plan-step&plan="+stored.ID, "confirm?do=pause&"+q.Encode(), "confirm?do=resume&"+q.Encode(),
			"confirm?do=rate&"+q.Encode(), "confirm?do=group-note&group="+group, "audit?"+q.Encode(),
			"keys?"+q.Encode(),
			"events?since="+url.QueryEscape(markup), "events/"+url.PathEscape(markup),
			"confirm?do="+url.QueryEscape(markup))
		for _, path := range paths {
			w.clean(path, w.get("/shop/"+path).Body.String())
		}
		res := w.post("/shop/events/"+rows[0], url.Values{"reason": {reason}})
		w.clean("reveal", res.Body.String())
		says(t, res.Body.String(), `<script>alert(1)</script>`, `\x1b[31m\u202e`)
		w.clean("lost", w.confirm("do=discard&row="+rows[1], reason).Body.String())
	})
}

func (w *world) clean(path, page string) {
	w.t.Helper()
	if strings.Contains(page, "<script>") || strings.Contains(page, "<img") || strings.Contains(page, "\x1b") ||
		strings.Contains(page, "\u202e") || scripted(page) {
		at := strings.Index(page, "<script>")
		w.t.Errorf("%s has markup of others: %.300s", path, page[max(0, at-100):])
	}
}

// The hook of the service hides a part of what is revealed, and the page says so.
func TestRedaction(t *testing.T) {
	w := newWorld(t, Config{Redact: func(e ops.Event, c ops.Content) ops.Content {
		delete(c.Headers, "customer_email")
		c.Payload = []byte(strings.ReplaceAll(string(c.Payload), "184.50", "***"))
		return c
	}})
	dead := w.badDay0()
	res := w.post("/shop/events/"+dead, url.Values{"reason": {"INC-43"}})
	says(t, res.Body.String(), "customer_email hidden by the redaction of the service", `"total": "***"`,
		"changed by the redaction of the service", "9007199254740993")
	if strings.Contains(res.Body.String(), "ann@example.com") {
		t.Error("a header that the hook removed is shown")
	}
}

// badDay0 publishes one order that dies, without waiting for anything.
func (w *world) badDay0() string {
	w.ob.Publisher.FailFor(func(core.Delivery) error { return tooLarge(2_000_000) })
	rows := w.publish(core.Event{
		Type: "order.placed", Topic: "orders", Key: "order/1",
		Headers: map[string]string{"customer_email": "ann@example.com"},
		Payload: []byte(`{"order":9007199254740993,"total":"184.50"}`), ContentType: "application/json",
	})
	must(w.t, w.ob.Drain(w.t.Context()))
	return rows[0]
}
