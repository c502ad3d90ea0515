package suite

import (
	"context"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// packageNames begin the texts of errors.
var packageNames = []string{"outbox", "sqltx", "sqloutbox", "once", "sqlonce"}

// checkText fails the test if a line of the text of err names a package twice, as "outbox: create
// of Order: outbox: no transaction" does. It returns err.
func checkText(t *testing.T, err error) error {
	t.Helper()
	if err == nil {
		return nil
	}
	for line := range strings.Lines(err.Error()) {
		for _, name := range packageNames {
			n := strings.Count(": "+line, ": "+name+": ")
			if n > 1 {
				t.Errorf("an error names %s %d times: %s", name, n, strings.TrimSpace(line))
			}
		}
	}
	return err
}

// textChecked is a Transactor whose errors are checked by checkText.
type textChecked struct {
	core.Transactor
	t *testing.T
}

func (c textChecked) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	return checkText(c.t, c.Transactor.RunInTx(ctx, fn))
}

// checkTexts has the texts of all errors of the adapter checked.
func (a *adapterFixture) checkTexts() {
	publish, exec, nested := a.Publish, a.Exec, a.Nested
	a.Transactor = textChecked{a.Transactor, a.T}
	a.Publish = func(ctx context.Context, events ...core.Event) error {
		return checkText(a.T, publish(ctx, events...))
	}
	a.Exec = func(ctx context.Context, query string) error { return checkText(a.T, exec(ctx, query)) }
	if nested != nil {
		a.Nested = func(ctx context.Context, fn func(context.Context) error) error {
			return checkText(a.T, nested(ctx, fn))
		}
	}
}
