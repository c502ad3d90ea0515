package command_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
)

// memory is a table of effects without a database. If fail is set, it returns the error of each
// call. sqlcommand has the tests of the contract.
type memory struct {
	mu    sync.Mutex
	rows  map[string]*memoryRow
	fail  func(call string) error
	calls map[string]int
}

type memoryRow struct {
	command.Record
	owner string
	fence int64
	until time.Time
	due   time.Time
}

func newMemory() *memory { return &memory{rows: map[string]*memoryRow{}, calls: map[string]int{}} }

func (m *memory) enter(call string) (func(), error) {
	m.mu.Lock()
	m.calls[call]++
	if m.fail != nil {
		if err := m.fail(call); err != nil {
			m.mu.Unlock()
			return nil, err
		}
	}
	return m.mu.Unlock, nil
}

func (m *memory) EnqueueTx(_ context.Context, tx core.Tx, e command.Effect) (command.Record, bool, error) {
	leave, err := m.enter("enqueue")
	if err != nil {
		return command.Record{}, false, err
	}
	defer leave()
	for _, r := range m.rows {
		if r.Tenant == e.Tenant && r.Channel == e.Channel && r.Key == e.Key {
			if r.Fingerprint() != e.Fingerprint() {
				return command.Record{}, false, once.ErrFingerprintMismatch
			}
			return r.Record, false, nil
		}
	}
	m.rows[e.ID] = &memoryRow{Record: command.Record{Effect: e}, due: time.Now().Add(e.Delay)}
	tx.OnOutcome(func(out core.Outcome) {
		if out == core.RolledBack {
			delete(m.rows, e.ID)
		}
	})
	return command.Record{Effect: e}, true, nil
}

func (m *memory) Claim(_ context.Context, id, owner string, lease time.Duration) (command.Claimed, error) {
	leave, err := m.enter("claim")
	if err != nil {
		return command.Claimed{}, err
	}
	defer leave()
	r := m.rows[id]
	if r == nil {
		return command.Claimed{}, command.ErrNoEffect
	}
	stale := r.Status == command.StatusProcessing && !time.Now().Before(r.until)
	if r.Status != command.StatusPending && r.Status != command.StatusFailed && !stale {
		return command.Claimed{Record: r.Record, RetryAfter: time.Until(r.until)}, nil
	}
	if stale {
		r.LostLeases++
	}
	r.Status, r.owner, r.until = command.StatusProcessing, owner, time.Now().Add(lease)
	r.fence++
	r.UpdatedAt = time.Now()
	return command.Claimed{Record: r.Record, Fresh: true, Fence: r.fence}, nil
}

// end changes the row if the claim is its latest.
func (m *memory) end(call string, c command.Claim, do func(r *memoryRow)) error {
	leave, err := m.enter(call)
	if err != nil {
		return err
	}
	defer leave()
	r := m.rows[c.ID]
	if r == nil || r.owner != c.Owner || r.fence != c.Fence || r.Status != command.StatusProcessing {
		return once.ErrLeaseLost
	}
	do(r)
	return nil
}

func (m *memory) Extend(_ context.Context, c command.Claim, lease time.Duration) error {
	return m.end("extend", c, func(r *memoryRow) { r.until = time.Now().Add(lease) })
}

func (m *memory) Complete(_ context.Context, c command.Claim, ref string) error {
	return m.end("complete", c, func(r *memoryRow) { r.Status, r.ExternalRef = command.StatusCompleted, ref })
}

func (m *memory) Fail(_ context.Context, c command.Claim, f command.Failure) error {
	return m.end("fail", c, func(r *memoryRow) {
		r.Status, r.ErrorCode, r.Error, r.due = command.StatusFailed, f.Code, f.Text, time.Now()
		if f.Dead {
			r.Status = command.StatusDead
		}
		if !f.Free {
			r.Attempts++
		}
	})
}

func (m *memory) RedriveTx(_ context.Context, _ core.Tx, id, note string) (command.Record, bool, error) {
	r := m.rows[id]
	if r == nil {
		return command.Record{}, false, command.ErrNoEffect
	}
	if r.Status != command.StatusDead {
		return r.Record, false, nil
	}
	r.Status, r.Attempts, r.Error = command.StatusPending, 0, note
	return r.Record, true, nil
}

func (m *memory) DiscardTx(_ context.Context, _ core.Tx, id, note string) (bool, error) {
	r := m.rows[id]
	if r == nil {
		return false, command.ErrNoEffect
	}
	if r.Status != command.StatusDead {
		return false, nil
	}
	r.Status, r.Error = command.StatusDiscarded, note
	return true, nil
}

func (m *memory) Find(_ context.Context, tenant, channel, key string) (command.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rows {
		if r.Tenant == tenant && r.Channel == channel && r.Key == key {
			return r.Record, nil
		}
	}
	return command.Record{}, command.ErrNoEffect
}

func (m *memory) List(_ context.Context, q command.Query) (list []command.Record, err error) {
	for _, r := range m.rows {
		if r.Status == q.Status {
			list = append(list, r.Record)
		}
	}
	return list, nil
}

func (m *memory) Overdue(_ context.Context, channel string, grace time.Duration,
	limit int,
) (list []command.Record, err error) {
	leave, err := m.enter("overdue")
	if err != nil {
		return nil, err
	}
	defer leave()
	over := func(t time.Time) bool { return time.Since(t) > grace }
	for _, r := range m.rows {
		open := r.Status == command.StatusPending || r.Status == command.StatusFailed ||
			r.Status == command.StatusProcessing && over(r.until)
		if r.Channel == channel && open && over(r.due) {
			list = append(list, r.Record)
		}
	}
	slices.SortFunc(list, func(a, b command.Record) int { return strings.Compare(a.ID, b.ID) })
	return list[:min(limit, len(list))], nil
}

func (m *memory) Backlog(_ context.Context, limit int) ([]command.Backlog, error) {
	leave, err := m.enter("backlog")
	if err != nil {
		return nil, err
	}
	defer leave()
	return []command.Backlog{{Channel: "mail", Pending: int64(len(m.rows)), Limit: int64(limit)}}, nil
}

func (m *memory) Cleanup(context.Context, time.Duration, int) (int, error) {
	leave, err := m.enter("cleanup")
	if err != nil {
		return 0, err
	}
	defer leave()
	return 0, nil
}
