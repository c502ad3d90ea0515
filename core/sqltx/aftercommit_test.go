package sqltx_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// trackedTx is a transaction of a Tracker alone.
type trackedTx struct {
	*sqltx.Tracker
	untracked bool
}

func (t trackedTx) Exec(context.Context, string, ...any) (int64, error) { return 0, nil }
func (t trackedTx) Query(context.Context, string, ...any) (core.Rows, error) {
	return nil, errors.ErrUnsupported
}
func (t trackedTx) Dialect() core.Dialect { return core.Postgres }
func (t trackedTx) Tracked() bool         { return !t.untracked }

// The suite of the adapters tests the rest.
func TestAfterCommitRefuses(t *testing.T) {
	aborted := sqltx.NewTracker(core.MySQL)
	aborted.Abort(errors.New("deadlock"))
	over := sqltx.NewTracker(core.Postgres)
	over.RolledBack()
	for name, tc := range map[string]struct {
		tx   core.Tx
		want error
	}{
		"nil":       {nil, core.ErrNoTransaction},
		"untracked": {trackedTx{sqltx.NewTracker(core.Postgres), true}, core.ErrUntracked},
		"aborted":   {trackedTx{Tracker: aborted}, core.ErrTxAborted},
		"over":      {trackedTx{Tracker: over}, core.ErrNoTransaction},
	} {
		wantErr(t, sqltx.AfterCommit(tc.tx, func() { t.Errorf("%s: it ran", name) }), tc.want, "%s", name)
	}
}

func TestAfterCommitLogsPanics(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	tx := trackedTx{Tracker: sqltx.NewTracker(core.Postgres)}
	must(t, sqltx.AfterCommit(tx, func() { panic("oh no") }))
	must(t, tx.Commit(func() error { return nil }))
	if s := log.String(); !strings.Contains(s, "oh no") || !strings.Contains(s, "aftercommit_test.go") {
		t.Errorf("logged %q", s)
	}
}

// Work that may be lost need not be an event.
func ExampleAfterCommit() {
	var transactor core.Transactor // that of your adapter
	cache := map[string]string{}
	placeOrder := func(ctx context.Context) error {
		return transactor.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
			// store the order
			return sqltx.AfterCommit(tx, func() { delete(cache, "open orders") })
		})
	}
	_ = placeOrder
}
