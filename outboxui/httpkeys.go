package outboxui

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// storedKeyRow is an idempotency key in a list.
type storedKeyRow struct {
	once.StoredKey
	Shape state
}

// httpKeysView is the page of the idempotency keys, for HTTP requests and for other work.
type httpKeysView struct {
	filled
	There     bool
	Scopes    []once.Backlog
	Statuses  []choiceOf
	Keys      []storedKeyRow
	Truncated bool
	NextPage  string
	Commands  []string
}

var keyStatuses = []once.KeyStatus{"", once.KeyHeld, once.KeyAbandoned, once.KeyFailed, once.KeyDone}

func httpKeys(v *visit, _ string) (*frame, error) {
	all, err := v.api().IdempotencyKeys(v.ctx())
	if err != nil {
		return nil, err
	}
	m := &httpKeysView{There: all.There, Scopes: all.Scopes, filled: filled{v.form}}
	f := v.frame("httpkeys", "HTTP keys")
	f.Main, f.Now = m, v.now()
	if !m.There {
		f.Verdict.Heading = "This database has no table of idempotency keys."
		f.Verdict.Next = "Keys in Redis are not in reach. `outbox migrate up --tables keys` makes the table."
		return f, nil
	}
	if err := m.list(v); err != nil {
		return nil, err
	}
	f.Verdict = m.verdict()
	f.Title = f.Verdict.Heading
	return f, nil
}

func (m *httpKeysView) list(v *visit) error {
	get := func(name string) string { return strings.TrimSpace(v.form.Get(name)) }
	q := once.KeyQuery{
		Scope: get("scope"), Tenant: get("tenant"), ID: get("id"), Status: once.KeyStatus(get("status")),
		After: v.form.Get("after"),
		Limit: listLimit,
	}
	known := false
	for _, s := range keyStatuses {
		known = known || s == q.Status
		m.Statuses = append(m.Statuses, choiceOf{string(s), cmp.Or(string(s), "all"), s == q.Status})
	}
	if !known {
		return refusal{http.StatusBadRequest, "“" + cut(string(q.Status), 40) + "” is no state of a key."}
	}
	page, err := v.api().ListIdempotencyKeys(v.ctx(), q)
	if err != nil {
		return err
	}
	for _, k := range page.Keys {
		m.Keys = append(m.Keys, storedKeyRow{k, keyState(k.Status)})
	}
	m.Truncated = page.Truncated
	words, next := []string{"idempotency", "list"}, url.Values{}
	for _, flag := range []struct{ name, value string }{
		{"scope", q.Scope}, {"tenant", q.Tenant}, {"id", q.ID}, {"status", string(q.Status)},
	} {
		if flag.value != "" {
			words = append(words, "--"+flag.name, flag.value)
			next.Set(flag.name, flag.value)
		}
	}
	if page.Next != "" {
		next.Set("after", page.Next)
		m.NextPage = "?" + next.Encode()
	}
	m.Commands = []string{commandOf("idempotency"), commandOf(words...)}
	return nil
}

func keyState(s once.KeyStatus) state {
	switch s {
	case once.KeyHeld:
		return state{"run", "held"}
	case once.KeyAbandoned:
		return state{"warn", "abandoned"}
	case once.KeyFailed:
		return state{"warn", "failed"}
	default:
		return state{"ok", "done"}
	}
}

func (m *httpKeysView) verdict() (d verdict) {
	held, abandoned, failed := 0, 0, 0
	for _, s := range m.Scopes {
		held, abandoned, failed = held+s.Held, abandoned+s.Abandoned, failed+s.Failed
	}
	switch {
	case abandoned > 0:
		d.Kind, d.States = "warn", []state{{"warn", number(abandoned) + " abandoned"}}
		d.Heading = plural(abandoned, "key") + " " + verbOf(abandoned, "is", "are") +
			" of processes that disappeared while they worked."
		d.Next = "The next request with such a key does the work again. If none comes, the client has given up: " +
			"look into the log of that process."
	case held > 0:
		d.Heading = plural(held, "request") + " " + verbOf(held, "is", "are") +
			" being worked on now; none is abandoned."
	case failed > 0:
		d.Heading = plural(failed, "key") + " " + verbOf(failed, "has", "have") +
			" failed; the next request does the work again."
	default:
		d.Heading = "No request is being worked on, and none is abandoned."
	}
	return d
}
