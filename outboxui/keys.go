package outboxui

import (
	"net/url"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// keysLimit is how many keys the page has: each is counted by some statements.
const keysLimit = 25

// keysView is the list of blocked keys.
type keysView struct {
	ops.BlockedKeys
	Topic, Tenant string
	MayAct        string
	Commands      []string
}

func keys(v *visit, _ string) (*frame, error) {
	q := ops.KeyQuery{
		Topic: strings.TrimSpace(v.form.Get("topic")), TenantID: strings.TrimSpace(v.form.Get("tenant")),
		Limit: keysLimit,
	}
	blocked, err := v.api().BlockedKeys(v.ctx(), q)
	if err != nil {
		return nil, err
	}
	m := &keysView{
		BlockedKeys: blocked, Topic: q.Topic, Tenant: q.TenantID, MayAct: v.why(Act),
		Commands: []string{commandOf(append([]string{"keys"},
			filterFlags(url.Values{"topic": {q.Topic}, "tenant": {q.TenantID}})...)...)},
	}
	f := v.frame("keys", "Blocked keys")
	f.Main, f.Now = m, v.now()
	waiting := ops.Count{More: blocked.More}
	for _, k := range blocked.Keys {
		f.Now = k.Head.ReadAt
		waiting.N += k.Waiting.N
		waiting.More = waiting.More || k.Waiting.More
	}
	n := ops.Count{N: len(blocked.Keys), More: blocked.More}
	if n.N > 0 {
		f.Verdict.Kind, f.Verdict.States = "bad", []state{{"dead", number(n) + " blocked " + nouns(n.N, "key")}}
		f.Verdict.Heading = number(n) + " " + nouns(n.N, "key") + " " + verbOf(n.N, "waits", "wait") +
			" behind a dead event, and " +
			number(waiting) + " later " + nouns(waiting.N, "event") + " in " + verbOf(n.N, "it", "them") + "."
		f.Verdict.Next = "Redrive the dead event of a key when its cause is repaired, or discard it. The later " +
			"ones follow by themselves."
	} else {
		f.Verdict.Heading = "No key is blocked."
		f.Verdict.Next = "A key is blocked while one of its events is dead: the later ones wait, to keep their order."
	}
	f.Title = f.Verdict.Heading
	return f, nil
}

func verbOf(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
