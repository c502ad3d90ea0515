package errtext_test

import (
	"errors"
	"io"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

func TestErrorfNamesThePackageOnce(t *testing.T) {
	sentinel := errors.New("outbox: no transaction")
	other := errors.New("sqloutbox: insert: outbox: duplicate event")
	for _, c := range []struct {
		err  error
		want string
	}{
		{errtext.Errorf("outbox: create of Order: %w", sentinel), "outbox: create of Order: no transaction"},
		{errtext.Errorf("%w: %w", sentinel, io.EOF), "outbox: no transaction: EOF"},
		{errtext.Errorf("%w: %w", sentinel, sentinel), "outbox: no transaction: no transaction"},
		{errtext.Errorf("outbox: insert: %w", other), "outbox: insert: sqloutbox: insert: duplicate event"},
		{errtext.Errorf("inbox: %w", sentinel), "inbox: outbox: no transaction"},
		{
			errtext.Errorf("outbox: %w", errors.New("outbox: outbox: twice")),
			"outbox: twice",
		},
		{errtext.Errorf("no name in front"), "no name in front"},
		{errtext.Errorf("a b: c: a b: d"), "a b: c: a b: d"},
	} {
		if got := c.err.Error(); got != c.want || errtext.Repeated(got) != "" {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	err := errtext.Errorf("outbox: a: %w: %w", sentinel, io.EOF)
	if !errors.Is(err, sentinel) || !errors.Is(err, io.EOF) {
		t.Errorf("%v does not wrap its errors", err)
	}
}
