package ops

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/who"
)

// Errors of stored plans. Errors of the API wrap them.
var (
	// ErrNoPlan: no stored plan has that id.
	ErrNoPlan = errors.New("ops: no such plan")
	// ErrPlanRunning: another process works the plan off.
	ErrPlanRunning = errors.New("ops: another process runs the plan")
	// ErrPlanStopped: RunPlan ended before the plan was done. StoredPlan.State and Note have the
	// reason.
	ErrPlanStopped = errors.New("ops: the plan is stopped")
	// ErrPlanEnded: the plan is done or cancelled.
	ErrPlanEnded = errors.New("ops: the plan has ended")
)

// PlanState is the state of a stored plan.
type PlanState string

// States of a plan.
const (
	PlanPlanned   PlanState = "planned"   // stored, and nothing was changed yet
	PlanRunning   PlanState = "running"   // a process works it off; see StoredPlan.WorkerUntil
	PlanPaused    PlanState = "paused"    // by a person, or because its process ended; RunPlan goes on
	PlanStopped   PlanState = "stopped"   // by itself, see StoredPlan.Note; RunPlan goes on
	PlanCancelled PlanState = "cancelled" // by a person; RunPlan refuses it
	PlanDone      PlanState = "done"      // every event was worked off
)

// Ended reports whether the plan can never run again.
func (s PlanState) Ended() bool { return s == PlanCancelled || s == PlanDone }

