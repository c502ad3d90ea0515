package outboxui

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// overviewView is the first page of an outbox.
type overviewView struct {
	Figures      []figure
	History      *historyView
	Destinations []destinationRow
	Consumers    []consumerRow
	Relays       []relayRow
	Rest         []fact
	MayAct       string // why not; empty: the person may
	Commands     []string
}

// figure is a number in large type.
type figure struct {
	Name, Value, Kind, Below string
	Link                     string
}

type fact struct {
	Name, Text, Link string // the link is behind the text
	State            *state
}

type destinationRow struct {
	ops.Destination
	Shape   state
	Small   string // below the state
	Since   time.Time
	Blocked int
	Rate    string // published per minute; empty: not known
	Acts    []act
	More    bool
}

func overview(v *visit, _ string) (*frame, error) {
	l, err := v.look()
	if err != nil {
		return nil, err
	}
	v.box.know(l)
	f := v.frame("", "Overview")
	f.Template, f.Now = "overview", l.now
	m := &overviewView{MayAct: v.why(Act), Commands: []string{
		commandOf("status"), commandOf("groups"),
		commandOf("doctor"),
	}}
	if m.Relays, _ = relayRows(l.relays); len(m.Relays) > 20 {
		m.Relays = m.Relays[:20]
	}
	for i := range m.Relays {
		m.Relays[i].Problems = nil // the first sentences have them
	}
	if m.Consumers = consumerRows(l.consumers.Handlers); len(m.Consumers) > 20 {
		m.Consumers = m.Consumers[:20]
	}
	recorded := m.addHistory(v, &l)
	m.destinations(v, &l)
	m.figures(v, &l, recorded)
	m.rest(v, &l)
	f.Verdict = v.verdict(&l)
	f.Title = f.Verdict.Heading
	f.Live = slices.ContainsFunc(l.plans, func(p ops.StoredPlan) bool { return p.Running() })
	f.Main = m
	return f, nil
}

// addHistory reads the charts. Without them the page is whole.
func (m *overviewView) addHistory(v *visit, l *look) *slots {
	var down []downSpan
	for _, s := range l.stopped() {
		down = append(down, downSpan{s.Since, l.now})
	}
	if len(down) > 0 { // overlapping ones count once
		slices.SortFunc(down, func(a, b downSpan) int { return a.from.Compare(b.from) })
		down = down[:1]
	}
	var err error
	var recorded *slots
	m.History, recorded, err = v.historyView(len(down) > 0 || l.backlog.Dead > 0, int64(l.waiting().N), down)
	if err != nil {
		l.unknown = append(l.unknown, "history")
	}
	return recorded
}

// maxRates is how many destinations are shown with their rate: a statement each.
const maxRates = 12

func (m *overviewView) figures(v *visit, l *look, recorded *slots) {
	waiting := l.waiting()
	oldest := figure{Name: "Oldest waiting", Value: span(l.backlog.OldestAge), Below: "of all that wait"}
	switch {
	case waiting.N == 0:
		oldest.Value, oldest.Below = "none", "nothing waits"
	case l.backlog.OldestAge > 10*time.Minute:
		oldest.Kind = "warn"
	}
	worst := ""
	for _, d := range l.destinations {
		if waiting.N > 0 && d.Oldest == l.oldest() {
			worst = d.Topic
		}
	}
	if worst != "" {
		oldest.Below, oldest.Link = "for "+worst, v.base+"events?status=new&status=retry&order=oldest&"+
			url.Values{"topic": {worst}}.Encode()
	}
	dead := ops.Count{N: int(l.backlog.Dead), More: l.backlog.More && l.backlog.Dead >= l.backlog.Limit}
	blocked := ops.Count{N: int(l.backlog.BlockedKeys), More: dead.More}
	m.Figures = []figure{
		oldest,
		{Name: "Waiting", Value: number(waiting), Below: waitsFor(l.destinations), Link: v.base +
			"events?status=new&status=retry"},
		{
			Name: "Dead", Value: number(dead), Kind: badIf(dead.N > 0), Below: "in " +
				plural(withDead(l.groups.Groups), "group"),
			Link: v.base + "groups",
		},
		{
			Name:  "Blocked keys",
			Value: number(blocked),
			Kind:  badIf(blocked.N > 0),
			Below: "later events wait in them",
			Link:  v.base + "keys",
		},
	}
	if blocked.N == 0 {
		m.Figures[3].Below = "every key goes on"
	}
	if l.consumers.There {
		m.Figures = append(m.Figures, parkedFigure(v, l.consumers.Handlers))
	}
	if recorded != nil {
		now, before := recorded.perMinute()
		f := figure{
			Name: "Published per minute", Value: number(math.Round(now)),
			Below: "in the last 5 minutes that are over",
		}
		if before > 0 {
			f.Below = number(math.Round(before)) + " an hour ago"
		}
		m.Figures = append(m.Figures, f)
	}
	if !slices.Contains(l.unknown, "relays") {
		m.Figures = append(m.Figures, figure{
			Name: "Relays alive", Kind: badIf(l.alive() == 0),
			Value: fmt.Sprintf("%d of %d", l.alive(), len(l.relays)), Below: versions(l.relays), Link: v.base +
				"relays",
		})
	}
}

