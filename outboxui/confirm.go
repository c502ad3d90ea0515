package outboxui

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// proposal is a change that a person is about to make: the events that it touches, and the way to
// make it. It is made anew for the page that asks and for the request that confirms. If both
// differ, somebody else was faster.
type proposal struct {
	Trail         []crumb
	Heading, Next string
	Facts         []fact
	Note          string // below the facts
	Fields        []input
	Limits        string // summary of the fields that are hidden at first; empty: all are shown
	Reason        string // why a reason was given before; empty: one is asked for
	Button, Class string
	Back          string
	Commands      []string
	Foot          string // below the commands
	Rows          []ops.Event
	RowsTitle     string
	RowsHref      string
	Diff          []diffLine // of an edit
	Digest        string     // names the state that the change is about; empty: any

	keep url.Values // fields of the address that the form sends back
	do   func(reason string) (*frame, error)
}

// input is a field of the form.
type input struct {
	Name, Label, Value string
	Required           bool
	Choices            []choiceOf
	Lines              int // more than 0: a text of so many lines
	Mode               string
}

type choiceOf struct {
	Value, Label string
	Selected     bool
}

// confirmView is the page that asks.
type confirmView struct {
	*proposal
	Do     string
	Hidden []field
	Again  string // the reason that was given before the state changed
}

// actions make proposals, by the value of the field "do".
var actions map[string]func(v *visit) (*proposal, error)

func init() { // the actions refer to pages, and pages to actions
	actions = map[string]func(v *visit) (*proposal, error){
		"redrive":      func(v *visit) (*proposal, error) { return v.rows(ops.ActionRedrive) },
		"discard":      func(v *visit) (*proposal, error) { return v.rows(ops.ActionDiscard) },
		"replay":       proposeReplay,
		"plan-redrive": func(v *visit) (*proposal, error) { return v.freeze(ops.ActionRedrive) },
		"plan-discard": func(v *visit) (*proposal, error) { return v.freeze(ops.ActionDiscard) },
		"plan-step":    proposeStep,
		"plan-pause":   func(v *visit) (*proposal, error) { return v.endPlan("pause") },
		"plan-cancel":  func(v *visit) (*proposal, error) { return v.endPlan("cancel") },
		"pause":        proposePause,
		"resume":       proposeResume,
		"rate":         proposeRate,
		"group-note":   proposeNote,
		"edit":         proposeEdit,

		"release":         proposeRelease,
		"message-redrive": func(v *visit) (*proposal, error) { return v.messages("redrive") },
		"message-discard": func(v *visit) (*proposal, error) { return v.messages("discard") },
		"effect-redrive":  func(v *visit) (*proposal, error) { return v.effects("redrive") },
		"effect-discard":  func(v *visit) (*proposal, error) { return v.effects("discard") },
	}
}

// propose makes the proposal of a request, for a person who may act.
func (v *visit) propose() (*proposal, error) {
	make, known := actions[v.form.Get("do")]
	if !known {
		return nil, refusal{http.StatusBadRequest, "There is no such change."}
	}
	if err := v.may(Act); err != nil {
		return nil, err
	}
	return make(v)
}

// confirm shows what a change touches, and asks why.
func confirm(v *visit, _ string) (*frame, error) {
	p, err := v.propose()
	if err != nil {
		return v.orLost(err)
	}
	return v.asks(p, false), nil
}

// change makes a change that was confirmed.
func change(v *visit, _ string) (*frame, error) {
	p, err := v.propose()
	if err != nil {
		return v.orLost(err)
	}
	if v.form.Get("look") != "" { // a form with more than an address can have
		return v.asks(p, false), nil
	}
	if p.Digest != "" && v.form.Get("digest") != p.Digest {
		return v.asks(p, true), nil
	}
	reason := strings.TrimSpace(v.form.Get("reason"))
	if reason == "" && p.Reason == "" {
		return nil, refusal{http.StatusBadRequest, "A reason is required: it goes to the audit with your name."}
	}
	if p.do == nil {
		return nil, refusal{http.StatusBadRequest, "Something is missing in the form: go back, and fill it in."}
	}
	defer v.box.forget()
	f, err := p.do(reason)
	if err != nil {
		return v.orLost(err)
	}
	return f, nil
}

// asks shows the proposal. changed: it is another one than the person has confirmed.
func (v *visit) asks(p *proposal, changed bool) *frame {
	f := v.frame("confirm", p.Heading)
	f.Current, f.Now = "-", v.now()
	if len(p.Rows) > 0 {
		f.Now = p.Rows[0].ReadAt
	}
	f.Verdict = verdict{
		Kind: "warn", Trail: p.Trail, States: []state{{
			"wait",
			"Nothing is changed yet",
		}}, Heading: p.Heading, Next: p.Next,
	}
	if changed {
		f.Status = http.StatusConflict
		f.Verdict.States = []state{{"warn", "Nothing is changed: it is not what you saw"}}
		f.Verdict.Next = "Somebody else, or a relay, has changed it since this page asked you. Look at it again. " +
			p.Next
	}
	m := &confirmView{proposal: p, Do: v.form.Get("do"), Again: v.form.Get("reason")}
	m.Facts = append([]fact{{Name: "Database", Text: v.box.Database}}, m.Facts...)
	m.Facts = append(m.Facts, fact{Name: "You", Text: v.actor + ", who may act here"})
	m.Hidden = append(m.Hidden, field{"do", m.Do}, field{"digest", p.Digest})
	if v.Method == http.MethodPost { // its address alone does not ask
		f.Again, f.Every = p.Back, "?follow=5"
	}
	own := []string{"do", "digest", "reason"}
	for _, in := range p.Fields {
		own = append(own, in.Name)
	}
	for name, values := range p.keep {
		for _, value := range values {
			if !slices.Contains(own, name) {
				m.Hidden = append(m.Hidden, field{name, value})
			}
		}
	}
	slices.SortStableFunc(m.Hidden, func(a, b field) int { return strings.Compare(a.Name, b.Name) })
	f.Main = m
	return f
}

// environment is " on production", or nothing.
func (v *visit) environment() string {
	if name := v.ui.cfg.Environment.Name; name != "" {
		return " on " + name
	}
	return ""
}

// on returns the values of these fields of the form.
func (v *visit) on(names ...string) url.Values {
	q := url.Values{}
	for _, name := range names {
		if values := v.form[name]; len(values) > 0 {
			q[name] = values
		}
	}
	return q
}

// input returns a field with the value that the form has, or a default.
func (v *visit) input(name, label, value string) input {
	if v.form.Has(name) {
		value = v.form.Get(name)
	}
	return input{Name: name, Label: label, Value: value}
}
