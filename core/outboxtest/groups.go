package outboxtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// ChangeGroup implements ops.Store.
func (r *Repository) ChangeGroup(ctx context.Context, c ops.GroupChange) error {
	if err := checkWho(c.Actor, c.Reason); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	n := r.groups[c.Fingerprint]
	switch c.Action {
	case ops.AuditNoteGroup:
		n.Note = c.Note
	case ops.AuditMuteGroup:
		n.MutedUntil = c.MutedUntil.Round(0).UTC().Truncate(time.Microsecond)
	case ops.AuditUnmuteGroup:
		n.MutedUntil = time.Time{}
	default:
		return fmt.Errorf("outboxtest: change a group: unknown action %.32q", c.Action)
	}
	n.Fingerprint, n.Actor, n.UpdatedAt = c.Fingerprint, c.Actor, r.now()
	if r.groups == nil {
		r.groups = map[string]ops.GroupNote{}
	}
	if r.groups[c.Fingerprint] = n; n.Note == "" && n.MutedUntil.IsZero() {
		delete(r.groups, c.Fingerprint)
	}
	r.auditNoRow(c.Action, c.Topic, c.Actor, c.AuditReason())
	return nil
}

// ReadGroupNotes implements ops.Store.
func (r *Repository) ReadGroupNotes(ctx context.Context) ([]ops.GroupNote, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	all := slices.SortedFunc(maps.Values(r.groups), func(a, b ops.GroupNote) int {
		return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return all[:min(len(all), 1000)], nil
}
