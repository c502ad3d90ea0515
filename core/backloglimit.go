package core

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

const (
	// gaugeEvery is how often a backlogGauge counts at most.
	gaugeEvery = 5 * time.Second
	// gaugeShare bounds the time that counting takes of the database: a count that takes long is
	// repeated after that many times its duration, but no later than gaugeMax.
	gaugeShare = 20
	gaugeMax   = time.Minute
	// gaugeLeast is the smallest limit of a count, so that the age of the oldest event is taken
	// from many rows.
	gaugeLeast = 1000
)

// BacklogLimit makes Publish refuse events while too many wait to be published, before a broker
// that is away for days fills the disk of the database. The zero value is no limit.
//
// Publish never waits for the count. It uses the last one, which is counted in the background about
// every 5 seconds while Publish is called, less often if counting takes long. So the first events
// of a process pass, and so do events between two counts: leave room for them. If the count fails,
// events pass, and the log has one warning. Events that a person redrives or replays always pass.
type BacklogLimit struct {
	// Rows is the largest number of waiting rows of all topics together: NEW and RETRY, delayed
	// ones too, but not DEAD. A count examines at most Rows rows without a key and as many rows
	// with one, DEAD rows among them: many DEAD rows can hide that the limit is reached. 0: any
	// number.
	Rows int
	// Age is how long ago the oldest row that waits may have been inserted. It must be longer than
	// any Event.Delay, pause and planned outage. 0: any age.
	Age time.Duration
}

// BacklogFullError is returned by Publish when Config.BacklogLimit is reached. Nothing was written.
// errors.Is(err, ErrBacklogFull) is true.
type BacklogFullError struct {
	Limit   BacklogLimit
	Backlog Backlog // its counts stop at Backlog.Limit
}

func (e *BacklogFullError) Error() string {
	return fmt.Sprintf("%s: at least %d events wait, the oldest for %s, and Config.BacklogLimit is %s: "+
		"nothing was written; find out why no relay publishes them (outbox status)", ErrBacklogFull, e.Backlog.Pending,
		e.Backlog.OldestAge.Round(time.Second), e.Limit)
}

// Is reports whether target is ErrBacklogFull.
func (e *BacklogFullError) Is(target error) bool { return target == ErrBacklogFull }

// String returns the limits that are set.
func (l BacklogLimit) String() string {
	switch {
	case l.Rows == 0:
		return l.Age.String()
	case l.Age == 0:
		return fmt.Sprintf("%d rows", l.Rows)
	}
	return fmt.Sprintf("%d rows or %s", l.Rows, l.Age)
}

// backlogGauge reports whether the backlog has reached its limit. Any number of goroutines may ask;
// each call reads the clock. One goroutine at a time counts.
type backlogGauge struct {
	limit  BacklogLimit
	repo   Repository
	logger *slog.Logger
	start  time.Time // of all times here

	next atomic.Int64 // when to count again, in ns; while one counts: never
	full atomic.Pointer[gauged]

	refusing, unknown bool // what was logged last; used by the counting goroutine
}

// gauged is a count that reached the limit.
type gauged struct {
	err   *BacklogFullError
	until time.Duration // when it is too old to refuse anything
}

// newBacklogGauge returns nil if there is no limit.
func newBacklogGauge(limit BacklogLimit, repo Repository, logger *slog.Logger) *backlogGauge {
	if limit == (BacklogLimit{}) {
		return nil
	}
	return &backlogGauge{limit: limit, repo: repo, logger: logger, start: time.Now()}
}

// check returns a *BacklogFullError if the last count reached the limit. It has the backlog counted
// again when it is time.
func (g *backlogGauge) check() error {
	now, full := time.Since(g.start), g.full.Load() // before the next count, which may be quick
	if next := g.next.Load(); int64(now) >= next && g.next.CompareAndSwap(next, math.MaxInt64) {
		go g.count()
	}
	if full != nil && now < full.until {
		return full.err
	}
	return nil
}

// count counts the backlog once.
func (g *backlogGauge) count() {
	begin := time.Since(g.start)
	ctx, cancel := context.WithTimeout(context.Background(), dbTimeout)
	b, err := g.repo.Backlog(ctx, max(g.limit.Rows, gaugeLeast))
	cancel()
	end := time.Since(g.start)
	pause := min(max(gaugeEvery, gaugeShare*(end-begin)), gaugeMax)
	var full *gauged
	if err == nil && g.limit.reached(b) {
		full = &gauged{err: &BacklogFullError{Limit: g.limit, Backlog: b}, until: end + pause + dbTimeout}
	}
	g.full.Store(full)
	g.log(b, err, full != nil)
	g.next.Store(int64(end + pause))
}

func (l BacklogLimit) reached(b Backlog) bool {
	return l.Rows > 0 && b.Pending >= int64(l.Rows) || l.Age > 0 && b.Pending > 0 && b.OldestAge >= l.Age
}

// log logs changes since the previous count.
func (g *backlogGauge) log(b Backlog, err error, full bool) {
	if err != nil && !g.unknown {
		g.logger.Warn("outbox: the backlog cannot be counted, Publish accepts events without the limit meanwhile",
			"error", errtext.Of(err))
	}
	g.unknown = err != nil
	if full != g.refusing && err == nil {
		text := "outbox: the backlog has reached its limit, Publish refuses events"
		if !full {
			text = "outbox: the backlog is below its limit again, Publish accepts events"
		}
		g.logger.Warn(text, "limit", g.limit.String(), "pending", b.Pending, "oldest_age",
			b.OldestAge)
		g.refusing = full
	}
}
