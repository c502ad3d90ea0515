// Package inboxtest has an inbox table in memory, for tests of handlers and consumers.
package inboxtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// Store is an inbox.Store in memory. It joins any transaction that reports its end
// (core.Tx.Tracked), such as a transaction of outboxtest.Repository. A transaction whose outcome is
// unknown counts as rolled back. Make one with [NewStore]; it is safe for use by several
// goroutines.
type Store struct {
	mu       sync.Mutex
	rows     map[inbox.Key]row
	programs map[inbox.Registration]time.Time // when each registered
	lanes    map[lane]int64
	locks    map[any]*lock // one for each event, and for each key of Advance
	clock    time.Duration // how far it is ahead of the time
}

var (
	_ inbox.Store    = (*Store)(nil)
	_ inbox.Archiver = (*Store)(nil)
)

type status uint8

const (
	received status = iota
	processed
	failed
	dead
	discarded
)

type row struct {
	inbox.DeadEvent
	status  status
	changed time.Time
}

// ended reports whether the event is never processed again.
func (r row) ended() bool { return r.status == processed || r.status == discarded }

type lane struct{ consumer, handler, tenant, topic, key string }

// lock is held by a transaction until its end. If the transaction rolls back, its writes are
// undone before another one gets the lock.
type lock struct {
	tx   core.Tx
	free chan struct{}
	undo func()
}

// NewStore returns an empty Store.
func NewStore() *Store {
	return &Store{
		rows: map[inbox.Key]row{}, programs: map[inbox.Registration]time.Time{}, lanes: map[lane]int64{},
		locks: map[any]*lock{},
	}
}

// ShiftClock moves the clock of the Store by d from now on.
func (s *Store) ShiftClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock += d
}

// Processed returns the number of processed events.
func (s *Store) Processed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.rows {
		if r.status == processed {
			n++
		}
	}
	return n
}

func (s *Store) now() time.Time { return time.Now().Add(s.clock) }

// hold locks key until the end of tx. The caller holds the mutex, before and after.
func (s *Store) hold(ctx context.Context, tx core.Tx, key any) error {
	for {
		l := s.locks[key]
		if l == nil {
			break
		}
		if l.tx == tx {
			return nil
		}
		s.mu.Unlock()
		var err error
		select {
		case <-l.free:
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		if err != nil {
			return err
		}
	}
	l := &lock{tx: tx, free: make(chan struct{})}
	s.locks[key] = l
	tx.OnOutcome(func(o core.Outcome) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if o != core.Committed && l.undo != nil {
			l.undo()
		}
		delete(s.locks, key)
		close(l.free)
	})
	return nil
}

func join(tx core.Tx) error {
	switch {
	case tx == nil:
		return core.ErrNoTransaction
	case !tx.Tracked():
		return errors.New("inboxtest: the transaction is not tracked")
	}
	return tx.Err()
}

// Register implements inbox.Store.
func (s *Store) Register(_ context.Context, r inbox.Registration) (others []inbox.Registration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for have, at := range s.programs {
		if have.Consumer == r.Consumer && have.Handler == r.Handler && have.Program != r.Program &&
			s.now().Sub(at) < 7*24*time.Hour {
			others = append(others, have)
		}
	}
	if r.Program == "" {
		return nil, nil
	}
	maps.DeleteFunc(s.programs, func(have inbox.Registration, _ time.Time) bool {
		return have.Consumer == r.Consumer && have.Handler == r.Handler && have.Program == r.Program
	})
	s.programs[r] = s.now()
	slices.SortFunc(others, func(a, b inbox.Registration) int { return strings.Compare(a.Program, b.Program) })
	return others, nil
}

