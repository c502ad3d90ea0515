package ops

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/repeat"
)

// RunOptions are options of RunPlan. Only Actor is required.
type RunOptions struct {
	Actor string // who runs it, for the audit
	// Rate is how many events a second are changed at most, 0.001 or more. 0: no limit. It applies
	// to this run.
	Rate float64
	// StopShare is the share of the events of a stage that may fail again. If more of them fail,
	// the plan stops. Default: 0.1. Below 0.002 one failure stops it.
	StopShare float64
	// Wait is how long the next outcome of a stage is waited for. If none comes, the plan stops,
	// because no relay seems to publish. Default: one minute.
	Wait time.Duration
	// SkipDead is needed if the relays have DeadPolicy core.SkipDead and this Outbox has not.
	SkipDead bool
	// Steps is after how many stages RunPlan pauses the plan and returns nil: 1 redrives one event,
	// waits for its outcome, and leaves the next ten to another call. 0: it goes on to the end.
	Steps int
	// DryRun: the plan is read and checked as ever, and nothing is changed. RunPlan returns the
	// plan as it is, or the error that it would begin with.
	DryRun bool
	// Progress, if not nil, is called after each change of the plan, by the goroutine of RunPlan.
	Progress func(p StoredPlan)
}

const (
	minRate   = 0.001 // events per second
	maxRate   = 1e6
	runLease  = 30 * time.Second // of the process that runs a plan
	runRenew  = 2 * time.Second  // how often it renews that while it waits, and looks for a pause
	firstLook = 20 * time.Millisecond
	lastLook  = 500 * time.Millisecond
)

// stages are the numbers of events in the first stages of a redrive or a replay. The other stages
// have applyChunk.
var stages = []int{1, 10}

// planRun is one call of RunPlan.
type planRun struct {
	RunOptions
	store Store
	waker core.Waker // nil: none
	told  func(core.OperatedInfo)
	p     StoredPlan
	name  string    // StoredPlan.Worker while this call runs the plan
	stage int       // how many events the last change changed; 0 may be another run's, or none
	since time.Time // when the last change began
	until time.Time // by the clock of this process: Plan.Until
}

// RunPlan works a stored plan off, in its order: each key in its order. Ids are changed together
// with the position of the plan, so that a plan changes each event once, and no other event. Each
// changed event gets its audit row in the same transaction. Events that have changed since the plan
// was made are left alone, as Apply leaves them.
//
// A redrive goes by stages: one event, then ten, and then 500 at a time. RunPlan waits until each
// event of a stage is published or has failed again. If more than RunOptions.StopShare of them have
// failed, the plan stops: the cause of the failures is still there. So at most 11 events are
// published again if nothing was repaired, however many the plan has. A plan that was stopped
// begins with the first stage again. A discard has no outcomes to wait for.
//
// A replay goes by the same stages, so at most 500 of its rows are open at a time. Relays publish
// them with low priority. The outcomes are counted for the rows that it has inserted. An event
// whose new row is refused has failed, and a person redrives that row. Events whose row was deleted
// since the plan was made are not replayed: they are missing from Changed. The error wraps
// ErrDedupWindow if Plan.Until has passed, or if a consumer has declared a shorter Window
// meanwhile.
//
// RunPlan returns when the plan is done, or paused after RunOptions.Steps. The error wraps
// ErrPlanStopped if the plan stopped, or if somebody else paused or cancelled it. Repair the cause
// in Note, and call RunPlan again: it goes on with the remaining events. If ctx ends, the plan is
// paused. If the process dies, any process can go on after half a minute. Until then the error
// wraps ErrPlanRunning, as it does for a plan that another process runs. It wraps ErrPlanEnded for
// a plan that is done or cancelled.
func (a *API) RunPlan(ctx context.Context, id string, o RunOptions) (StoredPlan, error) {
	switch {
	case o.Rate != 0 && !(o.Rate >= minRate && o.Rate <= maxRate): // also NaN
		return StoredPlan{}, invalid("{Rate} %v is not 0, nor between %v and %v", o.Rate, minRate, maxRate)
	case !(o.StopShare >= 0 && o.StopShare <= 1) || o.Wait < 0 || o.Steps < 0:
		return StoredPlan{}, invalid("{Wait} and {Steps} are not negative, and {StopShare} is 0 to 1")
	case o.Actor == "":
		return StoredPlan{}, invalid("{RunOptions.Actor} is required")
	}
	o.StopShare, o.Wait = cmp.Or(o.StopShare, 0.1), cmp.Or(o.Wait, time.Minute)
	o.SkipDead = o.SkipDead || a.outbox.DeadPolicy() == core.SkipDead
	r := planRun{RunOptions: o, store: a.store, told: a.outbox.Observer().Operated, name: worker()}
	r.waker, _ = a.outbox.Repository().(core.Waker)
	err := r.begin(ctx, a, id)
	if err == nil && !o.DryRun {
		err = r.work(ctx)
	}
	if err != nil && r.mine() {
		r.interrupted(ctx, err)
	}
	return r.p, err
}

