package relay

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

const (
	// After a round that a wake-up from another process began, the next such round waits: for the
	// duration of the round, and once more for each batchRows that it found, so that a busy relay
	// claims in batches.
	batchRows  = 8
	maxBatched = 20 * time.Millisecond
	// It waits longer, the more rounds in a row found nothing: the wake-ups are for others.
	vainPause = time.Millisecond
	maxVain   = 100 * time.Millisecond

	// Until Listen first calls wake, and until it calls wake after a Notify of this relay.
	hearTimeout = 10 * time.Second
	// Without a wake-up, until the relay checks that Listen still works.
	hearCheck = time.Minute
	// The longest pause between two calls of Listen.
	maxListenPause = time.Minute
	// For Listen to return after its context has ended.
	listenGrace = time.Second
)

// heard rations wake-ups from other processes, because a busy database may send many, and each
// costs a poll. The zero value is ready.
type heard struct {
	since bool      // one came since the last round began
	vain  int       // rounds in a row that one began and that found nothing
	rest  time.Time // until then they have to wait

	ordered bool // the kind of rows that was found last
	full    bool // the last round left rows behind
}

// orderedFirst reports whether a round for a wake-up looks for ordered rows first: the kind that
// was found last is the likely one, and its events need not wait for the other claim. While rounds
// leave rows behind, the kinds take turns.
func (h *heard) orderedFirst(turn bool) bool {
	if h.full {
		return turn
	}
	return h.ordered
}

// found records the rows that the two claims of a round returned.
func (h *heard) found(orderedFirst bool, first, second int, more bool) {
	h.full = more
	if first > 0 || second > 0 {
		h.ordered = orderedFirst == (first > 0)
	}
}

// took records the end of a round that a wake-up from another process began, and its number of
// rows.
func (h *heard) took(began, now time.Time, rows int) {
	took := now.Sub(began)
	if rows > 0 {
		h.vain = 0
		h.rest = now.Add(min(took*time.Duration(1+rows/batchRows), maxBatched))
		return
	}
	h.vain++
	h.rest = now.Add(min(max(took, pace.Backoff(vainPause, maxVain, h.vain)), maxVain))
}

// onWake asks for a poll, because another process may have committed events.
func (w *wakeups) onWake(now time.Time) {
	w.heard.since = true
	w.poll(later(now, w.heard.rest))
}

func (r *engine) wokenByOthers() { r.do(func(s *state) { s.wakes.onWake(time.Now()) }) }

var (
	errDeaf = errors.New("outbox: no wake-up arrived after a Notify of this relay; PgBouncer in transaction mode " +
		"loses LISTEN: give Listen the address of PostgreSQL itself")
	errNotReady    = errors.New("outbox: Listen did not call wake in time")
	errListenEnded = errors.New("outbox: Listen returned before its context ended")
)

// listener runs WakePolicy.Listen while a relay runs.
type listener struct {
	*engine
	run      func(ctx context.Context, wake func()) error
	own      bool // it is the Repository's Listen, and needs no check
	failures int  // since wake-ups arrived for certain
	warned   bool // the log has a warning that no wake-ups arrive
}

// listen lets Listen wake the poller until ctx ends. A wake-up that is missed costs nothing but
// time: the next poll finds the rows.
func (r *engine) listen(ctx context.Context) {
	l := listener{engine: r, own: r.ob.Wake.Listen == nil, run: r.ob.Wake.Listen}
	if l.own && !r.ob.Wake.Disable {
		if of, ok := r.repo().(core.Waker); ok {
			l.run = of.Listen
		}
	}
	if l.run == nil {
		return
	}
	for ctx.Err() == nil {
		err := l.listenOnce(ctx)
		if ctx.Err() != nil || errors.Is(err, errors.ErrUnsupported) {
			return
		}
		l.failures++
		r.doubt()
		// A connection that is lost is opened again at once, and is worth no warning.
		if !l.warned && (l.failures > 1 || errors.Is(err, errDeaf)) {
			l.warned = true
			r.ob.Logger.Warn("outbox: no wake-ups arrive from other processes: their events wait for the next poll",
				"poll_interval", r.cfg.PollInterval, "error", errtext.Of(err))
		}
		if !pace.Sleep(ctx, pace.Spread(pace.Backoff(basePause, maxListenPause, l.failures), r.random())) {
			return
		}
	}
}

// listenOnce calls Listen once. It returns when Listen does, and ends Listen when no wake-up arrives in
// time.
func (l *listener) listenOnce(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	sounds, ended := make(chan struct{}, 1), make(chan struct{})
	result := error(core.NewPanicError(nil)) // if Listen ends its goroutine
	go func() {
		defer close(ended)
		result = l.call(ctx, sounds)
	}()
	defer func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(listenGrace):
			l.ob.Logger.Warn("outbox: Listen ignores the end of its context")
		}
	}()
	timer := time.NewTimer(hearTimeout)
	defer timer.Stop()
	ready, waiting := false, true // waiting: a wake-up must arrive before the timer ends
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return cmp.Or(result, errListenEnded)
		case <-sounds:
			waiting = false
			if !ready { // connected, by its own account
				ready = true
				timer.Reset(0)
				continue
			}
			l.markHearing()
			timer.Reset(pace.Spread(hearCheck, l.random()))
		case <-timer.C:
			switch {
			case waiting && ready:
				return errDeaf
			case waiting:
				return errNotReady
			}
			checked, err := l.check(ctx)
			switch {
			case !checked: // nothing else can be known
				l.markHearing()
			case err != nil: // the database is away, which the poller logs
				timer.Reset(hearCheck)
			default:
				waiting = true
				timer.Reset(hearTimeout)
			}
		}
	}
}

// call calls Listen.
func (l *listener) call(ctx context.Context, sounds chan<- struct{}) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = core.NewPanicError(v)
		}
	}()
	return l.run(ctx, func() {
		l.wokenByOthers()
		select {
		case sounds <- struct{}{}:
		default:
		}
	})
}

// check sends a Notify, after which Listen has to call wake. checked is false if there is nothing
// to check.
func (l *listener) check(ctx context.Context) (checked bool, err error) {
	if l.ob.Wake.Notify == nil || l.own {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	err = l.ob.Wake.Notify(ctx)
	return !errors.Is(err, errors.ErrUnsupported), err
}

// markHearing records that wake-ups arrive.
func (l *listener) markHearing() {
	if l.warned {
		l.ob.Logger.Info("outbox: wake-ups from other processes arrive again")
	}
	l.failures, l.warned = 0, false
}