// StoredPlan is a Plan in the database, with its progress. Every process that has the tables can
// run it, pause it and cancel it, one at a time.
type StoredPlan struct {
	ID    string    `json:"id,omitempty"` // empty: it is not stored
	State PlanState `json:"state,omitempty"`
	Plan            // without IDs and Seen in StoredPlans

	Events int    `json:"events"` // how many ids the plan has
	Actor  string `json:"actor"`  // who stored it, and why
	Reason string `json:"reason"`
	Note   string `json:"note,omitempty"` // why it is paused or stopped

	// Position is how many ids were worked off, from the first one. Of these, Changed events
	// changed. The others had changed before.
	Position int `json:"position"`
	Changed  int `json:"changed"`
	// Judged is how many of the ids that were worked off have a known outcome: Succeeded events
	// were published, and Failed events failed again. The others were ended by a person.
	Judged    int `json:"judged"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	// Stage is the next stage of a redrive or a replay: 0 is a single event, 1 is ten of them, and
	// then come the others.
	Stage int `json:"stage"`

	Worker      string    `json:"worker,omitempty"`      // the process that runs it or ran it last
	WorkerUntil time.Time `json:"worker_until,omitzero"` // until then no other process may run it
	CreatedAt   time.Time `json:"created_at,omitzero"`
	UpdatedAt   time.Time `json:"updated_at,omitzero"`
	ReadAt      time.Time `json:"read_at,omitzero"`
	// Version counts the changes.
	Version int64 `json:"version"`
}

// Running reports whether a process ran the plan when it was read.
func (p *StoredPlan) Running() bool { return p.State == PlanRunning && p.WorkerUntil.After(p.ReadAt) }

// RowStatus is the state of an event after it was redriven or replayed.
type RowStatus struct {
	ID       core.RowID // the row that was redriven, or that was inserted to replay another one
	Status   Status     // of that row, or of the row that took its place at the end of the key
	Attempts int        // refusals since then
}

// PlanChange is a change of a stored plan.
type PlanChange struct {
	// Plan is the new state. Its Version is the version that was read: if the plan has changed
	// since, nothing happens.
	Plan StoredPlan
	// Lease is how long, from now on, no other process may run the plan.
	Lease time.Duration
	// IDs are redriven, discarded or replayed in the same transaction, by Plan.Action, and counted
	// in Changed. A replay leaves out rows that are not done, or are replays. For each other row it
	// inserts an open row with the id Plan.ReplayID, in the order of the key, under
	// core.ReplayKeyID. The new row has the event, with its first number in core.HeaderFirstKeySeq,
	// and the old row in ReplayOf. The audit row names both rows.
	IDs []core.RowID
	// Audit is the action of an audit row about the plan. Empty: none. Request has actor and
	// reason.
	Audit   string
	Request core.AdminRequest // its IDs are not used, and a replay does not use its Seen
}

// rowReason is the reason in the audit rows of the events that the plan changes. By it they differ
// from the audit rows of other changes.
func (p *StoredPlan) rowReason() string { return fmt.Sprintf("%s (plan %s)", p.Reason, p.ID) }

// planRetention is how long plans stay after their end.
const planRetention = 90 * 24 * time.Hour

// Actions of the audit rows about plans.
const (
	auditPlan   = "plan"
	auditRun    = "run-plan"
	auditPause  = "pause-plan"
	auditCancel = "cancel-plan"
)

func checkWho(actor, reason string) error {
	if problem := who.Problem(actor, reason); problem != "" {
		return invalid(problem)
	}
	return nil
}

// StorePlan stores a Plan, so that RunPlan of any process can work it off. An audit row in the same
// transaction has actor and reason, the filter and the number of events. Actor and reason are
// required. A Plan without events, and one whose digest is wrong, is refused. Plans are deleted 90
// days after their end.
func (a *API) StorePlan(ctx context.Context, p Plan, actor, reason string) (StoredPlan, error) {
	if err := p.check(); err != nil {
		return StoredPlan{}, err
	}
	if err := checkWho(actor, reason); err != nil {
		return StoredPlan{}, err
	}
	id := make([]byte, 6)
	_, _ = rand.Read(id) // never fails
	stored := StoredPlan{
		ID: hex.EncodeToString(id), State: PlanPlanned, Plan: p, Events: len(p.IDs), Actor: actor, Reason: reason,
	}
	if err := a.store.InsertPlan(ctx, stored, auditPlan, planRetention); err != nil {
		return StoredPlan{}, err
	}
	return a.StoredPlan(ctx, stored.ID)
}

// StoredPlan returns a plan with its ids. The error wraps ErrNoPlan if there is none.
func (a *API) StoredPlan(ctx context.Context, id string) (StoredPlan, error) {
	p, found, err := a.store.ReadPlan(ctx, id)
	if err == nil && !found {
		err = fmt.Errorf("%w: %.64q", ErrNoPlan, id)
	}
	return p, err
}

// StoredPlans returns the newest plans without their ids, up to limit. A limit of 0 is
// DefaultLimit, and at most MaxLimit are returned.
func (a *API) StoredPlans(ctx context.Context, limit int) ([]StoredPlan, error) {
	if limit <= 0 {
		limit = DefaultLimit
	}
	return a.store.ReadPlans(ctx, min(limit, MaxLimit))
}

// PausePlan stops a plan until RunPlan goes on with it. A process that runs it ends within a few
// seconds, and changes no more events. Actor and reason are required, and go to the audit.
func (a *API) PausePlan(ctx context.Context, id, actor, reason string) (StoredPlan, error) {
	return a.endPlan(ctx, id, PlanPaused, auditPause, actor, reason)
}

// CancelPlan ends a plan, and RunPlan refuses it from then on. The events that it has changed stay
// changed. CancelPlan is otherwise like PausePlan.
func (a *API) CancelPlan(ctx context.Context, id, actor, reason string) (StoredPlan, error) {
	return a.endPlan(ctx, id, PlanCancelled, auditCancel, actor, reason)
}

func (a *API) endPlan(ctx context.Context, id string, state PlanState, action, actor, reason string,
) (StoredPlan, error) {
	if err := checkWho(actor, reason); err != nil {
		return StoredPlan{}, err
	}
	for {
		p, err := a.StoredPlan(ctx, id)
		if err != nil {
			return p, err
		}
		if p.State.Ended() {
			return p, fmt.Errorf("%w: it is %s", ErrPlanEnded, p.State)
		}
		note := fmt.Sprintf("by %s: %s", actor, reason)
		if p.State == PlanStopped { // whatever stopped it may still be there
			p.Stage, note = 0, fmt.Sprintf("%s (it was stopped: %s)", note, p.Note)
		}
		p.State, p.Note = state, note
		changed, ok, err := a.store.ChangePlan(ctx, PlanChange{
			Plan: p, Audit: action, Request: core.AdminRequest{Actor: actor, Reason: reason},
		})
		if err != nil || ok {
			return changed, err
		}
	}
}
