package sqltx_test

import (
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// An adapter shows a Tracker every statement, and ends it.
func ExampleTracker() {
	t := sqltx.NewTracker(core.Postgres)
	t.OnOutcome(func(o core.Outcome) { fmt.Println("first event:", o) })
	t.Observe("SAVEPOINT before_second", nil)
	t.OnOutcome(func(o core.Outcome) { fmt.Println("second event:", o) })
	t.Observe("ROLLBACK TO SAVEPOINT before_second", nil)
	err := t.Commit(func() error { return nil }) // sends COMMIT
	fmt.Println(err)
	// Output:
	// second event: rolled_back
	// first event: committed
	// <nil>
}

// The answer of COMMIT is lost, so the outcome is unknown. Nothing that depends on the commit is
// done.
func ExampleTracker_Commit() {
	t := sqltx.NewTracker(core.Postgres)
	t.OnOutcome(func(o core.Outcome) { fmt.Println("event:", o) })
	err := t.Commit(func() error { return errors.New("connection reset by peer") })
	fmt.Println(errors.Is(err, core.ErrCommitUnknown))
	// Output:
	// event: unknown
	// true
}
