package outboxui

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// trouble is something that is wrong, and what to do about it.
type trouble struct {
	kind    string // of the verdict: bad, warn or run
	state   state
	heading string
	next    string
	last    string // before text
	text    string // of others
	acts    []act
	link    act
}

// oldAfter is how long an event waits without a reason before the page mentions it.
const oldAfter = 10 * time.Minute

// verdict is the first sentence of the overview: the worst trouble, and the others below it.
func (v *visit) verdict(l *look) verdict {
	all := v.troubles(l)
	if len(all) == 0 {
		return v.well(l)
	}
	first := all[0]
	d := verdict{
		Kind: first.kind, States: []state{first.state}, Heading: first.heading, Next: first.next, Last: first.last,
		Text: first.text, Acts: first.acts,
	}
	if len(d.Acts) == 0 && first.link.Href != "" {
		first.link.Class = "main"
		d.Acts = []act{first.link}
	}
	for _, t := range all[1:] {
		d.Also = append(d.Also, also{State: t.state, Text: t.heading, Error: t.text, Next: t.next, Link: t.link})
	}
	return d
}

// well is the first sentence if nothing is wrong.
func (v *visit) well(l *look) verdict {
	waiting := l.waiting()
	d := verdict{States: []state{{"ok", "well"}}}
	switch {
	case waiting.N == 0 && len(l.relays) == 0 && len(l.last) == 0:
		d.States = []state{{"wait", "empty"}}
		d.Heading = "The outbox is empty, and no relay is running."
		d.Next = "Start the service that publishes events, or `outbox relay`. Nothing is wrong with an empty table."
	case waiting.N == 0:
		d.Heading = "All is well: every event is out."
	default:
		d.Heading = fmt.Sprintf("All is well: %s %s, the oldest for %s.", number(waiting),
			verbOf(waiting.N, "event waits", "events wait"),
			span(l.backlog.OldestAge))
	}
	return d
}

// troubles are the problems, the worst first.
func (v *visit) troubles(l *look) (all []trouble) {
	all = append(all, v.noRelay(l)...)
	all = append(all, v.downDestinations(l)...)
	all = append(all, v.deadGroups(l)...)
	all = append(all, v.untaken(l)...)
	all = append(all, v.parked(l)...)
	all = append(all, v.deadEffectsOf(l)...)
	all = append(all, v.openPlans(l)...)
	all = append(all, v.relayTroubles(l)...)
	all = append(all, v.paused(l)...)
	if len(all) == 0 && l.backlog.OldestAge > oldAfter && l.waiting().N > 0 {
		all = append(all, trouble{
			kind: "warn", state: state{"warn", "slow"},
			heading: "Events wait for longer than " + span(oldAfter) + ": the oldest for " +
				span(l.backlog.OldestAge) + ".",
			next: "Open the oldest one: its page says why it is where it is.",
			link: act{Label: "See what waits", Href: v.base + "events?status=new&status=retry&order=oldest"},
		})
	}
	rank := map[string]int{"bad": 0, "warn": 1, "run": 2}
	slices.SortStableFunc(all, func(a, b trouble) int { return rank[a.kind] - rank[b.kind] })
	return all
}

func (v *visit) noRelay(l *look) []trouble {
	waiting := l.waiting()
	if slices.Contains(l.unknown, "relays") || l.alive() > 0 || waiting.N == 0 {
		return nil
	}
	return []trouble{{
		kind: "bad", state: state{"down", "no relay"},
		heading: number(waiting) + " " + verbOf(waiting.N, "event waits", "events wait") + ", and no relay is alive.",
		next:    "Start the service that runs the relay, or `outbox relay`. Nothing is lost meanwhile.",
		link:    act{Label: "See the relays", Href: v.base + "relays"},
	}}
}