// mine reports whether this call runs the plan, or was about to when the answer got lost.
func (r *planRun) mine() bool { return r.p.State == PlanRunning && r.p.Worker == r.name }

// begin takes the plan. A dry run does not.
func (r *planRun) begin(ctx context.Context, a *API, id string) (err error) {
	for {
		if r.p, err = a.StoredPlan(ctx, id); err != nil {
			return err
		}
		switch {
		case r.p.State.Ended():
			return fmt.Errorf("%w: it is %s", ErrPlanEnded, r.p.State)
		case r.p.Running():
			return fmt.Errorf("%w: %s, until %s", ErrPlanRunning, r.p.Worker, r.p.WorkerUntil.Format(time.RFC3339))
		}
		if err := r.p.check(); err != nil {
			return err
		}
		if r.p.Until.Before(r.p.ReadAt) && r.p.Action == ActionReplay {
			return fmt.Errorf("%w: the plan could be run until %s; make a new one", ErrDedupWindow,
				r.p.Until.Format(time.RFC3339))
		}
		if err := a.stillRemembered(ctx, &r.p.Plan); err != nil {
			return err
		}
		if r.DryRun {
			return nil
		}
		r.until = time.Now().Add(r.p.Until.Sub(r.p.ReadAt))
		if r.p.State == PlanStopped {
			r.p.Stage = 0
		}
		r.p.State, r.p.Worker, r.p.Note = PlanRunning, r.name, ""
		ok, err := r.change(ctx, PlanChange{Audit: auditRun})
		if err != nil || ok {
			return err
		}
	}
}

// worker names this process, and this run in it.
func worker() string {
	host, _ := os.Hostname()
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), hex.EncodeToString(b))
}

// change stores r.p with what c has more.
func (r *planRun) change(ctx context.Context, c PlanChange) (ok bool, err error) {
	c.Plan = r.p
	c.Request = core.AdminRequest{
		Actor: r.Actor, Reason: r.p.Reason, SkipDead: r.SkipDead, Seen: r.p.seen(r.p.Position-len(c.IDs), r.p.Position),
	}
	if len(c.IDs) > 0 {
		c.Request.Reason = r.p.rowReason()
	}
	if r.p.State == PlanRunning {
		c.Lease = runLease
	}
	start := time.Now()
	p, ok, err := r.store.ChangePlan(ctx, c)
	if err != nil || !ok {
		return ok, err
	}
	p.IDs, p.Seen = r.p.IDs, r.p.Seen
	if n := p.Changed - r.p.Changed; n > 0 {
		r.told(core.OperatedInfo{
			Action: core.OperatorAction(p.Action), Rows: n, Duration: time.Since(start),
		})
	}
	if r.p = p; r.Progress != nil {
		r.Progress(p)
	}
	return true, nil
}

// must is change for the process that runs the plan. If the plan has changed, somebody else stopped
// it.
func (r *planRun) must(ctx context.Context, c PlanChange) error {
	ok, err := r.change(ctx, c)
	if r.waker != nil && ok && err == nil && len(c.IDs) > 0 {
		_ = r.waker.Notify(ctx) // without it, relays find the events with their next poll
	}
	if err != nil || ok {
		return err
	}
	p, found, err := r.store.ReadPlan(ctx, r.p.ID)
	switch {
	case err != nil:
		return err
	case !found:
		r.p.State = PlanCancelled
		return fmt.Errorf("%w: %s", ErrNoPlan, r.p.ID)
	case p.State == PlanRunning:
		r.p = p
		return fmt.Errorf("%w: %s has taken it", ErrPlanRunning, p.Worker)
	}
	r.p = p
	return fmt.Errorf("%w: it is %s %s", ErrPlanStopped, p.State, p.Note)
}

func (r *planRun) work(ctx context.Context) error {
	for steps := 0; ; steps++ {
		if err := r.judge(ctx); err != nil {
			return err
		}
		if r.p.Position == len(r.p.IDs) {
			r.p.State = PlanDone
			return r.must(ctx, PlanChange{})
		}
		if r.Steps > 0 && steps == r.Steps {
			r.p.State, r.p.Note = PlanPaused, fmt.Sprintf("%s has run %s of it", r.Actor, times(steps, "step"))
			return r.must(ctx, PlanChange{})
		}
		n := min(r.stageSize(), len(r.p.IDs)-r.p.Position)
		if err := r.pace(ctx, n); err != nil {
			return err
		}
		if r.p.Action == ActionReplay && !time.Now().Before(r.until) {
			return r.stop(ctx, "consumers may have forgotten the other events: make a new plan")
		}
		ids := r.p.IDs[r.p.Position : r.p.Position+n]
		before := r.p
		r.p.Position += n
		r.p.Stage++
		if err := r.must(ctx, PlanChange{IDs: ids}); err != nil {
			if r.mine() { // the change failed, or its outcome is not known
				r.p = before
			}
			return err
		}
		r.stage = r.p.Changed - before.Changed
	}
}

