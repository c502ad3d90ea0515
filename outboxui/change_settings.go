package outboxui

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// held is the target of a pause, as the form names it.
type held struct {
	all    bool
	topics []string
	tenant string
}

func (v *visit) held() (h held, err error) {
	for _, topic := range v.form["topic"] {
		if topic = strings.TrimSpace(topic); topic != "" && !slices.Contains(h.topics, topic) {
			h.topics = append(h.topics, topic)
		}
	}
	h.all, h.tenant = v.form.Get("all") != "", v.form.Get("tenant")
	switch {
	case len(h.topics) > ops.DefaultLimit:
		return h, refusal{http.StatusBadRequest, "More than 100 destinations: pause everything instead."}
	case !h.all && h.tenant == "" && len(h.topics) == 0:
		return h, refusal{http.StatusBadRequest, "Name a destination, a tenant, or everything."}
	}
	return h, nil
}

// name names it in a sentence.
func (h held) name() string {
	switch {
	case h.all:
		return "everything"
	case h.tenant != "":
		return "tenant " + cut(h.tenant, 64)
	case len(h.topics) > 4:
		return plural(len(h.topics), "destination")
	}
	names := make([]string, len(h.topics))
	for i, topic := range h.topics {
		names[i] = cut(topic, 60)
	}
	return verbOf(len(names), "destination ", "destinations ") + listed(names)
}

// each calls do for each part of h, as the fields of a pause.
func (h held) each(do func(all bool, topic, tenant string) error) error {
	if h.all || h.tenant != "" {
		return do(h.all, "", h.tenant)
	}
	for _, topic := range h.topics {
		if err := do(false, topic, ""); err != nil {
			return err
		}
	}
	return nil
}

// commands are its command lines: one for each of its parts.
func (h held) commands(name string, more ...string) (all []string) {
	_ = h.each(func(every bool, topic, tenant string) error {
		words := []string{name}
		switch {
		case every:
			words = append(words, "--all")
		case tenant != "":
			words = append(words, "--tenant", tenant)
		default:
			words = append(words, topic)
		}
		all = append(all, commandOf(append(words, more...)...))
		return nil
	})
	return all
}

// pausesOf returns the pauses that hold for exactly that, and a digest of them.
func (v *visit) pausesOf(h held) (all []core.Pause, digest string, err error) {
	pauses, err := v.api().Pauses(v.ctx())
	if err != nil {
		return nil, "", err
	}
	seen := []string{"paused"}
	for _, p := range pauses {
		if p.All == h.all && p.Tenant == h.tenant && (p.Topic == "" || slices.Contains(h.topics, p.Topic)) {
			all = append(all, p)
			seen = append(seen, p.Topic, strconv.FormatInt(p.Since.UnixMicro(), 10))
		}
	}
	return all, digestOf(seen), nil
}

func pauseFacts(all []core.Pause) []fact {
	if len(all) == 0 {
		return []fact{{Name: "Now", Text: "not paused"}}
	}
	var facts []fact
	for _, p := range all {
		what, _ := pauseOf(p)
		facts = append(facts, fact{Name: "Now", Text: what + " is paused by " + p.Actor + " since " +
			p.Since.UTC().Format("15:04:05") + ": " + p.Reason})
	}
	return facts
}

func proposePause(v *visit) (*proposal, error) {
	h, err := v.held()
	if err != nil {
		return nil, err
	}
	holds, digest, err := v.pausesOf(h)
	if err != nil {
		return nil, err
	}
	p := &proposal{
		Trail:   []crumb{{Label: "Overview", Href: v.base}, {Label: "pause"}},
		Heading: "Pause " + h.name() + "?",
		Next: "Publishing goes on into the table: the events wait, keep their order and spend no attempts. " +
			"Relays follow within 3 seconds.",
		Facts:  append(pauseFacts(holds), fact{Name: "Undo", Text: "resume it at any time"}),
		Button: "Pause " + h.name() + v.environment(), Class: "main", Back: v.base, Digest: digest,
		keep:     v.on("topic", "tenant", "all"),
		Commands: h.commands("pause", "--reason", "WHY", "--actor", v.actor),
		Fields:   []input{v.input("for", "For how long; empty until somebody resumes it", "")},
	}
	p.do = func(reason string) (*frame, error) {
		var until time.Time
		if text := strings.TrimSpace(v.form.Get("for")); text != "" {
			d, err := spanOf(text)
			if err != nil || d <= 0 {
				return nil, refusal{http.StatusBadRequest, "“" + cut(text, 40) +
					"” is no duration: write one such as 30m or 2h."}
			}
			until = time.Now().Add(d)
		}
		err := h.each(func(all bool, topic, tenant string) error {
			return v.api().Pause(v.ctx(), core.PauseRequest{
				All: all, Topic: topic, Tenant: tenant, Until: until, Actor: v.actor, Reason: reason,
			})
		})
		if err != nil {
			return nil, err
		}
		v.redirect(v.base)
		return nil, nil //nolint:nilnil // it was a redirect
	}
	return p, nil
}

