package sqltx_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

func TestTrackerHarmless(t *testing.T) {
	t.Parallel()
	tr := sqltx.NewTracker(core.Postgres)
	for text, want := range map[string]bool{
		"SELECT 1": true, "": true, "-- name: GetOrder :one\nSELECT 1": true, "INSERT INTO a VALUES (';')": true,
		"SELECT 1; SELECT 2": true, "CREATE TABLE a ()": true,
		"SAVEPOINT a": false, "RELEASE a": false, "ROLLBACK TO a": false, "COMMIT": false, "\fROLLBACK": false,
		"SELECT 1; COMMIT": false, "BEGIN": false, "PREPARE TRANSACTION 'a'": false, "no_statement": false,
	} {
		equal(t, tr.Harmless(text), want, "%q: harmless", text)
	}
}

func TestTrackerGuard(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		released error
		want     core.Outcome
		err      error
	}{
		"the transaction is the same": {nil, core.Committed, nil},
		"the guard is gone":           {refused, core.Unknown, core.ErrCommitUnknown},
	} {
		var sent []string
		tr := sqltx.NewTracker(core.Postgres)
		var heard core.Outcome
		tr.OnOutcome(func(o core.Outcome) { heard = o })
		release, err := tr.Guard(t.Context(), func(_ context.Context, query string) error {
			sent = append(sent, query)
			if len(sent) == 2 {
				return c.released
			}
			return nil
		})
		must(t, err)
		release(nil)
		err = tr.Commit(succeed)
		if heard != c.want || !errors.Is(err, c.err) || c.err == nil && err != nil {
			t.Errorf("%s: %s, %v, want %s, %v", name, heard, err, c.want, c.err)
		}
		want := []string{"SAVEPOINT outbox_guard", "RELEASE SAVEPOINT outbox_guard"}
		if !slices.Equal(sent, want) {
			t.Errorf("%s: %q was sent, want %q", name, sent, want)
		}
	}

	tr := sqltx.NewTracker(core.Postgres)
	release, err := tr.Guard(t.Context(), func(context.Context, string) error { return refused })
	if release != nil || !errors.Is(err, refused) || tr.Doubt() == nil {
		t.Errorf("a guard that was refused: %v, doubt %v", err, tr.Doubt())
	}
}