// stageSize is how many events the next stage has.
func (r *planRun) stageSize() int {
	n := applyChunk
	if r.p.Action != ActionDiscard && r.p.Stage < len(stages) {
		n = stages[r.p.Stage]
	}
	if r.Rate > 0 {
		n = min(n, max(1, int(r.Rate)))
	}
	return n
}

// pace waits until the rate allows n more events.
func (r *planRun) pace(ctx context.Context, n int) error {
	if r.Rate <= 0 {
		return nil
	}
	next := r.since.Add(time.Duration(float64(n) / r.Rate * float64(time.Second)))
	for wait := time.Until(next); wait > 0; wait = time.Until(next) {
		if err := sleep(ctx, min(wait, runRenew)); err != nil {
			return err
		}
		if err := r.must(ctx, PlanChange{}); err != nil {
			return err
		}
	}
	r.since = time.Now()
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if !repeat.Sleep(ctx, d) {
		return ctx.Err()
	}
	return nil
}

// judge waits for the outcomes of the last stage, and stops the plan if too many of its events have
// failed again.
func (r *planRun) judge(ctx context.Context) error {
	ids := r.p.IDs[r.p.Judged:r.p.Position]
	if r.p.Action == ActionDiscard || len(ids) == 0 {
		r.p.Judged = r.p.Position
		return nil
	}
	look, renewed := firstLook, time.Now()
	fewest, end := len(ids)+1, time.Time{}
	for {
		succeeded, failed, open, err := r.outcomes(ctx, ids)
		if err != nil {
			return err
		}
		if open < fewest { // a slow relay is no reason to stop
			fewest, end = open, time.Now().Add(r.Wait)
		}
		of := len(ids)
		if r.stage > 0 {
			of = r.stage // the others were left alone
		}
		tooMany := float64(failed) > r.StopShare*float64(of)
		if late := open > 0 && !tooMany && !time.Now().Before(end); late {
			// The stage is judged by the run that goes on with the plan.
			return r.stop(ctx, fmt.Sprintf("%d of %d events are open, and for %s none was published or refused: "+
				"is a relay running, and does it reach the broker?", open, len(ids), r.Wait))
		}
		if open == 0 || tooMany {
			r.p.Succeeded, r.p.Failed = r.p.Succeeded+succeeded, r.p.Failed+failed
			r.p.Succeeded = min(r.p.Succeeded, r.p.Changed-r.p.Failed) // events that were left alone have no outcome
			r.p.Judged = r.p.Position
			switch {
			case tooMany && r.p.Action == ActionReplay:
				return r.stop(ctx, fmt.Sprintf("%d of %d events failed", failed, len(ids)))
			case tooMany:
				return r.stop(ctx, fmt.Sprintf("%d of %d events failed again", failed, len(ids)))
			}
			return nil // stored together with the next stage
		}
		if err := sleep(ctx, look); err != nil {
			return err
		}
		look = min(2*look, lastLook)
		if time.Since(renewed) >= runRenew {
			if err := r.must(ctx, PlanChange{}); err != nil {
				return err
			}
			renewed = time.Now()
		}
	}
}

// outcomes counts the events of a stage. Those that were deleted were published before.
func (r *planRun) outcomes(ctx context.Context, ids []core.RowID) (succeeded, failed, open int, err error) {
	reason := r.p.rowReason()
	if r.p.Action == ActionReplay {
		ids, reason = slices.Clone(ids), ""
		for i := range ids {
			ids[i] = r.p.ReplayID(ids[i])
		}
	}
	all, err := r.store.ReadStatuses(ctx, ids, reason)
	succeeded = len(ids) - len(all)
	for _, o := range all {
		switch {
		case o.Status == StatusDone:
			succeeded++
		case o.Status == StatusDead || o.Status == StatusRetry && o.Attempts > 0:
			failed++
		case o.Status.Open():
			open++
		}
	}
	return succeeded, failed, open, err
}

func (r *planRun) stop(ctx context.Context, note string) error {
	r.p.State, r.p.Note = PlanStopped, note
	if err := r.must(ctx, PlanChange{}); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", ErrPlanStopped, note)
}

// interrupted pauses the plan of a run that cannot go on.
func (r *planRun) interrupted(ctx context.Context, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	note := "its process ended"
	if !errors.Is(why, context.Canceled) {
		note = fmt.Sprintf("its process could not go on: %.200s", why)
	}
	for {
		// The change that was interrupted may have happened, or happen between the two
		// statements below.
		p, found, err := r.store.ReadPlan(ctx, r.p.ID)
		if err != nil || !found {
			return // if the database is away, the lease ends
		}
		if r.p = p; !r.mine() {
			return
		}
		r.p.State, r.p.Note = PlanPaused, note
		if ok, err := r.change(ctx, PlanChange{}); ok || err != nil {
			return
		}
	}
}
