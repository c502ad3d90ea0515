package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noError fails the test if err is not nil, and goes on. Goroutines of a test may call it.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// wantErr fails the test unless err is the target. The rest says what was tried.
func wantErr(t testing.TB, err, target error, format string, args ...any) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), err, target)
	}
}

// equal fails the test unless got is want. The rest says of what.
func equal[T comparable](t testing.TB, got, want T, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), got, want)
	}
}

// newOutbox returns an Outbox with the settings of cfg, which are valid.
func newOutbox(t testing.TB, cfg core.Config) *core.Outbox {
	t.Helper()
	if cfg.Relay == nil && cfg.Publisher != nil {
		cfg.Relay = relay.Config{}
	}
	ob, err := core.New(cfg)
	must(t, err)
	return ob
}

// publishTx publishes events in a transaction of their own.
func publishTx(ctx context.Context, repo interface{ Transactor() core.Transactor }, ob *core.Outbox,
	events ...core.Event,
) error {
	return repo.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, events...)
		return err
	})
}

// errOf returns the error of a call whose result does not matter.
func errOf[T any](_ T, err error) error { return err }
