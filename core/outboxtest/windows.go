package outboxtest

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// windowKey identifies a window.
type windowKey struct{ topic, consumer string }

// DeclareWindow implements ops.Store.
func (r *Repository) DeclareWindow(ctx context.Context, req ops.WindowRequest) error {
	if err := checkWho(req.Actor, req.Reason); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	if r.windows == nil {
		r.windows = map[windowKey]ops.Window{}
	}
	r.windows[windowKey{req.Topic, req.Consumer}] = ops.Window{
		Topic: req.Topic, Consumer: req.Consumer, Keep: req.Keep, Since: r.now(), Actor: req.Actor, Reason: req.Reason,
	}
	r.auditNoRow(ops.AuditDeclareWindow, req.Topic, req.Actor, req.AuditReason())
	return nil
}

// WithdrawWindow implements ops.Store.
func (r *Repository) WithdrawWindow(ctx context.Context, req ops.WindowRequest) (withdrawn bool, err error) {
	if err := checkWho(req.Actor, req.Reason); err != nil {
		return false, err
	}
	if err := r.begin(ctx); err != nil {
		return false, err
	}
	defer r.mu.Unlock()
	key := windowKey{req.Topic, req.Consumer}
	if _, withdrawn = r.windows[key]; withdrawn {
		delete(r.windows, key)
		r.auditNoRow(ops.AuditWithdrawWindow, req.Topic, req.Actor, req.AuditReason())
	}
	return withdrawn, nil
}

// Windows implements ops.Store.
func (r *Repository) Windows(ctx context.Context) ([]ops.Window, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.windows), func(a, b ops.Window) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Consumer, b.Consumer))
	}), nil
}