func proposeResume(v *visit) (*proposal, error) {
	h, err := v.held()
	if err != nil {
		return nil, err
	}
	holds, digest, err := v.pausesOf(h)
	if err != nil {
		return nil, err
	}
	if len(holds) == 0 {
		return nil, refusal{http.StatusConflict, upperFirst(h.name()) +
			" is not paused: somebody else has resumed it, or the pause has ended."}
	}
	p := &proposal{
		Trail:   []crumb{{Label: "Overview", Href: v.base}, {Label: "resume"}},
		Heading: "Resume " + h.name() + "?",
		Next:    "The events that wait go out, in the order of their keys. Relays follow within 3 seconds.",
		Facts: append(pauseFacts(holds), fact{
			Name: "Undo",
			Text: "pause it again; what is published stays published",
		}),
		Button: "Resume " + h.name() + v.environment(), Class: "main", Back: v.base, Digest: digest,
		keep:     v.on("topic", "tenant", "all"),
		Commands: h.commands("resume", "--reason", "WHY", "--actor", v.actor),
	}
	p.do = func(reason string) (*frame, error) {
		none := true
		err := h.each(func(all bool, topic, tenant string) error {
			resumed, err := v.api().Resume(v.ctx(), core.ResumeRequest{
				All: all, Topic: topic, Tenant: tenant, Actor: v.actor, Reason: reason,
			})
			none = none && !resumed
			return err
		})
		switch {
		case err != nil:
			return nil, err
		case none:
			return nil, refusal{http.StatusConflict, "Somebody else was faster: it is not paused any more."}
		}
		v.redirect(v.base)
		return nil, nil //nolint:nilnil // it was a redirect
	}
	return p, nil
}

func proposeRate(v *visit) (*proposal, error) {
	topic := strings.TrimSpace(v.form.Get("topic"))
	if topic == "" {
		return nil, refusal{http.StatusBadRequest, "Name a destination."}
	}
	rates, err := v.api().Outbox().Rates(v.ctx())
	if err != nil {
		return nil, err
	}
	now, digest := core.Rate{}, "no rate"
	for _, r := range rates {
		if r.Topic == topic {
			now, digest = r, fmt.Sprintf("rate %d", r.Since.UnixMicro())
		}
	}
	is := fact{Name: "Now", Text: "no limit"}
	if now.Topic != "" {
		is.Text = limits(now) + ", set by " + now.Actor + ": " + now.Reason
	}
	p := &proposal{
		Trail:   []crumb{{Label: "Overview", Href: v.base}, {Label: "rate"}},
		Heading: "Change how much destination " + cut(topic, 60) + " gets?",
		Next:    "Both limits hold for all relays together. Events above them wait in the table and spend no attempts.",
		Facts:   []fact{is, {Name: "Undo", Text: "set another limit, or 0 for none, at any time"}},
		Button:  "Set the rate" + v.environment(), Class: "main", Back: v.base, Digest: digest, keep: v.on("topic"),
		Fields: []input{
			v.input("per-second", "Events a second, 0 for any number", strconv.FormatFloat(now.PerSecond, 'f', -1, 64)),
			v.input("in-flight", "Events at the same time, 0 for any number", strconv.Itoa(now.InFlight)),
		},
		Commands: []string{
			commandOf("rate", topic, "--per-second", "N", "--in-flight", "N", "--reason", "WHY", "--actor", v.actor),
			commandOf("rate", topic, "--off", "--reason", "WHY", "--actor", v.actor),
		},
	}
	p.Fields[0].Mode, p.Fields[1].Mode = "decimal", "numeric"
	p.do = func(reason string) (*frame, error) {
		perSecond, err1 := strconv.ParseFloat(strings.TrimSpace(v.form.Get("per-second")), 64)
		inFlight, err2 := strconv.Atoi(strings.TrimSpace(v.form.Get("in-flight")))
		if err1 != nil || err2 != nil {
			return nil, refusal{http.StatusBadRequest, "Both limits are numbers, and 0 is no limit."}
		}
		err := v.api().Outbox().SetRate(v.ctx(), core.RateRequest{
			Topic: topic, PerSecond: perSecond, InFlight: inFlight, Actor: v.actor, Reason: reason,
		})
		if err != nil {
			return nil, err
		}
		v.redirect(v.base)
		return nil, nil //nolint:nilnil // it was a redirect
	}
	return p, nil
}

