package relay_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/mark"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
)

var errLost = errors.New("connection lost")

// simRepository is the table as one process sees it. Every statement parks before its effect, and
// some park before their answer.
type simRepository struct {
	core.Repository // the table itself

	sim *simulation
	inc *incarnation
}

var _ core.Repository = (*simRepository)(nil)

// do runs a statement. dead reports that the process has crashed meanwhile, so nothing that it does
// now may have an effect.
func (r *simRepository) do(ctx context.Context, kind callKind, method, rows string,
	effect func(context.Context) (uint64, error),
) (dead bool, err error) {
	defer func() {
		if err != nil && kind != callInsert {
			r.sim.truth.failing(r.inc)
		}
	}()
	name := r.inc.name() + " " + method + rows
	c := &call{name: name, kind: kind, inc: r.inc, ctx: ctx}
	v := r.sim.park(c)
	switch v {
	case died, diedAfter:
		return true, errLost
	case noEffect:
		return false, r.failure(ctx)
	}
	effectCtx := context.WithoutCancel(ctx)
	if kind == callInsert {
		effectCtx = ctx // the effect may wait for a lock
	}
	if v == locked {
		effectCtx = context.WithValue(effectCtx, someLocked{}, true)
	}
	if c.outcome, err = effect(effectCtx); err != nil {
		return false, err
	}
	if v == slow || kind == callInsert {
		v = r.sim.park(&call{name: name + fmt.Sprintf(" = %x", c.outcome), kind: callAnswer, inc: r.inc, ctx: ctx})
	}
	switch v {
	case died, diedAfter:
		return true, errLost
	case answerLost:
		return false, r.failure(ctx)
	}
	return false, nil
}

// someLocked marks a statement that finds some of its rows locked by another transaction.
type someLocked struct{}

// unlocked divides the rows of a statement into free rows and rows that another transaction holds.
// Every second row is held, or the only row.
func unlocked[T any](ctx context.Context, rows []T, id func(T) core.RowID) (free []T, err error) {
	if ctx.Value(someLocked{}) == nil {
		return rows, nil
	}
	var held []core.RowID
	for i, row := range rows {
		if i%2 == 0 {
			held = append(held, id(row))
		} else {
			free = append(free, row)
		}
	}
	return free, &core.LockedError{Rows: held}
}

// spreadOut maps the results for the free rows, every second one, to the positions of all rows.
func spreadOut(ctx context.Context, flags []bool, n int) []bool {
	if ctx.Value(someLocked{}) == nil || flags == nil {
		return flags
	}
	all := make([]bool, n)
	for i, flag := range flags {
		all[2*i+1] = flag
	}
	return all
}

func (r *simRepository) failure(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return errLost
}

func (r *simRepository) names(n int, id func(int) core.RowID) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(" " + r.sim.truth.name(id(i)))
	}
	return b.String()
}

func (r *simRepository) refs(claims []core.ClaimRef) string {
	return r.names(len(claims), func(i int) core.RowID { return claims[i].ID })
}

func (r *simRepository) Insert(ctx context.Context, tx core.Tx,
	req core.InsertRequest,
) (places []core.Inserted, err error) {
	rows := r.names(len(req.Rows), func(i int) core.RowID { return req.Rows[i].ID })
	_, err = r.do(ctx, callInsert, "Insert", rows, func(ctx context.Context) (uint64, error) {
		places, err = r.Repository.Insert(ctx, tx, req)
		if err == nil {
			r.sim.truth.inserted(req, places)
		}
		return digest(places), err
	})
	return places, err
}