// Begin implements inbox.Store.
func (s *Store) Begin(ctx context.Context, tx core.Tx, e inbox.Event) (inbox.State, int, error) {
	if err := e.Validate(); err != nil {
		return 0, 0, err
	}
	if err := join(tx); err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.hold(ctx, tx, e.Key); err != nil {
		return 0, 0, err
	}
	old, existed := s.rows[e.Key]
	switch {
	case existed && old.ended():
		return inbox.StateProcessed, old.Attempts, nil
	case existed && old.status == dead:
		return inbox.StateDead, old.Attempts, nil
	}
	r := old
	if !existed {
		r.Event, r.ReceivedAt = e, s.now()
	}
	r.status, r.changed, r.Attempts, r.Code, r.Text = processed, s.now(), old.Attempts+1, "", ""
	s.rows[e.Key] = r
	s.locks[e.Key].undo = func() {
		if existed {
			s.rows[e.Key] = old
		} else {
			delete(s.rows, e.Key)
		}
	}
	return inbox.StateFresh, r.Attempts, nil
}

// BeginBatch implements inbox.Store.
func (s *Store) BeginBatch(ctx context.Context, tx core.Tx, events []inbox.Event) ([]inbox.State, error) {
	order := make([]int, len(events))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(events[a].Tenant, events[b].Tenant),
			cmp.Compare(events[a].EventID, events[b].EventID))
	})
	states := make([]inbox.State, len(events))
	for _, n := range order {
		if events[n].Consumer != events[0].Consumer || events[n].Handler != events[0].Handler {
			return nil, errors.New("inboxtest: a batch is for one consumer and handler")
		}
		var err error
		if states[n], _, err = s.Begin(ctx, tx, events[n]); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// Advance implements inbox.Store.
func (s *Store) Advance(ctx context.Context, tx core.Tx, e inbox.Event) (newer bool, err error) {
	if e.KeySeq == 0 || e.PartitionKey == "" {
		return true, nil
	}
	if err := join(tx); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := lane{e.Consumer, e.Handler, e.Tenant, e.Topic, e.PartitionKey}
	if err := s.hold(ctx, tx, l); err != nil {
		return false, err
	}
	old := s.lanes[l]
	if old >= e.KeySeq {
		return false, nil
	}
	s.lanes[l] = e.KeySeq
	if held := s.locks[l]; held.undo == nil { // else an older event of the same batch has set it
		held.undo = func() { s.lanes[l] = old }
	}
	return true, nil
}

// Fail implements inbox.Store.
func (s *Store) Fail(ctx context.Context, f inbox.Failure) (inbox.State, int, error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, existed := s.rows[f.Event.Key]
	if !existed {
		r.Event, r.ReceivedAt = f.Event, s.now()
	}
	if r.ended() {
		return inbox.StateProcessed, r.Attempts, nil
	}
	if !f.Free {
		r.Attempts++
	}
	state := inbox.State(0)
	if f.Dead || r.status == dead ||
		!f.Free && f.MaxAttempts > 0 && r.Attempts >= f.MaxAttempts && s.now().Sub(r.ReceivedAt) >= f.MinAge {
		r.status, state = dead, inbox.StateDead
	} else {
		r.status = failed
	}
	r.Code, r.Text, r.FailedAt, r.changed = f.Code, f.Text, s.now(), s.now()
	s.rows[f.Event.Key] = r
	return state, r.Attempts, nil
}

// ListDead implements inbox.Store.
func (s *Store) ListDead(_ context.Context, q inbox.DeadQuery) ([]inbox.DeadEvent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []inbox.DeadEvent
	for _, r := range s.rows {
		if r.status == dead && r.Consumer == q.Consumer && (q.Handler == "" || r.Handler == q.Handler) &&
			(q.EventID == "" || r.Tenant == q.Tenant && r.EventID == q.EventID) &&
			(q.After == nil || order(r.DeadEvent, *q.After) > 0) {
			list = append(list, r.DeadEvent)
		}
	}
	slices.SortFunc(list, order)
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	return list[:min(limit, 1000, len(list))], nil
}

func order(a, b inbox.DeadEvent) int {
	return cmp.Or(a.ReceivedAt.Compare(b.ReceivedAt), cmp.Compare(a.Handler, b.Handler),
		cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.EventID, b.EventID))
}

