package outboxui

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// editView is the form in which the content of a dead event is changed.
type editView struct {
	ops.Event
	Payload     string
	ContentType string
	Headers     string // a line each: name: value
	Why         string // why the payload cannot be changed here; empty: it can
	Shown       string // digest of the content: who sends it back was shown the content
	Database    string
}

// edit shows the form. The content is revealed for it, so it needs both rights.
func (v *visit) edit(e ops.Event, content ops.Content) (*frame, error) {
	if err := v.may(Act); err != nil {
		return nil, err
	}
	if e.Status != ops.StatusDead {
		return nil, refusal{http.StatusConflict, "Only a dead event can be edited. This one is " +
			stateOf(&e, e.ReadAt).Text + "."}
	}
	m := &editView{
		Event: e, ContentType: content.ContentType, Payload: string(content.Payload), Shown: contentDigest(e.ID,
			content),
		Database: v.box.Database,
	}
	seen := v.shown(e, content, "")
	hidden := slices.ContainsFunc(seen.Headers, func(h header) bool {
		return h.Hidden ||
			h.Value != content.Headers[h.Name]
	})
	switch {
	case seen.Redacted || hidden:
		return nil, refusal{http.StatusConflict, "The redaction of the service hides a part of this event: edit " +
			"it with `outbox edit`."}
	case !utf8.Valid(content.Payload) || len(content.Payload) > maxShown ||
		bytes.ContainsAny(content.Payload, "\x00\r"):
		m.Why, m.Payload = "The payload is no text that a browser sends back as it is: change it with `outbox "+
			"edit --payload FILE`.", ""
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(content.Headers)) {
		lines = append(lines, name+": "+content.Headers[name])
	}
	m.Headers = strings.Join(lines, "\n")
	f := v.frame("edit", "Edit "+ops.Printable(e.Type)+"?")
	f.Current, f.Main, f.Now = "events", m, e.ReadAt
	f.Again, f.Every = v.base+"events/"+e.ID.String(), "?follow=5"
	f.Verdict = verdict{
		Kind: "warn", States: []state{{"wait", "Nothing is changed yet"}}, Heading: f.Title,
		Trail: []crumb{
			{Label: "Events", Href: v.base + "events"},
			{Label: e.Type, Href: v.base + "events/" + e.ID.String()},
			{Label: "edit"},
		},
		Next: "The next page shows the difference, and asks why. The event goes out under a new row id, with the " +
			"same event id, key and place in its key.",
	}
	return f, nil
}

// contentDigest names the content of a row.
func contentDigest(row core.RowID, c ops.Content) string {
	parts := []string{row.String(), c.ContentType, string(c.Payload)}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		parts = append(parts, name, c.Headers[name])
	}
	return digestOf(parts)
}

// proposeEdit shows the difference between the content of a dead event and what a person wrote. The
// difference has the old content. So it is for a person to whom that was shown by a reveal, which the
// audit has, and from whom the redaction hid nothing.
func proposeEdit(v *visit) (*proposal, error) {
	if err := v.may(Reveal); err != nil {
		return nil, err
	}
	req, e, err := v.editRequest()
	if err != nil {
		return nil, err
	}
	req.Actor, req.Reason, req.DryRun = v.actor, "dry run", true
	would, err := v.api().Edit(v.ctx(), req)
	switch {
	case errors.Is(err, ops.ErrChanged):
		return nil, &lostRace{action: "edit", rows: []ops.Event{e}, tried: 1}
	case errors.Is(err, core.ErrInvalidEvent):
		return nil, refusal{http.StatusBadRequest, sentence(err)}
	case err != nil:
		return nil, err
	}
	row := e.ID.String()
	p := &proposal{
		Trail: []crumb{
			{Label: "Events", Href: v.base + "events"},
			{Label: e.Type, Href: v.base + "events/" + row},
			{Label: "edit"},
		},
		Heading: "Publish " + cut(e.Type, 80) + " with this content?",
		Next: "It goes to " + cut(e.Topic, 60) + v.environment() +
			" under a new row id, with the same event id and key. The dead row is discarded.",
		Facts: []fact{
			{Name: "Event", Text: e.EventID},
			{Name: "Key", Text: placeOf(&e)},
			{Name: "Place", Text: "that of the dead event; later events of the key follow it"},
			{Name: "Undo", Text: "none: what is published stays published"},
		},
		Note: "If somebody else changes the event first, nothing is changed, and the result says so. A consumer " +
			"that has processed the event skips it.",
		Button: "Edit and redrive" + v.environment(), Class: "main", Back: v.base + "events/" + row,
		Diff: diffLines(would.Diff), Digest: digestOf([]string{row, would.Diff, fmt.Sprint(would.Seen)}),
		keep:     v.on("row", "shown", "payload", "payload-kept", "content-type", "headers"),
		Commands: []string{commandOf("edit", row, "--payload", "FILE", "--reason", "WHY", "--actor", v.actor)},
	}
	for _, values := range p.keep { // as the request has them
		for i := range values {
			values[i] = strings.ReplaceAll(values[i], "\r\n", "\n")
		}
	}
	if would.Appended {
		p.Facts[2].Text = "the end of its key, because the key has gone on without it"
	}
	p.do = func(reason string) (*frame, error) {
		req.Reason, req.DryRun, req.Seen = reason, false, would.Seen
		done, err := v.api().Edit(v.ctx(), req)
		if errors.Is(err, ops.ErrChanged) {
			rows, rerr := v.api().Rows(v.ctx(), e.ID)
			if rerr != nil || len(rows) == 0 {
				return nil, errors.Join(err, rerr)
			}
			return nil, &lostRace{action: "edit", rows: rows, tried: 1}
		}
		if err != nil {
			return nil, err
		}
		v.redirect(v.base + "events/" + done.NewID.String())
		return nil, nil //nolint:nilnil // it was a redirect
	}
	return p, nil
}