// claimed runs a claim statement and returns its result, unless the answer was lost.
func (r *simRepository) claimed(ctx context.Context, method string, req core.ClaimRequest,
	claim func(context.Context) ([]core.Claimed, error),
) (rows []core.Claimed, err error) {
	var step *call
	asked := r.sim.truth.asks(r.inc, req.ClaimNo)
	dead, err := r.do(ctx, callDB, method, "", func(effectCtx context.Context) (uint64, error) {
		rows, err = claim(r.stepped(effectCtx, ctx, method, &step))
		r.sim.truth.claimed(r.inc, req, rows, asked)
		outcome := uint64(0)
		for i := range rows {
			outcome = outcome*31 + digest(rows[i].ID, rows[i].ClaimNo, rows[i].Attempts, rows[i].LostClaims)
		}
		if step != nil { // the scheduler waits for this one last
			step.outcome = outcome
		}
		return outcome, err
	})
	if dead || err != nil && r.inc.dead.Load() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// stepped lets others act before each further statement of a claim. callCtx is the context of the
// call.
func (r *simRepository) stepped(ctx, callCtx context.Context, method string, last **call) context.Context {
	statements := 0
	return suite.ContextWithPause(ctx, func() error {
		if statements++; statements == 1 {
			return nil
		}
		c := &call{
			name: fmt.Sprintf("%s %s, statement %d", r.inc.name(), method, statements), kind: callStep,
			inc: r.inc, ctx: callCtx,
		}
		*last = c
		switch r.sim.park(c) {
		case goOn, slow:
			return nil
		default:
			return r.failure(callCtx)
		}
	})
}

func (r *simRepository) ClaimUnordered(ctx context.Context, req core.ClaimRequest) ([]core.Claimed, error) {
	return r.claimed(ctx, "ClaimUnordered", req, func(ctx context.Context) ([]core.Claimed, error) {
		return r.Repository.ClaimUnordered(ctx, req)
	})
}

func (r *simRepository) ClaimHeads(ctx context.Context, req core.ClaimRequest,
	after core.KeyID,
) (rows []core.Claimed, next core.KeyID, err error) {
	rows, err = r.claimed(ctx, "ClaimHeads", req, func(ctx context.Context) (rows []core.Claimed, err error) {
		rows, next, err = r.Repository.ClaimHeads(ctx, req, after)
		return rows, err
	})
	if rows == nil && err != nil {
		next = core.KeyID{}
	}
	return rows, next, err
}

func (r *simRepository) ClaimKey(ctx context.Context, req core.ClaimRequest, lane core.KeyID) ([]core.Claimed, error) {
	return r.claimed(ctx, "ClaimKey "+fmt.Sprintf("%x", lane[:6]), req,
		func(ctx context.Context) ([]core.Claimed, error) {
			return r.Repository.ClaimKey(ctx, req, lane)
		})
}

func (r *simRepository) MarkDone(ctx context.Context, done []core.Done, deleteRows bool) (changed int, err error) {
	rows := r.names(len(done), func(i int) core.RowID { return done[i].ID })
	var held error
	dead, err := r.do(ctx, callDB, "MarkDone", rows, func(ctx context.Context) (uint64, error) {
		var free []core.Done
		free, held = unlocked(ctx, done, func(d core.Done) core.RowID { return d.ID })
		changed, err = r.Repository.MarkDone(ctx, free, deleteRows)
		r.sim.truth.marked(free)
		return uint64(changed), err
	})
	if dead {
		return len(done), nil
	}
	return changed, errors.Join(err, held)
}

func (r *simRepository) MarkFailed(ctx context.Context, node string,
	failures []core.Failure,
) (changed []bool, err error) {
	rows := r.names(len(failures), func(i int) core.RowID { return failures[i].ID })
	var held error
	dead, err := r.do(ctx, callDB, "MarkFailed", rows, func(ctx context.Context) (uint64, error) {
		var free []core.Failure
		free, held = unlocked(ctx, failures, func(f core.Failure) core.RowID { return f.ID })
		changed, err = r.Repository.MarkFailed(ctx, node, free)
		r.sim.truth.failed(node, free, changed)
		changed = spreadOut(ctx, changed, len(failures))
		return digest(changed), err
	})
	if dead {
		return make([]bool, len(failures)), nil
	}
	return changed, errors.Join(err, held)
}

func (r *simRepository) BeginSuspect(ctx context.Context, node string, wait time.Duration,
	claims []core.ClaimRef,
) (held []bool, err error) {
	r.sim.truth.picked(r.inc, claims)
	dead, err := r.do(ctx, callDB, "BeginSuspect", r.refs(claims), func(ctx context.Context) (uint64, error) {
		held, err = r.Repository.BeginSuspect(ctx, node, wait, claims)
		r.sim.truth.suspectBegun(r.inc, node, wait, claims, held)
		return digest(held), err
	})
	if dead {
		return make([]bool, len(claims)), nil
	}
	return held, err
}

func (r *simRepository) Renew(ctx context.Context, node string, lease time.Duration,
	claims []core.ClaimRef,
) (held []bool, err error) {
	var others error
	who := renewer(ctx)
	if who != "Renew" {
		r.sim.truth.picked(r.inc, claims)
	}
	dead, err := r.do(ctx, callDB, who, r.refs(claims), func(ctx context.Context) (uint64, error) {
		var free []core.ClaimRef
		free, others = unlocked(ctx, claims, claimID)
		held, err = r.Repository.Renew(ctx, node, lease, free)
		r.sim.truth.renewed(node, lease, free, held)
		held = spreadOut(ctx, held, len(claims))
		return digest(held), err
	})
	if dead {
		return make([]bool, len(claims)), nil
	}
	return held, errors.Join(err, others)
}

// renewer names the caller of Renew, because a worker and the goroutine that renews batches may
// renew the same row at once.
func renewer(ctx context.Context) string {
	if mark.IsToPublish(ctx) {
		return "Renew before publishing"
	}
	return "Renew"
}

func (r *simRepository) Release(ctx context.Context, node string, claims []core.ClaimRef) (changed int, err error) {
	var held error
	dead, err := r.do(ctx, callDB, "Release", r.refs(claims), func(ctx context.Context) (uint64, error) {
		var free []core.ClaimRef
		free, held = unlocked(ctx, claims, claimID)
		changed, err = r.Repository.Release(ctx, node, free)
		r.sim.truth.released(node, free)
		return uint64(changed), err
	})
	if dead {
		return len(claims), nil
	}
	return changed, errors.Join(err, held)
}

func claimID(c core.ClaimRef) core.RowID { return c.ID }

func (r *simRepository) NextDue(ctx context.Context, req core.ClaimRequest) (d time.Duration, ok bool, err error) {
	dead, err := r.do(ctx, callDB, "NextDue", "", func(ctx context.Context) (uint64, error) {
		d, ok, err = r.Repository.NextDue(ctx, req)
		return uint64(d), err
	})
	return d, ok && !dead && err == nil, err
}

func (r *simRepository) Cleanup(ctx context.Context, req core.CleanupRequest) (deleted int, more bool, err error) {
	_, err = r.do(ctx, callDB, "Cleanup", "", func(ctx context.Context) (uint64, error) {
		deleted, more, err = r.Repository.Cleanup(ctx, req)
		return uint64(deleted), err
	})
	return deleted, more, err
}

// No relay hears of the others, so each keeps the whole rate of a destination.

func (r *simRepository) Beat(context.Context, core.Heartbeat) error               { return nil }
func (r *simRepository) RemoveRelay(context.Context, string) error                { return nil }
func (r *simRepository) Relays(context.Context) ([]core.RelayStatus, error)       { return nil, nil }
func (r *simRepository) ForgetRelays(context.Context, time.Duration) (int, error) { return 0, nil }

func (r *simRepository) CollectKeys(ctx context.Context, idle time.Duration, after core.KeyID,
	limit int,
) (deleted int, next core.KeyID, err error) {
	_, err = r.do(ctx, callDB, "CollectKeys", "", func(ctx context.Context) (uint64, error) {
		deleted, next, err = r.Repository.CollectKeys(ctx, idle, after, limit)
		return uint64(deleted), err
	})
	if err != nil {
		next = core.KeyID{}
	}
	return deleted, next, err
}

// digest returns a hash of the result of a statement.
func digest(parts ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, parts...)
	return h.Sum64()
}