// parkedFigure counts what consumers have given up.
func parkedFigure(v *visit, all []inbox.Backlog) figure {
	n, at := ops.Count{}, []string{}
	for _, h := range all {
		n.N, n.More = n.N+h.Dead, n.More || h.More
		if h.Dead > 0 && !slices.Contains(at, h.Consumer) {
			at = append(at, cut(h.Consumer, 40))
		}
	}
	f := figure{Name: "Parked by consumers", Value: number(n), Below: "every consumer goes on", Link: v.base +
		"consumers"}
	if n.N > 0 {
		f.Kind, f.Below = "warn", "at "+listed(at[:min(3, len(at))])
	}
	return f
}

func badIf(bad bool) string {
	if bad {
		return "bad"
	}
	return ""
}

// waitsFor names the destinations that most events wait for.
func waitsFor(all []ops.Destination) string {
	most := slices.DeleteFunc(slices.Clone(all), func(d ops.Destination) bool { return d.Pending == 0 })
	if len(most) == 0 {
		return "everything is out"
	}
	slices.SortStableFunc(most, func(a, b ops.Destination) int { return int(b.Pending - a.Pending) })
	text := number(most[0].Pending) + " for " + cut(most[0].Topic, 40)
	if len(most) > 1 {
		text += ", " + plural(len(most)-1, "other topic") + " beside it"
	}
	return text
}

func versions(all []core.RelayStatus) string {
	var names []string
	for _, r := range all {
		if r.Alive() && r.Version != "" && !slices.Contains(names, r.Version) {
			names = append(names, cut(r.Version, 24))
		}
	}
	slices.Sort(names)
	switch len(names) {
	case 0:
		return "none is alive"
	case 1:
		return "of " + names[0]
	}
	return listed(names)
}

func (m *overviewView) destinations(v *visit, l *look) {
	stopped := l.stopped()
	blocked := map[string]int{}
	for _, g := range l.groups.Groups {
		blocked[g.Topic] += g.BlockedKeys
	}
	all := slices.Clone(l.destinations)
	add := func(topic string) { // it has no events, but a state to show
		if topic != "" && !slices.ContainsFunc(all, func(d ops.Destination) bool { return d.Topic == topic }) {
			all = append(all, ops.Destination{Topic: topic})
		}
	}
	for topic := range stopped {
		add(topic)
	}
	for _, p := range l.pauses {
		add(p.Topic)
	}
	for _, r := range l.rates {
		add(r.Topic)
	}
	for _, r := range l.relays {
		for _, topic := range r.Topics {
			add(topic)
		}
	}
	for _, d := range all {
		row := destinationRow{
			Destination: d, Blocked: blocked[d.Topic], Shape: state{"ok", "takes events"},
			More: l.more,
		}
		topic := url.Values{"topic": {d.Topic}}
		pause := v.button("Pause…", "", "pause", topic, "")
		for _, r := range l.rates {
			if r.Topic == d.Topic {
				row.Small = limits(r) + ", by " + cut(r.Actor, 60)
			}
		}
		s, down := stopped[d.Topic]
		switch {
		case down:
			row.Shape, row.Since = state{"down", "down"}, s.Since
		case !slices.Contains(l.unknown, "relays") && d.Pending > 0 && !l.taken(d.Topic):
			row.Shape = state{"down", "no relay"}
		}
		for _, p := range l.pauses {
			if p.Tenant == "" && p.Covers(d.Topic, "") {
				row.Shape, row.Since = state{"paused", "paused by " + cut(p.Actor, 60)}, p.Since
				row.Small = ops.Printable(p.Reason)
				if !p.All {
					pause = v.button("Resume…", "", "resume", topic, "")
				}
			}
		}
		row.Acts = []act{pause, v.button("Rate…", "", "rate", topic, "")}
		if m.History != nil && len(m.Destinations) < maxRates {
			if perMinute, ok := v.recent(d.Topic); ok {
				row.Rate = number(math.Round(perMinute))
			}
		}
		m.Destinations = append(m.Destinations, row)
	}
	rank := func(d destinationRow) int {
		return slices.Index([]string{"down", "paused", "ok"}, d.Shape.Kind)
	}
	slices.SortStableFunc(m.Destinations, func(a, b destinationRow) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		if d := b.Pending + b.Dead - a.Pending - a.Dead; d != 0 {
			return int(d)
		}
		return strings.Compare(a.Topic, b.Topic)
	})
}

