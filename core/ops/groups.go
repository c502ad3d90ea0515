package ops

import (
	"cmp"
	"context"
	"slices"
	"time"

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

	// First and Last are when the oldest and the newest of the events were created.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Sample is the newest of the events.
	Sample Event `json:"sample"`

	// Muted says that somebody knows the group, until MutedUntil: see MuteGroup.
	Muted bool `json:"muted,omitempty"`
	// Stored is what people stored about the group, see NoteGroup. Zero: nothing.
	Stored GroupNote `json:"stored,omitzero"`
}

// Groups are the failures of the table.
type Groups struct {
	Groups []Group `json:"groups"` // the largest first
	// Truncated says that there are more events than were read, at most MaxLook dead ones and
	// MaxLook open ones: the numbers are then those of the events that were read.
	Truncated bool `json:"truncated,omitempty"`
}

// Groups groups the dead and the retrying events that the filter selects by their fingerprints.
// Filter.Statuses may be StatusDead and StatusRetry; empty means both. Events that wait for a
// stopped destination have spent no attempt and are in no group.
func (a *API) Groups(ctx context.Context, f Filter) (Groups, error) {
	for _, s := range f.Statuses {
		if s != StatusDead && s != StatusRetry {
			return Groups{}, invalid("Groups has no events that are %s", s)
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
