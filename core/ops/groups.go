package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/failgroup"
)

// Group is a set of events that failed alike.
type Group struct {
	Fingerprint string `json:"fingerprint"` // Filter.Fingerprint of its events
	ErrorCode   string `json:"error_code"`
	Topic       string `json:"topic"`
	Type        string `json:"type"`
	Pattern     string `json:"pattern"` // the text of the error, without numbers, ids and quoted texts

	Dead     int `json:"dead"`     // events that were given up
	Retrying int `json:"retrying"` // events that will be tried again
	// BlockedKeys is how many keys wait behind a dead event of the group. 0 under core.SkipDead.
	BlockedKeys int `json:"blocked_keys"`

	// Fix is the next step for such failures, as a sentence.
	Fix string `json:"fix"`

	// First and Last are when the oldest and the newest of the events were created.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Sample is the newest of the events.
	Sample Event `json:"sample"`

	// Muted: a person has muted the group until MutedUntil: see MuteGroup.
	Muted bool `json:"muted,omitempty"`
	// Stored is the stored note and state of the group, see NoteGroup. Zero: nothing.
	Stored GroupNote `json:"stored,omitzero"`
}

// Groups are the failures of the table.
type Groups struct {
	Groups []Group `json:"groups"` // the largest first
	// Truncated: there are more events than were read, at most MaxLook dead ones and MaxLook open
	// ones, and the numbers count only the events that were read.
	Truncated bool `json:"truncated,omitempty"`
}

// Pattern is the text of an error without numbers, ids and quoted texts, as Group.Pattern has it.
func Pattern(text string) string { return failgroup.Pattern(text) }

// Groups groups the dead and the retrying events that the filter selects by their fingerprints.
// Filter.Statuses may be StatusDead and StatusRetry; empty means both. Events that wait for a
// stopped destination have spent no attempt and are in no group.
func (a *API) Groups(ctx context.Context, f Filter) (Groups, error) {
	for _, s := range f.Statuses {
		if s != StatusDead && s != StatusRetry {
			return Groups{}, invalid("%s events are in no group: select dead or retrying ones", s)
		}
	}
	if err := f.check(); err != nil {
		return Groups{}, err
	}
	groups := map[string]*Group{}
	blocked := map[string]map[core.KeyID]bool{}
	var all Groups
	for _, status := range []Status{StatusDead, StatusRetry} {
		if !f.Has(status) {
			continue
		}
		of := f
		of.Statuses = []Status{status}
		s, err := a.store.ScanEvents(ctx, Scan{Filter: of, Limit: MaxLook, Look: MaxLook})
		if err != nil {
			return Groups{}, err
		}
		all.Truncated = all.Truncated || s.Next != ""
		for i := range s.Events {
			e := &s.Events[i]
			name := e.Fingerprint()
			g := groups[name]
			if g == nil {
				g = &Group{
					Fingerprint: name, ErrorCode: e.ErrorCode, Topic: e.Topic, Type: e.Type,
					Pattern: failgroup.Pattern(e.Error), First: e.CreatedAt,
					Fix: remedy(e.ErrorCode) + ".",
				}
				groups[name], blocked[name] = g, map[core.KeyID]bool{}
			}
			g.add(e)
			if e.Status == StatusDead && !e.KeyID.IsZero() && a.outbox.DeadPolicy() != core.SkipDead {
				blocked[name][e.KeyID] = true
			}
		}
	}
	notes, err := a.groupNotes(ctx)
	if err != nil {
		return Groups{}, err
	}
	for name, g := range groups {
		g.BlockedKeys = len(blocked[name])
		g.Stored = notes[name]
		g.Muted = g.Stored.MutedUntil.After(g.Sample.ReadAt)
		all.Groups = append(all.Groups, *g)
	}
	slices.SortFunc(all.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Dead+b.Retrying, a.Dead+a.Retrying), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return all, nil
}

func (g *Group) add(e *Event) {
	if e.Status == StatusDead {
		g.Dead++
	} else {
		g.Retrying++
	}
	if e.CreatedAt.Before(g.First) {
		g.First = e.CreatedAt
	}
	if !e.CreatedAt.Before(g.Last) {
		g.Last, g.Sample = e.CreatedAt, *e
	}
}

// ErrNoGroup: no event failed with that fingerprint, and there is no note on it.
var ErrNoGroup = errors.New("ops: no such group of failures")

const (
	maxNote = 2000                      // bytes
	maxMute = 10 * 366 * 24 * time.Hour // ahead
)

