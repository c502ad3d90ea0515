package core_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

type stateError string

func (e stateError) Error() string    { return "ERROR (SQLSTATE " + string(e) + ")" }
func (e stateError) SQLState() string { return string(e) }

func TestRetryable(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("x"), false},
		{stateError("40001"), true},
		{fmt.Errorf("orm: %w", stateError("40P01")), true},
		{stateError("23505"), false},
		{fmt.Errorf("%w: x", core.ErrTxAborted), true},
		{core.ErrCommitUnknown, false},
		{errors.Join(core.ErrCommitUnknown, stateError("40001")), false},
		{core.ErrNoTransaction, false},
	} {
		equal(t, core.Retryable(tt.err), tt.want, "%v", tt.err)
	}
}
