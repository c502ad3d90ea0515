package outboxui

import (
	"fmt"
	"net/url"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// groupsView is the list of failures.
type groupsView struct {
	Groups    []ops.Group
	Truncated bool
	Muted     bool // muted groups are shown too
	Hidden    int  // muted groups that are not shown
	Commands  []string
}

func groups(v *visit, _ string) (*frame, error) {
	all, err := v.api().Groups(v.ctx(), ops.Filter{})
	if err != nil {
		return nil, err
	}
	m := &groupsView{
		Truncated: all.Truncated, Muted: v.form.Get("muted") != "",
		Commands: []string{commandOf("groups")},
	}
	dead, blocked, retrying := 0, 0, 0
	for _, g := range all.Groups {
		if g.Muted && !m.Muted {
			m.Hidden++
			continue
		}
		m.Groups = append(m.Groups, g)
		dead, blocked, retrying = dead+g.Dead, blocked+g.BlockedKeys, retrying+g.Retrying
	}
	f := v.frame("groups", "Groups of failures")
	f.Main, f.Now = m, v.now()
	if len(all.Groups) > 0 {
		f.Now = all.Groups[0].Sample.ReadAt
	}
	plus := ""
	if all.Truncated {
		plus = " or more"
	}
	switch {
	case dead > 0:
		f.Verdict.Kind, f.Verdict.States = "bad", []state{{"dead", plural(dead, "dead event") + plus}}
		f.Verdict.Heading = fmt.Sprintf("%s%s of %s wait for a person.", plural(dead, "event"), plus,
			plural(withDead(m.Groups), "failure"))
		f.Verdict.Next = "Repair the cause of the largest one, then redrive one of its events."
		if blocked > 0 {
			f.Verdict.Next += fmt.Sprintf(" %s in which later events wait.", keysBlock(blocked))
		}
	case retrying > 0:
		f.Verdict.Heading = fmt.Sprintf("No event is dead; %s%s tried again by themselves.",
			plural(retrying, "event"), plus+are(retrying))
	default:
		f.Verdict.Heading = "No event has failed."
		if m.Hidden > 0 {
			f.Verdict.Next = plural(m.Hidden, "group") + " that somebody muted not shown."
		}
	}
	f.Title = f.Verdict.Heading
	return f, nil
}

func are(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}

func keysBlock(n int) string {
	if n == 1 {
		return "They block 1 key,"
	}
	return "They block " + number(n) + " keys,"
}

func withDead(all []ops.Group) (n int) {
	for _, g := range all {
		if g.Dead > 0 {
			n++
		}
	}
	return n
}

// groupHref is the address of a group of failures.
func (v *visit) groupHref(fingerprint string) string {
	return v.base + "groups/" + url.PathEscape(fingerprint)
}