// downDestinations is about the destinations that relays have stopped, grouped by refusal.
func (v *visit) downDestinations(l *look) (all []trouble) {
	type outage struct {
		topics  []string
		since   time.Time
		waiting int64
	}
	byText := map[string]*outage{}
	var order []string
	stopped := l.stopped()
	topics := make([]string, 0, len(stopped))
	for topic := range stopped {
		topics = append(topics, topic)
	}
	slices.SortFunc(topics, func(a, b string) int { return stopped[a].Since.Compare(stopped[b].Since) })
	for _, topic := range topics {
		s := stopped[topic]
		text := ""
		if s.Err != nil {
			text = s.Err.Error()
		}
		o := byText[text]
		if o == nil {
			o = &outage{since: s.Since}
			byText[text], order = o, append(order, text)
		}
		o.topics = append(o.topics, topic)
		for _, d := range l.destinations {
			if d.Topic == topic {
				o.waiting += d.Pending
			}
		}
	}
	for _, text := range order {
		o := byText[text]
		names := o.topics
		if len(names) > 4 {
			names = append(slices.Clone(names[:3]), number(len(names)-3)+" others")
		}
		q := url.Values{"topic": o.topics}
		all = append(all, trouble{
			kind:  "bad",
			state: state{"down", "down for " + span(l.now.Sub(o.since))},
			heading: fmt.Sprintf("%s %s %s no events.", verbOf(len(o.topics), "Destination", "Destinations"),
				ops.Printable(listed(names)), verbOf(len(o.topics), "takes", "take")),
			next: "Repair the broker, or correct its address: the relays keep trying, and nobody has to start them. " +
				number(o.waiting) + " " +
				verbOf(int(o.waiting), "event waits, and is safe.", "events wait, and are safe.") +
				" Waiting spends no attempts.",
			last: "The last refusal:", text: text,
			acts: []act{
				{Label: "See what waits", Href: v.base + "events?" +
					url.Values{"status": {"new", "retry"}, "topic": o.topics[:1]}.Encode()},
				v.button("Pause…", "", "pause", q, ""),
			},
			link: act{Label: "See what waits", Href: v.base + "events?" +
				url.Values{"status": {"new", "retry"}, "topic": o.topics[:1]}.Encode()},
		})
	}
	return all
}

func (v *visit) deadGroups(l *look) (all []trouble) {
	more, hidden := 0, 0
	for _, g := range l.groups.Groups {
		if g.Dead == 0 || g.Muted {
			continue
		}
		if len(all) == 3 {
			more, hidden = more+1, hidden+g.Dead
			continue
		}
		waits := ""
		if g.BlockedKeys > 0 {
			waits = ", and " + plural(g.BlockedKeys, "key") + " " + verbOf(g.BlockedKeys, "waits", "wait")
		}
		plus := ""
		if l.groups.Truncated {
			plus = " or more"
		}
		t := trouble{
			kind: "bad", state: state{"dead", number(g.Dead) + plus + " dead"},
			heading: fmt.Sprintf("%s%s of %s died%s.", plural(g.Dead, "event"), plus, cut(g.Topic, 60), waits),
			next:    strings.TrimSuffix(g.Fix, ".") + "; then redrive one event.",
			last:    "They failed with", text: g.Pattern,
			link: act{Label: "Open the group", Href: v.groupHref(g.Fingerprint)},
		}
		if g.Pattern == "" {
			t.text = g.ErrorCode
		}
		if g.Stored.Note != "" {
			t.next += " " + cut(g.Stored.Actor, 60) + " wrote: " + cut(g.Stored.Note, 200)
		}
		all = append(all, t)
	}
	if more > 0 {
		all = append(all, trouble{
			kind: "bad", state: state{"dead", number(hidden) + " dead"}, heading: plural(more, "other group") +
				" of failures.",
			link: act{Label: "Open the groups", Href: v.base + "groups"},
		})
	}
	return all
}

// untaken is about topics that no relay takes.
func (v *visit) untaken(l *look) (all []trouble) {
	if slices.Contains(l.unknown, "relays") || l.alive() == 0 {
		return nil
	}
	var topics []string
	for _, d := range l.destinations {
		if d.Pending > 0 && !l.taken(d.Topic) {
			topics = append(topics, d.Topic)
		}
	}
	if len(topics) == 0 {
		return nil
	}
	return []trouble{{
		kind: "bad", state: state{"down", "no relay"},
		heading: "No relay that is alive takes events of " + ops.Printable(listed(topics[:min(len(topics), 4)])) + ".",
		next:    "Add the topic to a relay, or start the relay that takes it.",
		link:    act{Label: "See the relays", Href: v.base + "relays"},
	}}
}

// parked is about what consumers have given up.
func (v *visit) parked(l *look) (all []trouble) {
	for _, h := range l.consumers.Handlers {
		if h.Dead == 0 || len(all) == 3 {
			continue
		}
		who := "Consumer " + cut(h.Consumer, 60)
		if h.Handler != h.Consumer {
			who = "Handler " + cut(h.Handler, 60) + " of consumer " + cut(h.Consumer, 60)
		}
		all = append(all, trouble{
			kind: "warn", state: state{"parked", number(ops.Count{N: h.Dead, More: h.More}) + " parked"},
			heading: who + " gave up " + plural(h.Dead, "message") + ", the oldest " + span(h.OldestDead) + " ago.",
			next:    "Remove the cause, then redrive one message and have it delivered again.",
			link: act{Label: "Open " + cut(h.Consumer, 40), Href: v.base + "consumers?" +
				url.Values{"consumer": {h.Consumer}, "status": {"dead"}}.Encode()},
		})
	}
	return all
}

