package outboxtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Beat implements core.Repository.
func (r *Repository) Beat(ctx context.Context, b core.Heartbeat) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	now := r.now()
	ago := func(d time.Duration) time.Time {
		if d < 0 {
			return time.Time{}
		}
		return now.Add(-d).Truncate(time.Microsecond)
	}
	if r.relays == nil {
		r.relays = map[string]core.RelayStatus{}
	}
	r.relays[b.Node] = core.RelayStatus{
		Node: b.Node, Host: b.Host, PID: b.PID, Program: b.Program, Version: b.Version, AllTopics: b.AllTopics,
		Topics: append([]string{}, b.Topics...), StartedAt: ago(b.SinceStart), SeenAt: now,
		ClaimedAt: ago(b.SinceClaim), PublishedAt: ago(b.SincePublish), RelayState: stored(b.RelayState, now),
	}
	return nil
}

// stored returns the state of a relay as a table has it: by the clock of the table, and with the texts
// of errors.
func stored(s core.RelayState, now time.Time) core.RelayState {
	s.Stopped = slices.Clone(s.Stopped)
	for i, d := range s.Stopped {
		s.Stopped[i].Since = now.Add(-time.Since(d.Since)).Truncate(time.Microsecond)
		s.Stopped[i].Err = errors.New(core.ErrorText(d.Err))
	}
	if s.PollErr != nil {
		s.PollErr = errors.New(core.ErrorText(s.PollErr))
	}
	return s
}

// RemoveRelay implements core.Repository.
func (r *Repository) RemoveRelay(ctx context.Context, node string) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	delete(r.relays, node)
	return nil
}

// ForgetRelays implements core.Repository.
func (r *Repository) ForgetRelays(ctx context.Context, unseen time.Duration) (int, error) {
	if err := r.begin(ctx); err != nil {
		return 0, err
	}
	defer r.mu.Unlock()
	before, was := r.now().Add(-unseen), len(r.relays)
	maps.DeleteFunc(r.relays, func(_ string, s core.RelayStatus) bool { return s.SeenAt.Before(before) })
	return was - len(r.relays), nil
}

// Relays implements core.Repository.
func (r *Repository) Relays(ctx context.Context) ([]core.RelayStatus, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	now := r.now()
	relays := slices.SortedFunc(maps.Values(r.relays), func(a, b core.RelayStatus) int {
		if c := b.SeenAt.Compare(a.SeenAt); c != 0 {
			return c
		}
		return strings.Compare(a.Node, b.Node)
	})
	for i := range relays {
		age := now.Sub(relays[i].SeenAt)
		relays[i].Topics, relays[i].Age, relays[i].Ahead = slices.Clone(relays[i].Topics), max(0, age), max(0, -age)
	}
	return relays, nil
}

// PendingTopics implements core.Repository. It looks at every row.
func (r *Repository) PendingTopics(ctx context.Context, _ int) ([]string, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	topics := map[string]bool{}
	for _, row := range r.table.rows {
		if row.Status.open() {
			topics[row.Event.Topic] = true
		}
	}
	return slices.Sorted(maps.Keys(topics)), nil
}
