package outboxui

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// auditView is what people did.
type auditView struct {
	filled
	Records  []core.AuditRecord
	NextPage string
	Commands []string
}

func audit(v *visit, _ string) (*frame, error) {
	get := func(name string) string { return strings.TrimSpace(v.form.Get(name)) }
	q := ops.AuditQuery{Action: get("action"), Actor: get("actor"), Topic: get("topic"), Limit: listLimit}
	var err error
	if row := get("row"); row != "" {
		if q.RowID, err = core.ParseRowID(row); err != nil {
			return nil, refusal{http.StatusBadRequest, "“" + cut(row, 60) + "” is no row id."}
		}
	}
	if before := get("before"); before != "" {
		if q.Before, err = strconv.ParseInt(before, 10, 64); err != nil {
			return nil, refusal{http.StatusBadRequest, "“" + cut(before, 60) + "” is no page of the audit."}
		}
	}
	if q.Since, err = momentOf(get("since"), v.now()); err != nil {
		return nil, err
	}
	page, err := v.api().Audit(v.ctx(), q)
	if err != nil {
		return nil, err
	}
	m := &auditView{Records: page.Records, filled: filled{v.form}}
	words := []string{"audit"}
	next := url.Values{}
	for _, name := range []string{"action", "actor", "topic", "since", "row"} {
		if value := get(name); value != "" {
			next.Set(name, value)
			words = append(words, "--"+name, value)
		}
	}
	m.Commands = []string{commandOf(words...)}
	if page.Next != 0 {
		next.Set("before", strconv.FormatInt(page.Next, 10))
		m.NextPage = "?" + next.Encode()
	}
	f := v.frame("audit", "Audit")
	f.Main, f.Now = m, v.now()
	switch {
	case len(page.Records) > 0 && q.Before == 0:
		r := page.Records[0]
		f.Verdict.Heading = "The last change: " + ops.Printable(r.Actor) + ", " + ops.Printable(r.Action) + "."
		f.Verdict.Next = "Each change and each look at a payload has a row here, written in its transaction."
	case len(page.Records) > 0:
		f.Verdict.Heading = "What people did before."
	default:
		f.Verdict.Heading = "Nobody has changed anything, as far as these filters say."
	}
	f.Title = "Audit"
	return f, nil
}