// proposeNote proposes another note on a group of failures, or to mute it.
func proposeNote(v *visit) (*proposal, error) {
	id := v.form.Get("group")
	all, err := v.api().Groups(v.ctx(), ops.Filter{Fingerprint: id})
	if err != nil {
		return nil, err
	}
	if id == "" || len(all.Groups) == 0 {
		return nil, ops.ErrNoGroup
	}
	g := all.Groups[0]
	mute := v.input("for", "Mute it for", "")
	for _, c := range []choiceOf{
		{"", "as it is", false}, {"off", "not at all", false}, {"8h", "8 hours", false}, {
			"48h", "2 days",
			false,
		}, {"168h", "7 days", false},
	} {
		c.Selected = c.Value == mute.Value
		mute.Choices = append(mute.Choices, c)
	}
	note := v.input("note", "Note", g.Stored.Note)
	note.Lines = 3
	muted := "not muted"
	if g.Muted {
		muted = "muted until " + g.Stored.MutedUntil.UTC().Format("2 January 15:04")
	}
	p := &proposal{
		Trail: []crumb{
			{Label: "Groups", Href: v.base + "groups"},
			{Label: id, Href: v.groupHref(id), Code: true},
			{Label: "note"},
		},
		Heading: "Change the note on this group of failures, or mute it?",
		Next: "A muted group is known: the overview does not name it. Its events are counted and redriven as " +
			"before.",
		Facts: []fact{
			{Name: "Group", Text: plural(g.Dead, "dead event") + " of " + g.Topic + ": " + g.Pattern},
			{
				Name: "Now",
				Text: muted,
			},
			{Name: "Undo", Text: "change it again"},
		},
		Button: "Save" +
			v.environment(), Class: "main", Back: v.groupHref(id), keep: v.on("group"), Fields: []input{note, mute},
		Digest: fmt.Sprintf("note %d", g.Stored.UpdatedAt.UnixMicro()),
		Commands: []string{
			commandOf("groups", "note", id, "TEXT", "--actor", v.actor),
			commandOf("groups", "mute", id, "--for", "48h", "--reason", "WHY", "--actor", v.actor),
		},
	}
	p.do = func(reason string) (*frame, error) {
		req := ops.GroupRequest{Fingerprint: id, Actor: v.actor, Reason: reason}
		if text := strings.TrimSpace(note.Value); text != g.Stored.Note {
			if err := v.api().NoteGroup(v.ctx(), text, req); err != nil {
				return nil, err
			}
		}
		switch mute.Value {
		case "":
		case "off":
			if err := v.api().UnmuteGroup(v.ctx(), req); err != nil {
				return nil, err
			}
		default:
			d, err := spanOf(mute.Value)
			if err != nil {
				return nil, refusal{http.StatusBadRequest, "“" + cut(mute.Value, 40) + "” is no duration."}
			}
			if err := v.api().MuteGroup(v.ctx(), g.Sample.ReadAt.Add(d), req); err != nil {
				return nil, err
			}
		}
		v.redirect(v.groupHref(id))
		return nil, nil //nolint:nilnil // it was a redirect
	}
	return p, nil
}