// editRequest reads the form, and its differences from the event.
func (v *visit) editRequest() (req ops.EditRequest, e ops.Event, err error) {
	if req.ID, err = core.ParseRowID(v.form.Get("row")); err != nil {
		return req, e, refusal{http.StatusBadRequest, "An event is edited by the id of its row."}
	}
	all, err := v.api().Show(v.ctx(), req.ID.String())
	if err != nil {
		return req, e, err
	}
	e = all[0].Event
	if e.Status != ops.StatusDead {
		return req, e, &lostRace{action: "edit", rows: []ops.Event{e}, tried: 1}
	}
	old := all[0].Content
	if v.form.Get("shown") != contentDigest(e.ID, old) {
		return req, e, refusal{
			http.StatusConflict,
			"The content of this event was not shown to you as it is now: open the event, and edit it from there.",
		}
	}
	if v.form.Get("payload-kept") == "" && v.form.Has("payload") {
		// A browser sends each line break as two characters. The form is not offered for others.
		if text := strings.ReplaceAll(v.form.Get("payload"), "\r\n", "\n"); text != string(old.Payload) {
			req.Payload = []byte(text)
		}
	}
	if t := strings.TrimSpace(v.form.Get("content-type")); t != old.ContentType {
		if t == "" {
			return req, e, refusal{http.StatusBadRequest, "A content type cannot be removed, only replaced: write " +
				"another one, or “" + cut(old.ContentType, 100) + "” to keep it."}
		}
		req.ContentType = t
	}
	written, err := headersOf(v.form.Get("headers"), old.Headers)
	if err != nil {
		return req, e, err
	}
	req.Headers = map[string]string{}
	for name, value := range written {
		if was, is := old.Headers[name]; !is || was != value {
			req.Headers[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old.Headers)) {
		if _, is := written[name]; !is {
			req.WithoutHeaders = append(req.WithoutHeaders, name)
		}
	}
	if req.Payload == nil && req.ContentType == "" && len(req.Headers) == 0 && len(req.WithoutHeaders) == 0 {
		return req, e, refusal{http.StatusBadRequest, "Nothing differs from what is stored."}
	}
	return req, e, nil
}

// headersOf reads headers, a line each. An event of others may have a header whose name has a colon.
// So a line that begins with the name of a stored header, the longest that fits, is that header.
func headersOf(text string, stored map[string]string) (map[string]string, error) {
	written := map[string]string{}
	for line := range strings.Lines(strings.ReplaceAll(text, "\r\n", "\n")) {
		line = strings.TrimSuffix(line, "\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, refusal{http.StatusBadRequest, "“" + cut(line, 60) + "” is no header: write name: value."}
		}
		name = strings.TrimSpace(name)
		for known := range stored {
			if rest, is := strings.CutPrefix(line, known+":"); is && len(known) > len(name) {
				name, value = known, rest
			}
		}
		written[name] = strings.TrimPrefix(value, " ")
	}
	return written, nil
}

// diffLine is a line of a difference.
type diffLine struct {
	Kind string // del, ins or empty
	Text string
}

func diffLines(diff string) (all []diffLine) {
	for line := range strings.Lines(diff) {
		line = strings.TrimSuffix(line, "\n")
		d := diffLine{Text: ops.Printable(line)}
		switch {
		case strings.HasPrefix(line, "- "):
			d.Kind = "del"
		case strings.HasPrefix(line, "+ "):
			d.Kind = "ins"
		}
		all = append(all, d)
	}
	return all
}