func (v *visit) deadEffectsOf(l *look) (all []trouble) {
	for _, c := range l.effects.Channels {
		if c.Dead == 0 || len(all) == 3 {
			continue
		}
		all = append(all, trouble{
			kind: "bad", state: state{"dead", number(c.Dead) + " dead"},
			heading: number(c.Dead) + " " + nouns(int(c.Dead), "effect") + " of " + cut(c.Channel, 60) + " " +
				verbOf(int(c.Dead), "was", "were") + " given up.",
			next: "Repair the cause, then redrive one of them.",
			link: act{Label: "Open the effects", Href: v.base + "effects?" +
				url.Values{"channel": {c.Channel}}.Encode()},
		})
	}
	return all
}

func (v *visit) openPlans(l *look) (all []trouble) {
	for i := range l.plans {
		p := &l.plans[i]
		if p.State.Ended() || len(all) == 3 {
			continue
		}
		shape := planState(p)
		href := v.base + "plans/" + p.ID
		if p.Filter.Fingerprint != "" {
			href = v.groupHref(p.Filter.Fingerprint)
		}
		t := trouble{
			kind: "warn", state: state{shape.Kind, "plan " + shape.Text},
			link: act{Label: "Open the plan", Href: href},
		}
		t.heading = fmt.Sprintf("A %s of %s waits for its next step.", p.Action, plural(p.Events, "event"))
		switch {
		case p.Running():
			t.kind = "run"
			t.heading = fmt.Sprintf("A %s of %s runs: %s are worked off.", p.Action, plural(p.Events, "event"),
				number(p.Position))
		case p.State == ops.PlanStopped:
			t.kind = "bad"
			t.heading = fmt.Sprintf("A %s of %s stopped by itself: %s.", p.Action, plural(p.Events, "event"),
				cut(p.Note, 200))
			t.next = "Repair the cause, then go on: it begins with one event again."
		}
		all = append(all, t)
	}
	return all
}

func (v *visit) relayTroubles(l *look) (all []trouble) {
	for _, r := range l.relays {
		if !r.Alive() || len(all) == 3 {
			continue
		}
		t := trouble{
			kind: "warn", state: state{"warn", "relay"},
			link: act{Label: "See the relays", Href: v.base + "relays"},
		}
		switch {
		case r.PollErr != nil:
			t.heading, t.text = "Relay "+cut(r.Node, 60)+" cannot poll.", r.PollErr.Error()
			t.last, t.next = "The database says", "Give its role the rights, or repair what the error names."
		case r.Stuck > 0:
			t.heading = "Relay " + cut(r.Node, 60) + " waits for " + plural(r.Stuck, "publisher call") +
				" that do not return."
			t.next = "Take a goroutine dump of that process, restart it, and repair the publisher."
		default:
			continue
		}
		all = append(all, t)
	}
	return all
}

func (v *visit) paused(l *look) (all []trouble) {
	for _, p := range l.pauses {
		if len(all) == 5 {
			break
		}
		what, q := pauseOf(p)
		ends := "until somebody resumes it"
		if !p.Until.IsZero() {
			ends = "until " + p.Until.UTC().Format("15:04 on 2 January")
		}
		resume := v.button("Resume…", "", "resume", q, "")
		all = append(all, trouble{
			kind: "warn", state: state{"paused", "paused"},
			heading: fmt.Sprintf("%s has paused %s, %s: %s.", cut(p.Actor, 60), what, ends,
				strings.TrimSuffix(cut(p.Reason, 200), ".")),
			next: "Its events wait in the table, and spend no attempts.",
			acts: []act{resume}, link: resume,
		})
	}
	return all
}

// pauseOf names the target of a pause.
func pauseOf(p core.Pause) (string, url.Values) {
	switch {
	case p.All:
		return "everything", url.Values{"all": {"1"}}
	case p.Tenant != "":
		return "tenant " + cut(p.Tenant, 64), url.Values{"tenant": {p.Tenant}}
	}
	return "destination " + cut(p.Topic, 60), url.Values{"topic": {p.Topic}}
}
