package contractoutbox

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Break is a change since a release that breaks a program.
type Break struct {
	// Event and Version name the schema that changed. Version 0: the event as a whole.
	Event   string
	Version int
	// Field is the place in the data, such as lines[].sku. Empty: the whole data.
	Field string
	// Rule names the kind of change: required, removed, optional, type, enum, range, length,
	// format, refused, other for fields; event, version, topic, order for the event.
	Rule string
	// Backward: present consumers cannot read data of the release, which may still be in the topic,
	// in dead letters and in replays. Forward: consumers of the release cannot read data of present
	// producers.
	Backward, Forward bool

	text, breaks, advice string
}

// ID names the break for Config.Allow: event/version/field/rule, such as order.placed/2/total/type.
func (b Break) ID() string { return fmt.Sprintf("%s/%d/%s/%s", b.Event, b.Version, b.Field, b.Rule) }

// String is one line: the change, the programs that it breaks, and the remedy.
func (b Break) String() string {
	var s strings.Builder
	s.WriteString(b.Event)
	if b.Version > 0 {
		fmt.Fprintf(&s, " version %d", b.Version)
	}
	if b.Field != "" {
		fmt.Fprintf(&s, ", field %s", b.Field)
	}
	fmt.Fprintf(&s, ": %s: %s. %s. [%s]", b.text, b.breaks, b.advice, b.ID())
	return s.String()
}

// ErrIncompatible: the catalog breaks programs that the release did not.
var ErrIncompatible = errors.New("contractoutbox: catalog is not compatible with the release")

// Compatible returns an error that wraps ErrIncompatible and has a line for each Break, or nil.
func (g *Generator) Compatible(r *Baseline) error {
	breaks := g.Breaks(r)
	if len(breaks) == 0 {
		return nil
	}
	lines := make([]string, len(breaks))
	for i, b := range breaks {
		lines[i] = "\n  " + b.String()
	}
	return fmt.Errorf("%w %s:%s", ErrIncompatible, r.name, strings.Join(lines, ""))
}

// Breaks returns the changes of the catalog since a release that break a program, by
// Config.Compatibility, except for Config.Allow:
//
//   - within a version: data that a reader of the other side might refuse
//   - a version that is no longer declared, a lower version, an event that is gone and was not
//     deprecated in the release
//   - another topic, key or aggregate
//
// A new event and a new version break nothing, because older consumers wait for their deployment:
// deploy the consumers of a new version first. Changes of texts and examples break nothing.
func (g *Generator) Breaks(r *Baseline) []Break {
	var breaks []Break
	for _, messages := range r.messages {
		breaks = append(breaks, g.eventBreaks(r, messages)...)
	}
	breaks = slices.DeleteFunc(breaks, func(b Break) bool { return slices.Contains(g.cfg.Allow, b.ID()) })
	slices.SortFunc(breaks, func(a, b Break) int {
		return cmp.Or(cmp.Compare(a.Event, b.Event), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.text, b.text))
	})
	return breaks
}

func (g *Generator) eventBreaks(r *Baseline, messages []released) (breaks []Break) {
	was := messages[0]
	for _, m := range messages {
		if m.Current {
			was = m
		}
	}
	i := slices.IndexFunc(g.events, func(e event) bool { return e.Type == was.EventType })
	if i < 0 {
		if was.Deprecated != "" {
			return nil
		}
		return []Break{{
			Event: was.EventType, Rule: "event", Forward: true, text: "the event is gone",
			breaks: "consumers of " + r.name + " get it no more",
			advice: "Set Spec.Deprecated, release, and remove it when no consumer is left",
		}}
	}
	e := g.events[i]
	add := func(rule, text, whom, advice string, args ...any) {
		breaks = append(breaks, Break{
			Event: e.Type, Rule: rule, Forward: true, text: fmt.Sprintf(text, args...), breaks: whom, advice: advice,
		})
	}
	from := topicOf(was.Topic, was.AggregateType, was.EventType)
	to := topicOf(e.Topic, e.AggregateType, e.Type)
	if from != to {
		add("topic", "the topic changed from %s to %s", "consumers of "+r.name+" read the other topic",
			"Publish to both topics until no consumer is left at the old one: core.Config.Routes", from, to)
	}
	newOrder := was.AggregateType != e.AggregateType
	if was.EventVersion == e.Version { // fields of another version may have other names
		newOrder = newOrder || was.Aggregate != e.Aggregate || was.Key != e.Key
	}
	if newOrder {
		add("order", "the key changed from %s to %s", "events before and after the deployment have no common order",
			"Keep AggregateType and the fields with the tags aggregate and key",
			orderOf(was.AggregateType, was.Aggregate, was.Key), orderOf(e.AggregateType, e.Aggregate, e.Key))
	}
	for _, m := range messages {
		breaks = append(breaks, g.versionBreaks(r, e, m)...)
	}
	return breaks
}

// topicOf is a topic in a text. One that is not declared may be another one by the producer's
// Routes.
func topicOf(topic, aggregateType, eventType string) string {
	text := shown(address(topic, aggregateType, eventType))
	if topic == "" {
		text += " by default"
	}
	return text
}

func orderOf(aggregateType, aggregate, key string) string {
	if key != "" {
		return "field " + key
	}
	return strings.Trim(aggregateType+"/"+aggregate, "/")
}

func (g *Generator) versionBreaks(r *Baseline, e event, m released) []Break {
	i := slices.IndexFunc(e.versions, func(v version) bool { return v.Number == m.EventVersion })
	if i < 0 {
		advice := fmt.Sprintf("Declare it by From(%d, ...) in Spec.Older", m.EventVersion)
		if m.EventVersion > e.Version {
			advice = "Versions only grow: declare at least this one"
		}
		return []Break{{
			Event: e.Type, Version: m.EventVersion, Rule: "version", Backward: true, text: "the version is gone",
			breaks: "consumers of now refuse what " + r.name + " wrote", advice: advice,
		}}
	}
	now := e.versions[i].schema
	byID := map[string]*Break{}
	var ids []string
	collect := func(found []difference, forward bool) {
		for _, d := range found {
			b := Break{
				Event: e.Type, Version: m.EventVersion, Field: d.path, Rule: d.rule, text: d.text, advice: d.advice,
			}
			key := b.ID() + " " + b.text
			if byID[key] == nil {
				byID[key] = &b
				ids = append(ids, key)
			}
			byID[key].Forward = byID[key].Forward || forward
			byID[key].Backward = byID[key].Backward || !forward
		}
	}
	if g.cfg.Compatibility != Forward {
		collect(differences(m.schema, now, false), false)
	}
	if g.cfg.Compatibility != Backward {
		collect(differences(now, m.schema, true), true)
	}
	breaks := make([]Break, 0, len(ids))
	for _, id := range ids {
		b := *byID[id]
		var who []string
		if b.Backward {
			who = append(who, "consumers of now refuse what "+r.name+" wrote")
		}
		if b.Forward {
			who = append(who, "consumers of "+r.name+" refuse what producers write now")
		}
		b.breaks = strings.Join(who, ", and ")
		next := fmt.Sprintf("declare version %d, with this one by From(%d, ...)", e.Version+1, m.EventVersion)
		if m.EventVersion < e.Version {
			next = "leave an older version as it was"
		}
		if b.advice == "" {
			b.advice = strings.ToUpper(next[:1]) + next[1:]
		} else {
			b.advice += ", or " + next
		}
		breaks = append(breaks, b)
	}
	return breaks
}