// Redrive implements inbox.Store.
func (s *Store) Redrive(_ context.Context, keys []inbox.Key, actor, reason string) (changed int, err error) {
	return s.change(keys, actor, reason, func(r *row) { r.status, r.Attempts, r.Code = received, 0, "redriven" })
}

// Discard implements inbox.Store.
func (s *Store) Discard(_ context.Context, keys []inbox.Key, actor, reason string) (changed int, err error) {
	return s.change(keys, actor, reason, func(r *row) { r.status, r.Code = discarded, "discarded" })
}

// change applies a person's decision to the events that are dead.
func (s *Store) change(keys []inbox.Key, actor, reason string, do func(*row)) (changed int, err error) {
	if len(keys) == 0 || strings.TrimSpace(actor) == "" || strings.TrimSpace(reason) == "" {
		return 0, fmt.Errorf("%w: keys, actor and reason are required", inbox.ErrInvalidRequest)
	}
	for _, k := range keys {
		if err := k.Validate(); err != nil {
			return 0, fmt.Errorf("%w: %w", inbox.ErrInvalidRequest, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		if r, ok := s.rows[k]; ok && r.status == dead {
			do(&r)
			r.Text, r.ReceivedAt, r.changed = actor+": "+reason, s.now(), s.now()
			s.rows[k] = r
			changed++
		}
	}
	return changed, nil
}

// Cleanup implements inbox.Store.
func (s *Store) Cleanup(_ context.Context, consumer string, keep time.Duration, limit int) (deleted int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.old(consumer, keep, limit) {
		delete(s.rows, k)
		deleted++
	}
	return deleted, nil
}

// old returns the keys of the events that Cleanup deletes. The caller holds the mutex.
func (s *Store) old(consumer string, keep time.Duration, limit int) (keys []inbox.Key) {
	for k, r := range s.rows {
		if _, locked := s.locks[k]; len(keys) < limit && !locked && r.ended() && k.Consumer == consumer &&
			s.now().Sub(r.changed) > keep {
			keys = append(keys, k)
		}
	}
	return keys
}

// Archive implements inbox.Archiver.
func (s *Store) Archive(ctx context.Context, consumer string, keep time.Duration, limit int,
	fn func(ctx context.Context, events []inbox.ArchivedEvent) error,
) (deleted int, err error) {
	s.mu.Lock()
	byHandler := map[string][]inbox.ArchivedEvent{}
	for _, k := range s.old(consumer, keep, math.MaxInt) {
		r := s.rows[k]
		e := inbox.ArchivedEvent{Key: k, Source: r.Topic, Attempts: r.Attempts, EndedAt: r.changed.UTC()}
		if r.Located {
			e.Source = fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset)
		}
		if r.status == discarded {
			e.Discarded, e.Note = true, r.Text
		}
		byHandler[k.Handler] = append(byHandler[k.Handler], e)
	}
	s.mu.Unlock()
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(byHandler)) {
		events := byHandler[name]
		n, err := s.archive(ctx, events[:min(len(events), limit-deleted)], fn)
		problems = append(problems, err)
		if deleted += n; deleted >= limit {
			break
		}
	}
	return deleted, errors.Join(problems...)
}

// archive is Archive for the events of one handler.
func (s *Store) archive(ctx context.Context, events []inbox.ArchivedEvent,
	fn func(ctx context.Context, events []inbox.ArchivedEvent) error,
) (deleted int, err error) {
	if err := fn(ctx, events); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		r, ok := s.rows[e.Key]
		if _, locked := s.locks[e.Key]; ok && !locked && r.ended() && r.changed.Equal(e.EndedAt) {
			delete(s.rows, e.Key)
			deleted++
		}
	}
	return deleted, nil
}

// CleanupKeys implements inbox.Store. It deletes nothing.
func (*Store) CleanupKeys(context.Context, string, time.Duration, int) (deleted int, err error) {
	return 0, nil
}
