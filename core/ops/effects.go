package ops

import (
	"context"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
)

// Effects are the channels with effects that are not completed.
type Effects struct {
	// There: the database has a table of effects. Otherwise Channels is empty.
	There    bool
	Channels []command.Backlog // by channel
}

// Effects counts the effects of each channel that are pending or dead, up to CountLimit.
func (a *API) Effects(ctx context.Context) (e Effects, err error) {
	b := a.beside
	if b.Effects == nil || b.noEffects.holds() {
		return e, nil
	}
	list, err := b.Effects.Backlog(ctx, CountLimit)
	if e.There, err = b.noEffects.there(err); e.There {
		e.Channels = list
	}
	return e, err
}

// EffectPage is a part of a list of effects, oldest first.
type EffectPage struct {
	// There: the database has a table of effects. Otherwise the page is empty.
	There   bool
	Effects []command.Record // without Payload and Headers
	// Next is command.Query.After of the next page. Empty: this is the last page.
	Next string
}

// ListEffects lists the effects of one status.
func (a *API) ListEffects(ctx context.Context, q command.Query) (page EffectPage, err error) {
	b := a.beside
	if b.Effects == nil || b.noEffects.holds() {
		return page, nil
	}
	if q.Limit <= 0 {
		q.Limit = DefaultLimit
	}
	q.Limit = min(q.Limit, MaxLimit)
	list, err := b.Effects.List(ctx, q)
	if page.There, err = b.noEffects.there(err); !page.There {
		return page, err
	}
	for i := range list {
		list[i].Payload, list[i].Headers = nil, nil
	}
	page.Effects = list
	if len(list) == q.Limit {
		page.Next = list[len(list)-1].ID
	}
	return page, nil
}

// EffectRequest selects effects for a person's change. All fields are required.
type EffectRequest struct {
	IDs    []string // command.Effect.ID
	Actor  string   // the person; kept with the effect
	Reason string   // kept with the effect
}

// RedriveEffects makes dead effects pending again, with fresh attempts, and wakes their workers, each
// in a transaction of its own. See command.Queue.Redrive, which it calls. It returns how many
// changed; the others do not exist, are completed or discarded, or are being executed. After an
// error some of them may have changed. Without a table the error wraps core.ErrNoTables.
func (a *API) RedriveEffects(ctx context.Context, req EffectRequest) (changed int, err error) {
	return a.changeEffects(ctx, AuditRedriveEffect, req, (*command.Queue).Redrive)
}

// DiscardEffects ends dead effects: they are never executed. See command.Queue.Discard, which it
// calls. The rest is as for RedriveEffects.
func (a *API) DiscardEffects(ctx context.Context, req EffectRequest) (changed int, err error) {
	return a.changeEffects(ctx, AuditDiscardEffect, req, (*command.Queue).Discard)
}

func (a *API) changeEffects(ctx context.Context, action string, req EffectRequest,
	do func(q *command.Queue, ctx context.Context, tx core.Tx, id, actor, reason string) (bool, error),
) (changed int, err error) {
	b := a.beside
	switch {
	case b.Effects == nil:
		return 0, noTables("effects")
	case b.Transactor == nil:
		return 0, fmt.Errorf("ops: the Store has no Transactor: call command.Queue in a transaction: %w",
			errors.ErrUnsupported)
	case len(req.IDs) == 0 || len(req.IDs) > MaxLimit:
		return 0, invalid("%d effects in one call: give 1 to %d", len(req.IDs), MaxLimit)
	}
	queue, err := command.NewQueue(command.QueueConfig{Store: b.Effects, Outbox: a.outbox})
	if err != nil {
		return 0, err
	}
	records := make([]core.AuditRecord, len(req.IDs))
	for i, id := range req.IDs {
		records[i] = core.AuditRecord{Action: action, Actor: req.Actor, Reason: req.Reason, EventID: id}
	}
	if err := a.record(ctx, records); err != nil {
		return 0, err
	}
	for _, id := range req.IDs { // an effect locks a row that its worker wants
		var done bool
		err := b.Transactor.RunInTx(ctx, func(ctx context.Context, tx core.Tx) (err error) {
			done, err = do(queue, ctx, tx, id, req.Actor, req.Reason)
			return err
		})
		switch {
		case errors.Is(err, command.ErrNoEffect):
		case err != nil:
			return changed, err
		case done:
			changed++
		}
	}
	return changed, nil
}
