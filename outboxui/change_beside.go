package outboxui

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// selection returns the values of a field of a form, each once, up to listLimit.
func (v *visit) selection(name, noun string) ([]string, error) {
	all := slices.Compact(sorted(slices.Clone(v.form[name])))
	switch {
	case len(all) == 0:
		return nil, refusal{http.StatusBadRequest, "No " + noun + " is selected."}
	case len(all) > listLimit:
		return nil, refusal{http.StatusBadRequest, fmt.Sprintf("More than %d %ss are selected: take fewer at a time.",
			listLimit, noun)}
	}
	return all, nil
}

func digestOf(parts []string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// messages proposes to redrive or to discard messages that consumers have given up.
func (v *visit) messages(what string) (*proposal, error) {
	values, err := v.selection("message", "message")
	if err != nil {
		return nil, err
	}
	var keys []inbox.Key
	var seen, consumers, not []string
	for _, value := range values {
		key, err := messageKey(value)
		if err != nil {
			return nil, refusal{http.StatusBadRequest, "A message of the form has no key: " + sentence(err)}
		}
		page, err := v.api().Messages(v.ctx(), inbox.FailedQuery{
			Consumer: key.Consumer, Handler: key.Handler, Tenant: key.Tenant, EventID: key.EventID, Limit: 1,
		})
		if err != nil {
			return nil, err
		}
		if len(page.Events) == 0 || page.Events[0].Status != inbox.StatusDead {
			not = append(not, notDead(key, page, what))
			continue
		}
		e := page.Events[0]
		keys = append(keys, key)
		seen = append(seen, fmt.Sprintf("%s %d %d", value, e.Attempts, e.FailedAt.UnixMicro()))
		if !slices.Contains(consumers, key.Consumer) {
			consumers = append(consumers, key.Consumer)
		}
	}
	if len(keys) == 0 {
		return nil, refusal{http.StatusConflict, "Nothing to " + what + ": " + listed(not[:min(3, len(not))]) + "."}
	}
	return v.messagesProposal(what, keys, consumers, not, digestOf(seen)), nil
}

func notDead(key inbox.Key, page ops.Messages, what string) string {
	found := page.Events
	if len(found) == 0 && page.Truncated {
		return "event " + cut(key.EventID, 60) + " is behind more messages than a page looks at: name it to " +
			"`outbox inbox " + what + "`"
	}
	if len(found) == 0 {
		return cut(key.Handler, 60) + " has processed event " + cut(key.EventID, 60) + ", or has no record of it"
	}
	text := "event " + cut(key.EventID, 60) + " of " + cut(key.Handler, 60) + ": " + messageState(found[0].Status).Text
	if s := found[0].Status; s == inbox.StatusRedriven || s == inbox.StatusDiscarded {
		text += ", by " + cut(found[0].Text, 200)
	}
	return text
}

func (v *visit) messagesProposal(what string, keys []inbox.Key, consumers, not []string, digest string) *proposal {
	n, who := len(keys), listed(consumers)
	back := v.base + "consumers?" + url.Values{"consumer": {consumers[0]}}.Encode()
	p := &proposal{
		Trail: []crumb{{Label: "Consumers", Href: v.base + "consumers"}, {Label: who, Href: back}, {Label: what}},
		Back:  back, Digest: digest, keep: v.on("message"),
		Facts: []fact{{Name: "Messages", Text: number(n) + ", exact"}, {Name: "Consumer", Text: who}},
		Note:  "What somebody else changes first is left alone, and the result says so.",
	}
	for _, text := range not {
		p.Facts = append(p.Facts, fact{Name: "Left out", Text: text})
	}
	for _, c := range consumers[:min(3, len(consumers))] {
		words := []string{"inbox", what}
		for _, k := range keys {
			if k.Consumer == c && len(words) < 6 {
				words = append(words, k.EventID)
			}
		}
		p.Commands = append(p.Commands, commandOf(append(words, "--consumer", c, "--reason", "WHY", "--actor",
			v.actor)...))
	}
	do := v.api().RedriveMessages
	if what == "discard" {
		do = v.api().DiscardMessages
		p.Heading = "Discard " + plural(n, "message") + " for " + who + "?"
		p.Next = "It is never processed, and acknowledged when it is delivered again. Copies in a dead-letter " +
			"queue stay there."
		p.Button, p.Class = "Discard "+number(n)+v.environment(), "danger"
		p.Facts = append(p.Facts, fact{Name: "Undo", Text: "none: a discarded message cannot be redriven"})
	} else {
		p.Heading = "Redrive " + plural(n, "message") + " for " + who + "?"
		p.Next = "It is processed, with fresh attempts, when it is delivered again: from its dead-letter queue " +
			"by `outbox inbox release`, or by a replay of its event. This delivers nothing."
		p.Button, p.Class = "Redrive "+number(n)+v.environment(), "main"
		p.Facts = append(p.Facts, fact{Name: "Undo", Text: "discard it, as long as it is not delivered"})
	}
	p.do = func(reason string) (*frame, error) {
		changed, err := do(v.ctx(), ops.MessageRequest{Keys: keys, Actor: v.actor, Reason: reason})
		return v.changedOf(changed, n, "message", back, err)
	}
	return p
}

// changedOf answers after a change of things that are no events: with their list, or with how many
// others were faster with.
func (v *visit) changedOf(changed, of int, noun, back string, err error) (*frame, error) {
	switch {
	case err != nil && changed > 0:
		return nil, refusal{http.StatusInternalServerError, fmt.Sprintf("%s of %s changed, and then it failed: %s",
			number(changed), plural(of, noun), sentence(err))}
	case err != nil:
		return nil, err
	case changed < of:
		return nil, refusal{http.StatusConflict, fmt.Sprintf("%s of %s %s changed: somebody else was faster with "+
			"the others.",
			number(changed), plural(of, noun), verbOf(changed, "was", "were"))}
	}
	v.redirect(back)
	return nil, nil //nolint:nilnil // it was a redirect
}

// effects proposes to redrive or to discard dead effects.
func (v *visit) effects(what string) (*proposal, error) {
	ids, err := v.selection("effect", "effect")
	if err != nil {
		return nil, err
	}
	dead, all, err := v.deadEffects(ids)
	if err != nil {
		return nil, err
	}
	n := len(dead)
	if n == 0 {
		return nil, refusal{http.StatusConflict, noDeadEffect(all, what)}
	}
	p := &proposal{
		Trail: []crumb{{Label: "Effects", Href: v.base + "effects"}, {Label: what}}, Back: v.base +
			"effects", keep: v.on("effect"),
		Facts: []fact{{Name: "Effects", Text: number(n) + ", exact"}},
		Note:  "What somebody else changes first is left alone, and the result says so.",
	}
	var seen, channels []string
	words := []string{"effects", what}
	for _, e := range dead {
		seen = append(seen, fmt.Sprintf("%s %d", e.ID, e.UpdatedAt.UnixMicro()))
		if !slices.Contains(channels, e.Channel) {
			channels = append(channels, e.Channel)
		}
		if len(words) < 6 {
			words = append(words, e.ID)
		}
	}
	p.Digest = digestOf(seen)
	p.Facts = append(p.Facts, fact{Name: "Channel", Text: listed(channels)})
	if left := len(ids) - n; left > 0 {
		text := number(left) + " that " + verbOf(left, "is", "are") + " not dead any more"
		if !all {
			text = number(left) + " not found among the first " + number(lookedAt) + " dead effects"
		}
		p.Facts = append(p.Facts, fact{Name: "Left out", Text: text})
	}
	p.Commands = []string{commandOf(append(words, "--reason", "WHY", "--actor", v.actor)...)}
	do := v.api().RedriveEffects
	if what == "discard" {
		do = v.api().DiscardEffects
		p.Heading, p.Next = "Discard "+plural(n, "effect")+" of "+listed(channels)+"?", "They are never executed."
		p.Button, p.Class = "Discard "+number(n)+v.environment(), "danger"
		p.Facts = append(p.Facts, fact{Name: "Undo", Text: "none: a discarded effect stays discarded"})
	} else {
		p.Heading = "Execute " + plural(n, "effect") + " of " + listed(channels) + " again?"
		p.Next = "Their workers take them with fresh attempts. What they do outside may have happened before: the " +
			"handler has an idempotency key for that."
		p.Button, p.Class = "Redrive "+number(n)+v.environment(), "main"
		p.Facts = append(p.Facts, fact{Name: "Undo", Text: "none: what was done outside stays done"})
	}
	p.do = func(reason string) (*frame, error) {
		req := ops.EffectRequest{Actor: v.actor, Reason: reason}
		for _, e := range dead {
			req.IDs = append(req.IDs, e.ID)
		}
		changed, err := do(v.ctx(), req)
		return v.changedOf(changed, n, "effect", v.base+"effects", err)
	}
	return p, nil
}

// lookedAt is how many dead effects are examined for a form's ids: an effect is not read by its id.
const lookedAt = 10 * ops.MaxLimit

// noDeadEffect is why no effect of a form is among the dead ones. all: all dead ones were looked
// at.
func noDeadEffect(all bool, what string) string {
	if all {
		return "None of these effects is dead any more: somebody else, or a worker, was faster."
	}
	return "None of these effects is among the first " + number(lookedAt) + " dead ones, and this page looks at no " +
		"more. Name it to `outbox effects " + what + "`."
}

// deadEffects returns the dead effects with these ids. all: no dead effect was left unlooked at, so
// the others are not dead.
func (v *visit) deadEffects(ids []string) (dead []command.Record, all bool, err error) {
	wanted := map[string]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	q := command.Query{Status: command.StatusDead, Limit: ops.MaxLimit}
	for range lookedAt / ops.MaxLimit {
		page, err := v.api().ListEffects(v.ctx(), q)
		if err != nil {
			return nil, false, err
		}
		for _, e := range page.Effects {
			if wanted[e.ID] {
				dead = append(dead, e)
			}
		}
		if q.After = page.Next; q.After == "" || len(dead) == len(wanted) {
			return dead, true, nil
		}
	}
	return dead, false, nil
}
