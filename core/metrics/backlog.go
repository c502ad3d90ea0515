package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// The gauges that come from the database: see Set.Backlog.
var (
	BacklogMessages = Desc{
		Name: "outbox_backlog_messages", Labels: []string{"state"},
		Help: "Events that are not finished, counted up to a limit. Use max over processes.",
	}
	BacklogOldestAge = Desc{
		Name: "outbox_backlog_oldest_age_seconds",
		Help: "Age of the oldest pending event, by the clock of the database; 0 without one.",
	}
	BlockedKeys = Desc{
		Name: "outbox_blocked_keys", Help: "Keys that a dead event holds up, counted up to a limit.",
	}
)

// Backlogger is what Watch asks: a *core.Outbox.
type Backlogger interface {
	Backlog(ctx context.Context) (core.Backlog, error)
}

// backlog asks the database for the gauges.
type backlog struct {
	every, timeout time.Duration
	failed         Counter

	mu    sync.Mutex // held while the database is asked: scrapes wait for one answer
	of    Backlogger
	asked time.Time
	last  core.Backlog
	err   error
}

func newBacklog(m Meter, cfg Config) *backlog {
	return &backlog{
		every: cfg.BacklogEvery, timeout: cfg.BacklogTimeout,
		failed: counter(m, "outbox_backlog_errors_total",
			"Queries for the backlog that failed. Its gauges are missing meanwhile.")(),
	}
}

// Watch says which outbox Backlog asks. A second call replaces it.
func (s *Set) Watch(outbox Backlogger) {
	b := s.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of, b.asked = outbox, time.Time{}
}

// Backlog returns the values of BacklogMessages, BacklogOldestAge and BlockedKeys, from the
// database if the last answer is older than Config.BacklogEvery. ok is false if nothing is watched,
// or the query failed: the gauges should be missing then, because an old figure would hide an
// outage. A failure is counted.
func (s *Set) Backlog(ctx context.Context) (backlog core.Backlog, ok bool) {
	b := s.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		return core.Backlog{}, false
	}
	if b.asked.IsZero() || time.Since(b.asked) >= b.every {
		ctx, cancel := context.WithTimeout(ctx, b.timeout)
		defer cancel()
		if b.last, b.err = b.of.Backlog(ctx); b.err != nil {
			b.failed.Add(1)
		}
		b.asked = time.Now()
	}
	return b.last, b.err == nil
}
