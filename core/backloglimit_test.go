package core_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// limited is a process that only inserts.
type limited struct {
	*testing.T
	repo   *outboxtest.Repository
	faulty *outboxtest.FaultyRepository
	ob     *core.Outbox
	log    bytes.Buffer
}

func newLimited(t *testing.T, limit core.BacklogLimit) *limited {
	t.Helper()
	p := &limited{T: t, repo: outboxtest.NewRepository()}
	p.faulty = outboxtest.NewFaultyRepository(p.repo)
	p.ob = newOutbox(t, core.Config{
		Repository: p.faulty, BacklogLimit: limit, Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
	})
	return p
}

// publish publishes n events.
func (p *limited) publish(n int) error {
	events := make([]core.Event, n)
	for i := range events {
		events[i].Type = "a"
	}
	err := publishTx(p.Context(), p.repo, p.ob, events...)
	synctest.Wait() // for the count, if one follows
	return err
}

// count makes the outbox count the backlog, and the next Publish goes by that count. It publishes
// in a transaction that is rolled back, because the count may come before or after the end of the
// transaction.
func (p *limited) count() {
	time.Sleep(6 * time.Second)
	_ = p.repo.Transactor().RunInTx(p.Context(), func(ctx context.Context, tx core.Tx) error {
		_, err := p.ob.Publish(ctx, tx, core.Event{Type: "a"})
		return errors.Join(err, errors.New("roll it back"))
	})
	synctest.Wait()
}

func (p *limited) wantFull(n int, full bool) {
	p.Helper()
	rows := len(p.repo.Rows())
	err := p.publish(n)
	if _, ok := errors.AsType[*core.BacklogFullError](err); ok != full || errors.Is(err, core.ErrBacklogFull) != full ||
		!full && err != nil {
		p.Fatalf("Publish to %d rows: %v; want it refused: %v", rows, err, full)
	}
	if full && len(p.repo.Rows()) != rows {
		p.Fatalf("a refused Publish left %d rows", len(p.repo.Rows())-rows)
	}
}

// discard ends the waiting events, as a relay would.
func (p *limited) discard() {
	p.Helper()
	var ids []core.RowID
	for _, row := range p.repo.Rows() {
		ids = append(ids, row.ID)
	}
	_, err := p.ob.Discard(p.Context(), core.AdminRequest{IDs: ids, Actor: "a", Reason: "r", Force: true})
	must(p, err)
}

// Publish refuses events once a count has found as many as the limit, and accepts them once a count
// has found fewer.
func TestBacklogLimitOfRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLimited(t, core.BacklogLimit{Rows: 10})
		p.wantFull(9, false)
		p.count()
		p.wantFull(3, false) // 9 were counted
		p.wantFull(1, false) // not counted again yet
		p.count()
		p.wantFull(1, true)
		p.count()
		p.wantFull(1, true)
		p.discard()
		p.wantFull(1, true) // not counted again yet
		p.count()
		p.wantFull(1, false)
		for _, want := range []string{"Publish refuses events", "Publish accepts events"} {
			if n := strings.Count(p.log.String(), want); n != 1 {
				t.Errorf("%d lines %q in the log, want 1:\n%s", n, want, p.log.String())
			}
		}
	})
}

// The age of the oldest event is a limit too. The error says what was found. A count that is old
// refuses nothing.
func TestBacklogLimitOfAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLimited(t, core.BacklogLimit{Age: time.Hour})
		p.wantFull(1, false)
		time.Sleep(59 * time.Minute)
		p.count()
		p.wantFull(1, false)
		time.Sleep(54 * time.Second)
		p.count()
		err := p.publish(1)
		full, ok := errors.AsType[*core.BacklogFullError](err)
		if !ok || full.Backlog.Pending != 2 || full.Backlog.OldestAge != time.Hour+6*time.Second ||
			!strings.Contains(err.Error(), "2 events wait, the oldest for 1h0m6s, and Config.BacklogLimit is 1h0m0s") {
			t.Errorf("Publish: %v", err)
		}
		time.Sleep(time.Minute)
		p.wantFull(1, false)
	})
}

// A backlog that cannot be counted refuses nothing.
func TestBacklogLimitWithoutCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLimited(t, core.BacklogLimit{Rows: 2})
		p.wantFull(1, false)
		p.wantFull(1, false)
		p.count()
		p.wantFull(1, true)
		p.faulty.Fail(outboxtest.Fault{Method: outboxtest.MethodBacklog, Err: errors.New("away"), Times: 3})
		for range 3 {
			p.count()
			p.wantFull(1, false)
		}
		if n := strings.Count(p.log.String(), "cannot be counted"); n != 1 {
			t.Errorf("the log says %d times that the backlog cannot be counted, want 1", n)
		}
		p.count()
		p.wantFull(1, true)
	})
}

// Many calls of Publish at once cause one count.
func TestBacklogLimitCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &countedBacklog{Repository: outboxtest.NewRepository()}
		ob := newOutbox(t, core.Config{Repository: repo, BacklogLimit: core.BacklogLimit{Rows: 100}})
		for range 30 {
			for range 10 {
				go func() {
					err := publishTx(t.Context(), repo, ob, core.Event{Type: "a"})
					if err != nil && !errors.Is(err, core.ErrBacklogFull) {
						t.Error(err)
					}
				}()
			}
			time.Sleep(time.Second)
		}
		// Each count takes 2 s and is followed by a pause of 40 s.
		equal(t, repo.counts, 1, "counts in half a minute")
		time.Sleep(time.Minute)
	})
}

// countedBacklog is a table in which a count takes two seconds.
type countedBacklog struct {
	*outboxtest.Repository
	counts int
}

func (r *countedBacklog) Backlog(ctx context.Context, limit int) (core.Backlog, error) {
	r.counts++
	time.Sleep(2 * time.Second)
	return r.Repository.Backlog(ctx, limit)
}
