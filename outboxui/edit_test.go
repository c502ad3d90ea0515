package outboxui

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// A dead event is revealed, changed in a form, looked at as a difference, and published.
func TestEdit(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		row := w.badDay()[0]
		res := w.post("/shop/events/"+row, url.Values{"reason": {"INC-44"}, "then": {"edit"}})
		if res.Code != http.StatusOK || w.audited(ops.AuditReveal) != 1 {
			t.Fatalf("%d %s", res.Code, textOf(res.Body.String()))
		}
		page := res.Body.String()
		says(t, page, "Nothing is changed yet", "9007199254740993", "customer_email: ann@example.com")
		form := hidden(t, page)
		form.Set("payload", `{"order":9007199254740993,"total":"18.45"}`)
		form.Set("content-type", "application/json")
		form.Set("headers", "traceparent: "+traceOf+"\r\nsource: ada: by hand\r\n")
		res = w.post("/shop/confirm", form)
		if res.Code != http.StatusOK {
			t.Fatalf("%d %s", res.Code, textOf(res.Body.String()))
		}
		says(t, res.Body.String(), `- "total": "184.50"`, `+ "total": "18.45"`,
			"- header customer_email: ann@example.com",
			"+ header source: ada: by hand", "outbox edit "+row)
		golden(t, "edit", res.Body.String())
		ask := hidden(t, res.Body.String())
		ask.Set("reason", "total was too large")
		second := hidden(t, res.Body.String())
		second.Set("reason", "me too")
		res = w.post("/shop/confirm", ask)
		w.sent(res.Code, res.Body.String())
		news := regexp.MustCompile(`[0-9a-f-]{36}$`).FindString(res.Header().Get("Location"))
		if news == row || w.status(row) != ops.StatusDiscarded || !w.status(news).Open() {
			t.Errorf("the old row is %s, the new one %s", w.status(row), w.status(news))
		}
		res = w.post("/shop/confirm", second)
		if res.Code != http.StatusConflict {
			t.Errorf("a second edit: %d", res.Code)
		}
		says(t, res.Body.String(), "there is nothing to edit", "ada", "total was too large")
		if res := w.post("/shop/events/"+row, url.Values{
			"reason": {"again"},
			"then":   {"edit"},
		}); res.Code != http.StatusConflict {
			t.Errorf("an edit of a row that is discarded: %d", res.Code)
		}
	})
}

func TestEditRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		row := w.badDay()[0]
		form := hidden(t, w.post("/shop/events/"+row, url.Values{"reason": {"x"}, "then": {"edit"}}).Body.String())
		same := url.Values{
			"do": {"edit"}, "row": {row}, "shown": form["shown"], "look": {"1"},
			"payload":      {`{"order":9007199254740993,"total":"184.50"}`},
			"content-type": {"application/json"}, "headers": {"customer_email: ann@example.com\ntraceparent: " +
				traceOf},
		}
		for name, change := range map[string]url.Values{
			"nothing differs": {}, "no JSON": {"payload": {"{"}}, "no header": {"headers": {"x"}},
			"no row":            {"row": {"x"}},
			"a reserved header": {"headers": {core.HeaderReservedPrefix + "x: 1"}},
			"a line break":      {"headers": {"a: b\x01"}}, "a name with a colon": {"headers": {":path: /"}},
			"no content type": {"content-type": {" "}, "payload": {"{}"}},
		} {
			form := url.Values{}
			for _, part := range []url.Values{same, change} {
				maps.Copy(form, part)
			}
			if res := w.post("/shop/confirm", form); res.Code != http.StatusBadRequest {
				t.Errorf("%s: %d %s", name, res.Code, textOf(res.Body.String()))
			}
		}
		same.Set("content-type", "")
		says(t, w.post("/shop/confirm", same).Body.String(), "cannot be removed", "application/json")
		for _, rights := range []Rights{See | Reveal, See | Act} {
			w.rights = rights
			before := w.audited(ops.AuditReveal)
			if res := w.post("/shop/events/"+row, url.Values{
				"reason": {"x"},
				"then":   {"edit"},
			}); res.Code != http.StatusForbidden {
				t.Errorf("%s: %d", rights, res.Code)
			}
			form := url.Values{"do": {"edit"}, "row": {row}, "look": {"1"}, "payload": {"{}"}}
			if res := w.post("/shop/confirm", form); res.Code != http.StatusForbidden ||
				strings.Contains(res.Body.String(), "184.50") {
				t.Errorf("%s: %d", rights, res.Code)
			}
			if w.audited(ops.AuditReveal) != before {
				t.Errorf("%s: something was revealed", rights)
			}
		}
	})
}

// A header that was not written by core may have a colon in its name. The form gives it back whole.
func TestHeadersOfAForm(t *testing.T) {
	t.Parallel()
	stored := map[string]string{"a": "1", "a:b": "2", ":path": "/orders"}
	got, err := headersOf("a: 1\r\na:b: 2\r\n:path: /orders\n\n  \nnew : x: y\n", stored)
	want := map[string]string{"a": "1", "a:b": "2", ":path": "/orders", "new": "x: y"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v %v", got, err)
	}
}

// The difference of an edit has the old content. Only a person to whom that was revealed gets it, so
// the audit has each look, and a redaction holds here too.
func TestEditOfUnseen(t *testing.T) {
	redact := func(_ ops.Event, c ops.Content) ops.Content {
		c.Payload = []byte("{}")
		delete(c.Headers, "customer_email")
		return c
	}
	for name, cfg := range map[string]Config{"not revealed": {}, "redacted": {Redact: redact}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cfg)
			row := w.badDay0()
			if cfg.Redact != nil { // what the person was shown
				w.post("/shop/events/"+row, url.Values{"reason": {"INC-44"}})
			}
			before := w.audited(ops.AuditReveal)
			form := url.Values{"do": {"edit"}, "row": {row}, "payload": {"{}"}, "headers": {"x: y"}}
			for how, res := range map[string]*httptest.ResponseRecorder{
				"GET": w.get("/shop/confirm?" + form.Encode()), "POST": w.post("/shop/confirm", form),
			} {
				page := res.Body.String()
				if res.Code != http.StatusConflict || strings.Contains(page, "184.50") ||
					strings.Contains(page, "ann@example.com") {
					t.Errorf("%s: %d %s", how, res.Code, textOf(page))
				}
			}
			if w.audited(ops.AuditReveal) != before || w.status(row) != ops.StatusDead {
				t.Errorf("%d reveals before, %d after; the row is %s", before, w.audited(ops.AuditReveal),
					w.status(row))
			}
		})
	}
}

// What a browser does not send back as it is cannot be edited in a form.
func TestEditBinary(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.ob.Publisher.FailFor(func(core.Delivery) error { return tooLarge(1) })
		row := w.publish(core.Event{Type: "a", Topic: "t", Payload: []byte("\xff\x00\r\n")})[0]
		must(t, w.ob.Drain(t.Context()))
		res := w.post("/shop/events/"+row, url.Values{"reason": {"x"}, "then": {"edit"}})
		says(t, res.Body.String(), "is no text that a browser sends back")
		if strings.Contains(res.Body.String(), `name="payload"`) {
			t.Error("the form has the payload")
		}
		says(t, w.post("/shop/events/"+row, url.Values{"reason": {"x"}}).Body.String(), "ff 00 0d 0a",
			"which are no text")
	})
}
