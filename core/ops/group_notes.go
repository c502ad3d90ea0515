package ops

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrNoGroup says that no event failed with that fingerprint, and nobody has written a note on it.
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

// GroupRequest says which group of failures a person changes. All fields but DryRun are required.
type GroupRequest struct {
	Fingerprint string // Group.Fingerprint
	Actor       string // the person, at most 255 bytes
	Reason      string // at most 1024 bytes
	// DryRun: the request is checked as ever, and nothing is changed. A GroupStore gets no such
	// request.
	DryRun bool
}

// GroupNote is what people stored about a group of failures.
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

// GroupStore keeps notes on groups of failures. sqloutbox.Repository and outboxtest.Repository
// implement it. It is for authors of a core.Repository; everybody else calls the API. If the table
// is missing, the errors wrap core.ErrNoTables.
type GroupStore interface {
	// ChangeGroup makes a change and writes its audit row in one transaction. A group that has no
	// note and is not muted is forgotten.
	ChangeGroup(ctx context.Context, c GroupChange) error

	// ReadGroupNotes returns what is stored, the latest change first, at most 1000.
	ReadGroupNotes(ctx context.Context) ([]GroupNote, error)
}

// NoteGroup stores a note on a group of failures in place of the one before, with an audit row in
// the same transaction. The note has at most 2000 bytes of UTF-8; an empty one removes it. The
// error wraps ErrNoGroup if there is no such group, core.ErrInvalidRequest if the request makes no
// sense, errors.ErrUnsupported if the Repository is no GroupStore, and core.ErrNoTables if the
// table is missing.
func (a *API) NoteGroup(ctx context.Context, note string, req GroupRequest) error {
	if len(note) > maxNote || !utf8.ValidString(note) || strings.ContainsRune(note, 0) {
		return invalid("the note is longer than %d bytes, or no UTF-8 without zeros", maxNote)
	}
	return a.changeGroup(ctx, GroupChange{Action: AuditNoteGroup, Note: note, GroupRequest: req})
}

// MuteGroup marks a group of failures as known until a time by the database's clock, at most 10
// years ahead, with an audit row in the same transaction. A muted group has Group.Muted set. It
// changes nothing else: its events are counted, redriven and discarded as before. The errors are
// those of NoteGroup.
func (a *API) MuteGroup(ctx context.Context, until time.Time, req GroupRequest) error {
	if ahead := time.Until(until); ahead <= 0 || ahead > maxMute {
		return invalid("the time until which a group is muted is not in the future, or more than 10 years ahead")
	}
	return a.changeGroup(ctx, GroupChange{Action: AuditMuteGroup, MutedUntil: until, GroupRequest: req})
}

// UnmuteGroup ends what MuteGroup began. The errors are those of NoteGroup.
func (a *API) UnmuteGroup(ctx context.Context, req GroupRequest) error {
	return a.changeGroup(ctx, GroupChange{Action: AuditUnmuteGroup, GroupRequest: req})
}

func (a *API) changeGroup(ctx context.Context, c GroupChange) error {
	if err := checkWho(c.Actor, c.Reason); err != nil {
		return err
	}
	store, ok := a.store.(GroupStore)
	if !ok {
		return fmt.Errorf("ops: a %T cannot store notes on groups: %w", a.store, errors.ErrUnsupported)
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
	return store.ChangeGroup(ctx, c)
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

// groupNotes returns what is stored by fingerprint. It is empty if nothing can be stored.
func (a *API) groupNotes(ctx context.Context) (map[string]GroupNote, error) {
	store, ok := a.store.(GroupStore)
	if !ok {
		return nil, nil
	}
	notes, err := store.ReadGroupNotes(ctx)
	byFingerprint := map[string]GroupNote{}
	for _, n := range notes {
		byFingerprint[n.Fingerprint] = n
	}
	return byFingerprint, err
}