// Actions of the audit rows about groups. The rows have the topic of the group and no event; their
// reason ends with the fingerprint.
const (
	AuditNoteGroup   = "note-group"
	AuditMuteGroup   = "mute-group"
	AuditUnmuteGroup = "unmute-group"
)

// GroupRequest selects a group of failures for a person's change. All fields but DryRun are
// required.
type GroupRequest struct {
	Fingerprint string // Group.Fingerprint
	Actor       string // the person, at most 255 bytes
	Reason      string // at most 1024 bytes
	DryRun      bool   // checks the request and changes nothing
}

// GroupNote is the stored note and state of a group of failures.
type GroupNote struct {
	Fingerprint string    `json:"fingerprint"`
	Note        string    `json:"note,omitempty"`
	MutedUntil  time.Time `json:"muted_until,omitzero"` // may be over; zero: not muted
	Actor       string    `json:"actor"`                // who changed it last
	UpdatedAt   time.Time `json:"updated_at"`
}

// GroupChange is a change of a GroupNote.
type GroupChange struct {
	// Action is AuditNoteGroup, which sets Note alone, AuditMuteGroup, which sets MutedUntil alone,
	// or AuditUnmuteGroup, which clears it. It is the action of the audit row too.
	Action     string
	Note       string
	MutedUntil time.Time
	Topic      string // of the audit row
	GroupRequest
}

// AuditReason is the reason of the audit row about the change.
func (c *GroupChange) AuditReason() string {
	text := c.Reason + " (group " + c.Fingerprint
	if c.Action == AuditMuteGroup {
		text += ", until " + c.MutedUntil.UTC().Format(time.RFC3339)
	}
	return text + ")"
}

// NoteGroup stores a note on a group of failures in place of the one before, with an audit row in
// the same transaction. The note has at most 2000 bytes of UTF-8; an empty one removes it. The
// error wraps ErrNoGroup if there is no such group, and core.ErrInvalidRequest if the request makes
// no sense.
func (a *API) NoteGroup(ctx context.Context, note string, req GroupRequest) error {
	if len(note) > maxNote || !utf8.ValidString(note) || strings.ContainsRune(note, 0) {
		return invalid("the note is longer than %d bytes, or no UTF-8 without zeros", maxNote)
	}
	return a.changeGroup(ctx, GroupChange{Action: AuditNoteGroup, Note: note, GroupRequest: req})
}

// MuteGroup marks a group of failures as known until a time by the database's clock, at most 10
// years ahead, with an audit row in the same transaction. A muted group has Group.Muted set. It
// changes nothing else: its events are counted, redriven and discarded as before. The errors are
// the same as for NoteGroup.
func (a *API) MuteGroup(ctx context.Context, until time.Time, req GroupRequest) error {
	if ahead := time.Until(until); ahead <= 0 || ahead > maxMute {
		return invalid("the time until which a group is muted is not in the future, or more than 10 years ahead")
	}
	return a.changeGroup(ctx, GroupChange{Action: AuditMuteGroup, MutedUntil: until, GroupRequest: req})
}

// UnmuteGroup ends the effect of MuteGroup. The errors are the same as for NoteGroup.
func (a *API) UnmuteGroup(ctx context.Context, req GroupRequest) error {
	return a.changeGroup(ctx, GroupChange{Action: AuditUnmuteGroup, GroupRequest: req})
}

func (a *API) changeGroup(ctx context.Context, c GroupChange) error {
	if err := checkWho(c.Actor, c.Reason); err != nil {
		return err
	}
	topic, found, err := a.knownGroup(ctx, c.Fingerprint)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%w: %.64q", ErrNoGroup, c.Fingerprint)
	}
	if c.DryRun {
		return nil
	}
	c.Topic = topic
	return a.store.ChangeGroup(ctx, c)
}

// knownGroup looks for a group among the events and the notes, and returns its topic.
func (a *API) knownGroup(ctx context.Context, fingerprint string) (topic string, found bool, err error) {
	if fingerprint == "" {
		return "", false, nil
	}
	all, err := a.Groups(ctx, Filter{Fingerprint: fingerprint})
	if err != nil {
		return "", false, err
	}
	if len(all.Groups) > 0 {
		return all.Groups[0].Topic, true, nil
	}
	notes, err := a.groupNotes(ctx)
	_, found = notes[fingerprint]
	return "", found, err
}

// groupNotes returns the stored notes by fingerprint.
func (a *API) groupNotes(ctx context.Context) (map[string]GroupNote, error) {
	notes, err := a.store.ReadGroupNotes(ctx)
	byFingerprint := map[string]GroupNote{}
	for _, n := range notes {
		byFingerprint[n.Fingerprint] = n
	}
	return byFingerprint, err
}