// limits describes the limit of a destination.
func limits(r core.Rate) string {
	var parts []string
	if r.PerSecond > 0 {
		parts = append(parts, "at most "+strconv.FormatFloat(r.PerSecond, 'f', -1, 64)+" a second")
	}
	if r.InFlight > 0 {
		parts = append(parts, number(r.InFlight)+" at a time")
	}
	return strings.Join(parts, ", ")
}

func (m *overviewView) rest(v *visit, l *look) {
	add := func(f fact) { m.Rest = append(m.Rest, f) }
	tenants := 0
	for _, p := range l.pauses {
		if p.Tenant != "" {
			tenants++
		}
	}
	if l.effects.There {
		waiting, dead := int64(0), int64(0)
		for _, c := range l.effects.Channels {
			waiting, dead = waiting+c.Pending, dead+c.Dead
		}
		f := fact{Name: "Effects", Text: number(waiting) + " wait, none is dead", Link: v.base + "effects"}
		if dead > 0 {
			f.Text, f.State = number(waiting)+" wait, "+number(dead)+" are dead", &state{"dead", "dead"}
		}
		add(f)
	}
	if l.keys.There {
		held, abandoned, done := 0, 0, ops.Count{}
		for _, s := range l.keys.Scopes {
			held, abandoned, done.N, done.More = held+s.Held, abandoned+s.Abandoned, done.N+s.Done, done.More || s.More
		}
		f := fact{
			Name: "HTTP keys", Link: v.base + "httpkeys",
			Text: number(held) + " held, " + number(abandoned) + " abandoned, " + number(done) + " done",
		}
		if abandoned > 0 {
			f.State = &state{"warn", "abandoned"}
		}
		add(f)
	}
	pauses := fact{Name: "Pauses", Text: "none"}
	if n := len(l.pauses); n > 0 {
		pauses.Text = plural(n, "pause")
		if tenants > 0 {
			pauses.Text += ", " + number(tenants) + " of them of tenants"
		}
	}
	add(pauses)
	plans := fact{Name: "Plans", Text: "none is open", Link: v.base + "plans"}
	running, open := 0, 0
	for i := range l.plans {
		switch {
		case l.plans[i].Running():
			running++
		case !l.plans[i].State.Ended():
			open++
		}
	}
	if running+open > 0 {
		plans.Text = fmt.Sprintf("%d running, %d waiting for a person", running, open)
	}
	add(plans)
	last := fact{Name: "Audit", Text: "nobody has changed anything", Link: v.base + "audit"}
	if len(l.last) > 0 {
		r := l.last[0]
		last.Text = cut(r.Actor, 60) + ": " + cut(r.Action, 40) + ", " + span(l.now.Sub(r.At)) + " ago"
	}
	add(last)
	check := fact{Name: "Doctor", Text: "checks the database when you open it", Link: v.base + "doctor"}
	if v.box.Doctor == nil {
		check.Text = "a command checks the database"
	}
	add(check)
	if len(l.unknown) > 0 {
		add(fact{
			Name: "Not known", Text: listed(l.unknown) +
				": a right is missing, or a table. The log has the error.",
			State: &state{"warn", "not known"},
		})
	}
}
