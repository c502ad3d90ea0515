package outboxui

import (
	"bytes"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// frame is what every page has around its content.
type frame struct {
	Title, Template string
	Status          int // of the answer; 0: 200
	Current         string
	Environment     Environment
	Outbox          string
	Database        string
	Root, Base      string
	Outboxes        []sibling
	Pages           []navigation
	Actor, Rights   string
	Verdict         verdict
	Now             time.Time // of the database's clock; zero: nothing was read
	Follow          int       // seconds until the page is read again; 0: never
	Live            bool      // something runs: a script reloads the page
	Again, Every    string    // the addresses of "Read again" and "Read again every 5 s"
	Query           url.Values
	Main            any
}

// sibling is an outbox in the list of outboxes.
type sibling struct {
	Name, Href string
	Here       bool
	State      state
}

type navigation struct {
	Name, Href string
	Here, Warn bool
	Count      string // empty: none
	Of         string // the counted things, for people who do not see the page
}

// state is a shape, a colour and a word.
type state struct{ Kind, Text string }

// verdict is the first sentence of a page: the problem and the remedy.
type verdict struct {
	Kind    string // "", bad, warn or run
	Trail   []crumb
	States  []state
	Since   string // a sentence after the states
	Heading string
	Next    string
	Last    string // before Text
	Text    string // of others
	Acts    []act
	Also    []also
	More    act // a link behind Next
}

type crumb struct {
	Label, Href string
	Code        bool
}

// also is another trouble, below the first one.
type also struct {
	State             state
	Text, Error, Next string
	Link              act
}

// act is a button that leads to a page which asks first, or a disabled button with the reason.
type act struct {
	Label, Href, Class, Why string
}

// button is an act that needs the right to act.
func (v *visit) button(label, class, do string, params url.Values, why string) act {
	if w := v.why(Act); w != "" {
		why = w
	}
	return act{Label: label, Class: class, Href: v.base + "confirm?" + confirmQuery(do, params), Why: why}
}

func confirmQuery(do string, params url.Values) string {
	q := url.Values{"do": {do}}
	maps.Copy(q, params)
	return q.Encode()
}

// Acts adds buttons to the verdict.
func (f *frame) Acts(all ...act) { f.Verdict.Acts = append(f.Verdict.Acts, all...) }

// Clock writes a time of the database's clock.
func (f *frame) Clock(at time.Time) template.HTML { return clock(at, f.Now, "15:04:05") }

// Exact is Clock with milliseconds.
func (f *frame) Exact(at time.Time) template.HTML { return clock(at, f.Now, "15:04:05.000") }

// Moment is Clock without seconds.
func (f *frame) Moment(at time.Time) template.HTML { return clock(at, f.Now, "15:04") }

// Day writes a time with its day.
func (f *frame) Day(at time.Time) template.HTML {
	return clock(at, time.Time{}, "2 January 2006, 15:04:05")
}

// Ago is the time since then.
func (f *frame) Ago(at time.Time) string { return span(f.Now.Sub(at)) }

// State is the state of an event.
func (f *frame) State(e ops.Event) state { return stateOf(&e, f.Now) }

// Event is the address of an event.
func (f *frame) Event(e ops.Event) string { return f.Base + "events/" + e.ID.String() }

// Key names an event by its place.
func (f *frame) Key(e ops.Event) string { return placeOf(&e) }

// Short shortens a text text from elsewhere, such as an error.
func (f *frame) Short(s string) string { return cut(s, 200) }

var pageNames = []struct{ path, name string }{
	{"", "Overview"},
	{"events", "Events"},
	{"groups", "Groups"},
	{"keys", "Keys"},
	{"consumers", "Consumers"},
	{"effects", "Effects"},
	{"httpkeys", "HTTP keys"},
	{"relays", "Relays"},
	{"plans", "Plans"},
	{"audit", "Audit"},
	{"doctor", "Doctor"},
}

// frame begins a page.
func (v *visit) frame(current, title string) *frame {
	f := &frame{
		Title: title, Template: current, Current: current, Environment: v.ui.cfg.Environment,
		Outbox: v.box.Name, Database: v.box.Database, Root: v.root, Base: v.base,
		Actor: v.actor, Rights: v.rights.String(), Query: v.URL.Query(),
	}
	if seconds, err := strconv.Atoi(f.Query.Get("follow")); err == nil && seconds > 0 {
		f.Follow = max(2, min(seconds, 300))
	}
	q := v.URL.Query()
	q.Del("follow")
	f.Again = "?" + q.Encode()
	q.Set("follow", "5")
	f.Every = "?" + q.Encode()
	f.Verdict.Heading = title
	return f
}

// maySee reports whether the person may see another outbox of the page.
func (v *visit) maySee(b *box) bool {
	r := v.Clone(v.ctx())
	r.URL.Path, r.URL.RawPath = "/"+b.Name+"/", ""
	_, _, err := v.ui.authorize(r)
	return err == nil
}

// head fills in the navigation and the list of outboxes.
func (v *visit) head(f *frame) {
	own := v.box.read(v)
	for _, p := range pageNames {
		n := navigation{Name: p.name, Href: v.base + p.path, Here: p.path == f.Current}
		if p.path == "groups" && own.groups.N > 0 {
			n.Count, n.Of = number(own.groups), "dead "+nouns(own.groups.N, "group")
		}
		if p.path == "consumers" && own.parked.N > 0 {
			n.Count, n.Of, n.Warn = number(own.parked), "parked "+nouns(own.parked.N, "message"), true
		}
		f.Pages = append(f.Pages, n)
	}
	for _, b := range v.ui.boxes {
		if b != v.box && !v.maySee(b) {
			continue
		}
		s := sibling{Name: b.Name, Href: v.root + b.Name + "/", Here: b == v.box, State: state{"ok", "well"}}
		switch of := b.read(v); {
		case of.err != nil:
			s.State = state{"warn", "not known"}
		case of.bad:
			s.State = state{"down", "needs you"}
		}
		f.Outboxes = append(f.Outboxes, s)
	}
}

func (v *visit) render(f *frame) {
	v.head(f)
	if f.Template == "" {
		f.Template = "overview"
	}
	var out bytes.Buffer
	if err := templates[f.Template].ExecuteTemplate(&out, "layout", f); err != nil {
		v.ui.cfg.Logger.ErrorContext(v.ctx(), "outboxui: a template failed", "template", f.Template, "error", err)
		http.Error(v.w, "The page cannot be shown.", http.StatusInternalServerError)
		return
	}
	header := v.w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	if f.Follow > 0 && v.Method != http.MethodPost {
		header.Set("Refresh", strconv.Itoa(f.Follow))
	}
	if f.Status != 0 {
		v.w.WriteHeader(f.Status)
	}
	if v.Method != http.MethodHead {
		_, _ = v.w.Write(out.Bytes())
	}
}
